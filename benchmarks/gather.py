"""What fetching costs: spans out of arrays and out of tiles, against NumPy in the same run.

Claims: one thread gathers 3 M windows/s of 16 steps by 3 columns from an array in cache, planning included, and
4 M single records/s at random out of memory; image rows cut into byte tiles come at 100 k rows/s.

    python benchmarks/gather.py [--small]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import figures
import numpy as np

from penstock.core.selection import Selection
from penstock.kernels.rows import RowMap
from penstock.kernels.tiles import TileMap
from penstock.plan import Episodes, Shuffle, Windows

BLOCK = 4096


def best(call: Callable[[int], object], repeats: int = 30) -> float:
    call(0)
    times: list[float] = []
    for i in range(1, repeats + 1):
        begin = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - begin)
    return min(times)


def line(what: str, rate: str, ratio: float | None = None) -> None:
    print(f"{what:<42}{rate:>28}" + ("" if ratio is None else f"{ratio:>8.2f} x NumPy, same rows in one array"))


def windows_of_three_columns(steps: int) -> None:
    """`steps` rows of 64, 8 and 4 bytes."""
    lengths = np.full(steps // 1000, 1000)
    columns = {
        "observations": np.zeros((steps, 16), "f4"),
        "actions": np.zeros((steps, 2), "f4"),
        "rewards": np.zeros(steps, "f4"),
    }
    for column in columns.values():
        column[...] = 1
    maps = {path: RowMap.of(array) for path, array in columns.items()}
    zeros = np.zeros(len(lengths), np.int64)
    episodes = Episodes(
        zeros, np.arange(len(lengths)), np.cumsum(lengths) - lengths, lengths, dict.fromkeys(columns, "step"), "x"
    )
    plan = Shuffle(0).reorder(Windows(16).plan(episodes))
    out = {path: np.zeros((256 * 16, *a.shape[1:]), a.dtype).reshape(-1).view(np.uint8) for path, a in columns.items()}

    def block(i: int) -> None:
        (selection,) = plan.resolve(np.arange(i * BLOCK, (i + 1) * BLOCK))
        for lo in range(0, BLOCK, 256):
            batch = selection.samples(lo, lo + 256)
            for path, rows in maps.items():
                rows.gather(batch.start, batch.length, batch.destination, out[path])

    def fancy(i: int) -> None:
        (selection,) = plan.resolve(np.arange(i * BLOCK, (i + 1) * BLOCK))
        for lo in range(0, BLOCK, 256):
            rows = selection.samples(lo, lo + 256).start[:, None] + np.arange(16)
            for array in columns.values():
                array[rows]

    ours, numpys = best(block), best(fancy)
    size = sum(a.nbytes for a in columns.values()) / 1e6
    name = "windows.cached" if size < 100 else "windows.memory"
    figures.record(name, BLOCK / ours, "/s")
    figures.record(f"{name}.numpy", numpys / ours, "x")
    line(f"windows of 16 x 3 columns, {size:,.0f} MB", f"{BLOCK / ours / 1e6:.2f} M windows/s", numpys / ours)


def records(row_bytes: int, megabytes: int) -> None:
    array = np.ones((megabytes * 1_000_000 // row_bytes, row_bytes), np.uint8)
    rng = np.random.default_rng(0)
    rows = RowMap.of(array)
    picks = [rng.integers(0, len(array), BLOCK) for _ in range(31)]
    one, at, out = np.ones(BLOCK, np.int64), np.arange(BLOCK), np.zeros((BLOCK, row_bytes), np.uint8)
    ours = best(lambda i: rows.gather(picks[i], one, at, out))
    others = [rng.integers(0, len(array), BLOCK) for _ in range(31)]
    numpys = best(lambda i: np.take(array, others[i], axis=0, out=out, mode="clip"))
    figures.record(f"rows.{row_bytes}.{megabytes}", BLOCK / ours, "/s")
    figures.record(f"rows.{row_bytes}.{megabytes}.numpy", numpys / ours, "x")
    line(f"single rows of {row_bytes} bytes, {megabytes} MB", f"{BLOCK / ours / 1e6:.2f} M rows/s", numpys / ours)


def overhead() -> None:
    rows = RowMap.of(np.zeros((100, 8), np.uint8))
    one, out = np.ones(1, np.int64), np.zeros((1, 8), np.uint8)
    seconds = best(lambda _: [rows.gather(one, one, one - 1, out) for _ in range(1000)]) / 1000
    figures.record("call", seconds, "s")
    line("one call for one row", f"{seconds * 1e6:.2f} us")


def tiled(name: str, steps: int, row_shape: tuple[int, ...], tile: tuple[int, ...], dtype: str) -> None:
    itemsize = np.dtype(dtype).itemsize
    grid = [-(-n // c) for n, c in zip((steps, *row_shape), tile, strict=True)]
    count, size = int(np.prod(grid)), int(np.prod(tile)) * itemsize
    buffer = np.ones(count * size, np.uint8)
    zero = np.zeros(count, np.int64)
    ends = np.array([0, steps]), np.array([tile]), np.array([0, count])
    tiles = TileMap.build([buffer], row_shape, itemsize, *ends, zero, np.arange(count) * size, bytes(itemsize))
    dense = np.ones((steps, tiles.row_bytes), np.uint8)
    rng = np.random.default_rng(0)
    picks = [np.sort(rng.integers(0, steps, 256)) for _ in range(31)]
    one, at, out = np.ones(256, np.int64), np.arange(256), np.zeros((256, tiles.row_bytes), np.uint8)
    ours = best(lambda i: tiles.gather(picks[i], one, at, out))
    numpys = best(lambda i: np.take(dense, picks[i], axis=0, out=out, mode="clip"))
    figures.record(f"tiles.{row_shape[0]}", 256 / ours, "/s")
    figures.record(f"tiles.{row_shape[0]}.numpy", numpys / ours, "x")
    line(name, f"{256 / ours / 1e3:.0f} k rows/s, {256 * tiles.row_bytes / ours / 1e9:.1f} GB/s", numpys / ours)


def selection_costs() -> None:
    n = np.arange(BLOCK)
    selection = Selection(n * 0, n, n * 0 + 16, n * 16, (BLOCK, 16))
    line("samples(256, 512)", f"{best(lambda _: selection.samples(256, 512)) * 1e6:.2f} us")
    batch = selection.samples(256, 512)
    line("mask of 256 windows of 16", f"{best(lambda _: batch.mask()) * 1e6:.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="arrays of a hundredth of the size")
    size = 100 if parser.parse_args().small else 1
    overhead()
    selection_costs()
    windows_of_three_columns(20_000)
    windows_of_three_columns(20_000_000 // size)
    for row_bytes in (8, 68, 1024):
        records(row_bytes, 1)
        records(row_bytes, 1500 // size)
    tiled("frames 84x84x4 in tiles 63x21x21x1", 5000 // size, (84, 84, 4), (63, 21, 21, 1), "u1")
    tiled("frames 210x160x3 in tiles 32x27x40x1", 1000 // size, (210, 160, 3), (32, 27, 40, 1), "u1")
    tiled("17 doubles in tiles 126x5", 200_000 // size, (17,), (126, 5), "f8")
    tiled("whole rows in tiles 100x17", 200_000 // size, (17,), (100, 17), "f8")


if __name__ == "__main__":
    main()
