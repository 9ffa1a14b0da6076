"""Gather and count lengths of items that are stored in runs.

Runs are at random places, so reading one waits for memory: the start of the eighth run after the current one is
prefetched, and memory answers several runs at a time. The loops stop at the first run that leaves the lengths. The
caller owns all arrays.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Int32Array, IntArray, read_only
from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import helper, kernel

_DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
_AHEAD = 8  # runs that are asked for before they are read

Lengths: TypeAlias = npt.NDArray[np.integer[Any]]
"""Lengths of items, in the integers that a source stores them in."""


def gather_runs(length: Lengths, start: IntArray, size: IntArray, out: IntArray) -> None:
    """Write the lengths `start[j] : start[j] + size[j]` of each run to `out`, one run after another."""
    _require_pairs(start, size)
    wrong = _gather_runs(read_only(length), start, size, out)
    if wrong >= 0:
        raise IndexError(_outside(wrong, start, size, len(length)))


def histogram(length: Lengths, start: IntArray, size: IntArray, out: Int32Array) -> bool:
    """Add the number of lengths of each value `v` in runs to `out[v]`."""
    _require_pairs(start, size)
    stopped = _histogram(read_only(length), start, size, out)
    if stopped >= 0:
        raise IndexError(_outside(stopped, start, size, len(length)))
    return stopped == _ALL_COUNTED


def _require_pairs(start: IntArray, size: IntArray) -> None:
    if len(start) != len(size):
        raise ValueError(f"expected one size for each of {len(start)} starts, got {len(size)}")


def _outside(j: int, start: IntArray, size: IntArray, n: int) -> str:
    return f"expected runs within 0:{n} and room for them, got {size[j]} from {start[j]} onwards in run {j}"


_ALL_COUNTED, _OTHERS = -1, -2


@helper
def _ask(length: Lengths, start: IntArray, size: IntArray, j: int) -> None:
    """Prefetch the start of run `j`, if it exists."""
    if j < len(start):
        each = length.itemsize
        first = np.int64(length.ctypes.data) + each * start[j]
        for line in range(first & -64, first + min(each * size[j], 512), 64):
            prefetch(line)


@kernel(*(f"{dtype}[1Cr] i8[1C] i8[1C] i8[1C]" for dtype in _DTYPES))
def _gather_runs(length: Lengths, start: IntArray, size: IntArray, out: IntArray) -> int:
    m = 0
    for j in range(len(start)):
        _ask(length, start, size, j + _AHEAD)
        if not 0 <= size[j] <= len(length) or not 0 <= start[j] <= len(length) - size[j] or size[j] > len(out) - m:
            return j
        for i in range(start[j], start[j] + size[j]):
            out[m] = np.int64(length[i])
            m += 1
    return -1


@kernel(*(f"{dtype}[1Cr] i8[1C] i8[1C] i4[1C]" for dtype in _DTYPES))
def _histogram(length: Lengths, start: IntArray, size: IntArray, out: Int32Array) -> int:
    for j in range(len(start)):
        _ask(length, start, size, j + _AHEAD)
        if not 0 <= size[j] <= len(length) or not 0 <= start[j] <= len(length) - size[j]:
            return j
        for i in range(start[j], start[j] + size[j]):
            value = np.int64(length[i])
            if not 0 <= value < len(out):
                return _OTHERS
            out[value] += 1
    return _ALL_COUNTED
