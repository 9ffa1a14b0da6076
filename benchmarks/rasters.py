"""Rasters a second, in one process, beside OpenCV's drawing calls alone and a copy of the same bytes.

    python benchmarks/rasters.py FOLDER

FOLDER has `single.zarr`, `semantic_map.pb`, `aerial_map.png` and `meta.json` (`tests/golden/l5kit` will do).
Rasters are L5Kit's usual ones: 224 x 224 pixels of half a metre, ten steps of history, in random order, in batches of
64. `dataset` and `dataset8` are samples of `EgoDataset` with images of float32 (its default) and uint8, as programs get
them; `uint8` and `float32` are rasters alone, into one buffer that is used again. `calls` are OpenCV's calls that draw
the same boxes and maps, on polygons that are ready and images that are blank; `copy` moves the bytes of the uint8
rasters once, and `fill` writes zeros to those of float32, which `dataset` cannot undercut. Rounds alternate; each
figure is the best of them, because whatever else the machine does only ever adds time. All are processor time, but for
the two columns of threads, which are by the clock and say something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import figures
import numpy as np
from raster_config import HISTORY, config

from penstock_driving.ego import EgoDataset
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.kernels.polygons import CLOSED, FILLED, POINT
from penstock_driving.rasterize import RasterOptions, Scenes, Views, build_rasterizer
from penstock_driving.rasterize.drawing import Strokes

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def of_opencv(strokes: Strokes, view: int, image: Any) -> list[Call]:
    """OpenCV's calls that draw a view, onto images of their own."""
    wide = image.dtype == np.uint64
    planes = [np.zeros((*image.shape[1:], 3) if wide else image.shape[1:], np.uint8) for _ in image]
    calls: list[Call] = []
    for first, last, plane, what, packed in strokes.calls[strokes.ends[view] : strokes.ends[view + 1]].tolist():
        contours = [strokes.points[low:high] for low, high in strokes.spans[first:last].tolist()]
        color = tuple(packed >> 16 * channel & 255 for channel in range(3)) if wide else packed
        if contours and what == FILLED:
            calls.append((cv2.fillPoly, (planes[plane], contours, color, cv2.LINE_AA, POINT)))
        elif contours:
            calls.append((cv2.polylines, (planes[plane], contours, what == CLOSED, color, 1, cv2.LINE_AA, POINT)))
    return calls


def recorded(draw: Callable[[], Any]) -> list[Call]:
    """What OpenCV would be called with for everything that `draw` paints."""
    calls: list[Call] = []
    real = Strokes.paint

    def paint(self: Strokes, view: int, image: Any, background: int = 0) -> None:
        calls.extend(of_opencv(self, view, image))
        real(self, view, image, background)

    try:
        Strokes.paint = paint
        draw()
    finally:
        Strokes.paint = real
    return calls


def seconds(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    return clock() - begin


def measure(folder: Path, map_type: str, source: L5KitSource, scenes: Scenes, rounds: int, batch: int) -> None:
    raster = build_rasterizer(
        config(map_type), folder, RasterOptions(outside="pad") if "satellite" in map_type else None
    )
    frames = np.random.default_rng(0).permutation(len(scenes.frames))[:batch]
    views = Views.of_ego(scenes, np.maximum(frames[:, None] - np.arange(HISTORY + 1), -1))
    out = raster.rasterize_batch(scenes, views)
    other, floats = np.zeros_like(out), np.zeros(out.shape, np.float32)
    calls = recorded(lambda: raster.rasterize_batch(scenes, views, out))

    def replay() -> None:
        for call, args in calls:
            call(*args)

    data, small = (EgoDataset(config(map_type), source, raster, image_type=kind) for kind in ("float32", "uint8"))
    works: dict[str, Callable[[], Any]] = {
        "dataset": lambda: data[frames],
        "dataset8": lambda: small[frames],
        "uint8": lambda: raster.rasterize_batch(scenes, views, out),
        "float32": lambda: raster.rasterize_batch(scenes, views, floats),
        "1 thread": lambda: raster.rasterize_batch(scenes, views, out),
        "2 threads": lambda: raster.rasterize_batch(scenes, views, out, threads=2),
        "calls": replay,
        "copy": lambda: np.copyto(other, out),
        "fill": lambda: floats.fill(0),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            clock = time.perf_counter if "thread" in name else time.thread_time
            best[name] = min(best[name], seconds(work, clock))
    if "satellite" in map_type or not calls:
        best["calls"] = float("nan")
    for name, seconds_ in best.items():
        if not np.isnan(seconds_) and "thread" not in name:
            figures.record(f"{map_type}.{name}", batch / seconds_, "/s")
    figures.record(f"{map_type}.of_calls", best["calls"] / best["dataset"], "x")
    figures.record(f"{map_type}.of_copy", best["copy"] / best["dataset"], "x")
    row = [f"{map_type:16}", *(f"{batch / best[name]:9.0f}" for name in works)]
    of_calls = [best["calls"] / best[name] for name in ("uint8", "dataset")]
    ratios = [*of_calls, best["copy"] / best["uint8"], best["1 thread"] / best["2 threads"]]
    print(*row, *(f"{ratio:9.2f}" for ratio in ratios), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--scenes", type=Path, help="the .zarr, if it lies elsewhere")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    print("samples a second; uint8 and dataset as shares of the calls alone, uint8 of a copy; 2 threads over 1")
    columns = (
        "dataset",
        "dataset8",
        "uint8",
        "float32",
        "1 thread",
        "2 threads",
        "calls",
        "copy",
        "fill",
        "of calls",
        "dataset",
        "of copy",
        "threads",
    )
    print(" " * 16, *(f"{name:>9}" for name in columns))
    with L5KitSource(options.scenes or options.folder / "single.zarr") as source:
        scenes = Scenes.of(source.frames[:], source.agents[:], source.tl_faces[:])
        for map_type in ("stub_debug", "box_debug", "semantic_debug", "py_semantic", "satellite_debug", "py_satellite"):
            measure(options.folder, map_type, source, scenes, options.rounds, options.batch)


if __name__ == "__main__":
    main()
