"""Semantic rasters a second drawn by PyTorch: on an accelerator where there is one, else small, on the processor.

    python benchmarks/rasters_device.py FOLDER

FOLDER is as for `rasters.py`, whose rasters these are: 224 x 224 pixels, 25 channels, ten steps of history, in random
order. `draw` is drawing from vectors that are ready in main memory, their way to the device included, until the last
pixel is there. `both` is vectors by `--threads` threads, two batches each ahead, and drawing at the same time.
`vectors` are those threads alone, and `fill` writes the bytes of the rasters once on the device, which nothing can
beat. Rounds alternate; each figure is the best of them. Before that, a batch is compared with the processor's picture.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import figures
import numpy as np
import torch
from raster_config import HISTORY, config

from penstock_driving.formats.l5kit import FORMAT
from penstock_driving.rasterize import Scenes, VectorRasterizer, Vectors, Views, build_rasterizer

GOAL = 100_000  # rasters a second on an accelerator


def device_of(wanted: str | None) -> str:
    """The device to draw on; says plainly where there is no accelerator."""
    if wanted is not None:
        return wanted
    if torch.cuda.is_available():
        print("device:", torch.cuda.get_device_name())
        return "cuda"
    print("device: no accelerator here; these are figures of the processor, in a small mode, and say nothing of one")
    return "cpu"


def batches_of(scenes: Scenes, count: int, batch: int) -> list[Views]:
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, len(scenes.frames), batch) for _ in range(count)]
    return [Views.of_ego(scenes, np.maximum(some[:, None] - np.arange(HISTORY + 1), -1)) for some in frames]


class Work:
    """Every batch once, in the ways that are measured."""

    def __init__(
        self, path: VectorRasterizer, scenes: Scenes, batches: list[Views], pool: ThreadPoolExecutor, ahead: int
    ) -> None:
        self.path, self.scenes, self.batches, self.pool, self.most = path, scenes, batches, pool, ahead
        self.ready = [path.vectors(scenes, views) for views in batches]
        self.out = path.draw(self.ready[0])

    def vectors(self, views: Views) -> Vectors:
        return self.path.vectors(self.scenes, views)

    def finish(self) -> None:
        if self.out.is_cuda:
            torch.cuda.synchronize()

    def draw(self) -> None:
        for vectors in self.ready:
            self.out = self.path.draw(vectors)
        self.finish()

    def cull(self) -> None:
        list(self.pool.map(self.vectors, self.batches))

    def both(self) -> None:
        ahead = deque[Future[Vectors]]()
        for views in self.batches:
            ahead.append(self.pool.submit(self.vectors, views))
            if len(ahead) > self.most:
                self.out = self.path.draw(ahead.popleft().result())
        while ahead:
            self.out = self.path.draw(ahead.popleft().result())
        self.finish()

    def fill(self) -> None:
        for _ in self.batches:
            self.out.fill_(7)
        self.finish()


def seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--map-type", default="py_semantic")
    parser.add_argument("--device", help="of PyTorch; the accelerator if there is one")
    parser.add_argument("--batch", type=int, help="rasters; 400, on the processor 16")
    parser.add_argument("--batches", type=int, help="of a round; 50, on the processor 2")
    parser.add_argument("--threads", type=int, default=8, help="that make vectors")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    device = device_of(options.device)
    small = torch.device(device).type == "cpu"
    batch, count = options.batch or (16 if small else 400), options.batches or (2 if small else 50)
    with FORMAT.open(options.folder / "single.zarr") as source:
        scenes = Scenes.of(source.frames[:], source.agents[:], source.tl_faces[:])
    raster = build_rasterizer(config(options.map_type), options.folder)
    batches = batches_of(scenes, count, batch)
    with ThreadPoolExecutor(options.threads) as pool:
        work = Work(VectorRasterizer(raster, device), scenes, batches, pool, 2 * options.threads)
        other = raster.rasterize_batch(scenes, batches[0].part(0, 16))
        differing = np.mean(np.abs(work.out[:16].cpu().numpy().astype(int) - other) > 64)
        print(f"values that differ from the processor's picture by more than a quarter (edges): {differing:.2%}")
        ways = {"draw": work.draw, "both": work.both, "vectors": work.cull, "fill": work.fill}
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(options.rounds):
            for name, way in ways.items():
                best[name] = min(best[name], seconds(way))
    print(
        f"{options.map_type}, batches of {batch}, {options.threads} threads, {work.ready[0].nbytes // batch} bytes each"
    )
    for name, took in best.items():
        figures.record(name, count * batch / took, "/s")
        print(f"{name:8} {count * batch / took:12.0f} rasters/s")
    if not small:
        print(f"goal: {GOAL} rasters/s drawn:", "reached" if count * batch / best["draw"] >= GOAL else "not reached")


if __name__ == "__main__":
    main()
