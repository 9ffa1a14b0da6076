"""Fit items of several axes into a bounded number of open bins, in the order they come.

Each item looks at all open bins, which are few, in order of age. A bin closes when it is full, holds the most items, or
has less room than any item needs; where too many are open, the oldest is emitted. The caller owns all
arguments.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import FloatArray, IntArray, IntScalar
from penstock.kernels.jit import helper, kernel


def open_fit(
    length: IntArray,
    capacity: IntArray,
    scale: FloatArray,
    least: IntArray,
    align: int,
    most: int,
    keep: int,
    best: bool,
    block: bool,
    out: IntArray,
) -> int:
    """Put items into at most `keep` open bins by first or best fit.

    An item fits where, on each axis, the next multiple of `align` plus its length is within `capacity`. Best is the
    bin with the least room, summed over the axes with weights `scale`; of equal ones, and in first fit, the oldest.
    Bins are numbered as they are emitted: a bin at once when it is full on every axis, holds `most` items, or has less
    than `least` room on some axis; the oldest when another item comes while more than `keep` are open; the rest at the
    end, oldest first.
    """
    length, capacity, least = (np.ascontiguousarray(array) for array in (length, capacity, least))
    scale = np.ascontiguousarray(scale)
    shapes = len(out), len(capacity), len(scale), len(least)
    if shapes != (len(length), *(length.shape[1],) * 3) or min(align, most, keep) < 1:
        raise ValueError(f"expected arrays for lengths {length.shape} and numbers of at least 1, got {shapes}")
    used, bins = np.empty((keep + 1, length.shape[1]), np.int64), np.empty((2, keep + 1), np.int64)
    emitted = np.empty(len(length), np.int64)
    return _open_fit(length, capacity, scale, least, align, most, keep, best, block, used, bins, emitted, out)


@helper
def aligned(rows: IntScalar, align: int) -> IntScalar:
    """Round up to a multiple; the division is most of the time where there is nothing to align."""
    return rows if align == 1 else (rows + align - 1) // align * align


@helper
def _emit(bins: IntArray, begin: int, end: int, emitted: IntArray, done: int) -> int:
    for j in range(begin, end):
        emitted[bins[j]] = done
        done += 1
    return done


@helper
def _choose(
    used: IntArray,
    items_in: IntArray,
    open_: int,
    length: IntArray,
    i: int,
    capacity: IntArray,
    scale: FloatArray,
    most: int,
    best: bool,
) -> int:
    """The bin of `0 : open_` for item `i`, or -1: the first that has room, or the one with the least of it."""
    chosen, least = -1, np.inf
    for j in range(open_):
        if items_in[j] == most:
            continue
        fits, space = True, 0.0
        for a in range(len(capacity)):
            fits &= used[j, a] + length[i, a] <= capacity[a]
            space += (capacity[a] - used[j, a]) * scale[a]
        if fits and space < least:
            chosen, least = j, space
            if not best:
                break
    return chosen


@kernel("i8[2C] i8[1C] f8[1C] i8[1C] i8 i8 i8 b1 b1 i8[2C] i8[2C] i8[1C] i8[1C]")
def _open_fit(
    length: IntArray,
    capacity: IntArray,
    scale: FloatArray,
    least: IntArray,
    align: int,
    most: int,
    keep: int,
    best: bool,
    block: bool,
    used: IntArray,
    numbers: IntArray,
    emitted: IntArray,
    out: IntArray,
) -> int:
    """`used`, `numbers` and `emitted` are room for the open bins, and for the number of each bin once it is emitted."""
    items, axes = length.shape
    items_in, bins = numbers[0], numbers[1]
    opened = 0
    open_ = 0
    done = 0
    for i in range(items):
        if open_ > keep:  # at most one: each item opens one bin
            done = _emit(bins, 0, 1, emitted, done)
            open_ = _remove(used, items_in, bins, 0, open_)
        j = _choose(used, items_in, open_, length, i, capacity, scale, most, best)
        if j < 0:
            if block and open_ == keep:
                done = _emit(bins, 0, open_, emitted, done)
                open_ = 0
            j = open_
            for a in range(axes):
                used[j, a] = 0
            items_in[j], bins[j] = 0, opened
            opened += 1
            open_ += 1
        out[i] = bins[j]
        items_in[j] += 1
        full, closed = True, items_in[j] == most
        for a in range(axes):
            used[j, a] += aligned(length[i, a], align)
            full &= used[j, a] >= capacity[a]
            closed |= capacity[a] - used[j, a] < least[a]
        if (full or closed) and not block:
            done = _emit(bins, j, j + 1, emitted, done)
            open_ = _remove(used, items_in, bins, j, open_)
    _emit(bins, 0, open_, emitted, done)
    for i in range(items):
        out[i] = emitted[out[i]]
    return opened


@helper
def _remove(used: IntArray, items_in: IntArray, bins: IntArray, gone: int, open_: int) -> int:
    for j in range(gone, open_ - 1):
        for a in range(used.shape[1]):
            used[j, a] = used[j + 1, a]
        items_in[j], bins[j] = items_in[j + 1], bins[j + 1]
    return open_ - 1
