"""Rasters a second, in one process, beside the drawing calls alone and a copy of the same bytes.

    python benchmarks/rasters.py FOLDER

FOLDER has `single.zarr`, `semantic_map.pb`, `aerial_map.png` and `meta.json` (`tests/golden/l5kit` will do).
Rasters are L5Kit's usual ones: 224 x 224 pixels of half a metre, ten steps of history, in random order, in batches of
64 into one buffer that is used again. `calls` are OpenCV's drawing calls on polygons that are ready, recorded while the
raster is drawn; `copy` moves the bytes of the rasters once. Rounds alternate; each figure is the best of them, because
whatever else the machine does only ever adds time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from penstock.domains.driving.rasterize import RasterOptions, Scenes, Views, build_rasterizer
from penstock.formats.l5kit import FORMAT

BATCH, HISTORY = 64, 10
DRAWING = ("fillPoly", "polylines", "warpAffine", "resize", "remap")


def config(map_type: str) -> dict[str, Any]:
    raster = {
        "raster_size": [224, 224],
        "pixel_size": [0.5, 0.5],
        "ego_center": [0.25, 0.5],
        "map_type": map_type,
        "satellite_map_key": "aerial_map.png",
        "semantic_map_key": "semantic_map.pb",
        "dataset_meta_key": "meta.json",
        "filter_agents_threshold": 0.5,
        "set_origin_to_bottom": True,
    }
    model = {"history_num_frames": HISTORY, "render_ego_history": True}
    return {"raster_params": raster, "model_params": model}


def recorded(draw: Callable[[], Any]) -> list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """Every drawing call that `draw` makes, with its arguments."""
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
    kept = {name: getattr(cv2, name) for name in DRAWING}

    def recorder(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append((real, args, kwargs))
            return real(*args, **kwargs)

        return call

    try:
        for name, real in kept.items():
            setattr(cv2, name, recorder(real))
        draw()
    finally:
        for name, real in kept.items():
            setattr(cv2, name, real)
    return calls


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(folder: Path, map_type: str, scenes: Scenes, rounds: int) -> None:
    raster = build_rasterizer(config(map_type), folder, RasterOptions(outside="pad"))
    frames = np.random.default_rng(0).permutation(len(scenes.frames))[:BATCH]
    views = Views.of_ego(scenes, np.maximum(frames[:, None] - np.arange(HISTORY + 1), -1))
    out = raster.rasterize_batch(scenes, views)
    other, floats = np.zeros_like(out), np.zeros(out.shape, np.float32)
    calls = recorded(lambda: raster.rasterize_batch(scenes, views, out))

    def replay() -> None:
        for real, args, kwargs in calls:
            real(*args, **kwargs)

    works: dict[str, Callable[[], Any]] = {
        "uint8": lambda: raster.rasterize_batch(scenes, views, out),
        "float32": lambda: raster.rasterize_batch(scenes, views, floats),
        "2 threads": lambda: raster.rasterize_batch(scenes, views, out, threads=2),
        "calls": replay,
        "copy": lambda: np.copyto(other, out),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            best[name] = min(best[name], seconds(work))
    row = [f"{map_type:16}", *(f"{BATCH / best[name]:9.0f}" for name in works)]
    ratios = [best["calls"] / best["uint8"], best["copy"] / best["uint8"], best["uint8"] / best["2 threads"]]
    print(*row, *(f"{ratio:9.2f}" for ratio in ratios), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--scenes", type=Path, help="the .zarr, if it lies elsewhere")
    options = parser.parse_args()
    with FORMAT.open(options.scenes or options.folder / "single.zarr") as source:
        scenes = Scenes.of(source.frames[:], source.agents[:], source.tl_faces[:])
    cv2.setNumThreads(1)
    print("samples a second, then uint8 as a share of what the calls alone and a copy reach, and 2 threads over 1")
    columns = ("uint8", "float32", "2 threads", "calls", "copy", "of calls", "of copy", "threads")
    print(" " * 16, *(f"{name:>9}" for name in columns))
    for map_type in ("stub_debug", "box_debug", "semantic_debug", "py_semantic", "satellite_debug", "py_satellite"):
        measure(options.folder, map_type, scenes, options.rounds)


if __name__ == "__main__":
    main()
