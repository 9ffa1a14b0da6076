"""Memory bandwidth of this machine, to compare the stages of a loader with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.kernels.rows import RowMap

COPIED = 32 << 20  # bytes of one copy: larger than caches, as jobs are
GATHERED = 128 << 20  # bytes that rows are drawn from at random
ROWS = 1 << 16  # rows drawn, at most
REPEATS = 5


@dataclass(frozen=True)
class Roofline:
    """Bytes a second on one thread."""

    memcpy: float
    gather: float


def measure_roofline(row_bytes: int) -> Roofline:
    """Measure the memory bandwidth. Cost: 200 MB and some tenths of a second."""
    source, out = np.ones(COPIED, np.uint8), np.empty(COPIED, np.uint8)
    memcpy = COPIED / _best(lambda: np.copyto(out, source))
    return Roofline(memcpy, _gather(max(1, min(row_bytes, COPIED)), out))


def _gather(row_bytes: int, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> float:
    table = np.ones((GATHERED // row_bytes, row_bytes), np.uint8)
    n = min(COPIED // row_bytes, ROWS)
    rows = RowMap.of(table)
    start = np.random.default_rng(0).integers(0, len(table), n)
    one = np.ones(n, np.int64)
    sample_rows = np.arange(n)
    room = out[: n * row_bytes]
    return len(room) / _best(lambda: rows.gather(start, one, sample_rows, room))


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest call, after one that is not counted."""
    work()
    return min(_seconds(work) for _ in range(REPEATS))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
