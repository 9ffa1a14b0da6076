"""Pack items end to end, and cut them where a bin is full.

One axis has its own loop, whose state is in registers. Pieces are counted also where the output has no room for them,
so a first call can ask for the count. The caller owns all arrays.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import IntArray
from penstock.kernels.jit import helper, kernel
from penstock.kernels.open_fit import aligned


def concat(
    length: IntArray,
    capacity: IntArray,
    align: int,
    most: int,
    head: int,
    whole: bool,
    index: IntArray,
    begin: IntArray,
    size: IntArray,
) -> tuple[int, int]:
    """Put one item behind another, cut where a bin is full on one axis.

    Piece `j` is `size[j]` rows of item `index[j, 1]` from `begin[j]` onwards, in bin `index[j, 0]`.
    """
    length, capacity = np.ascontiguousarray(length), np.ascontiguousarray(capacity)
    axes = length.shape[1]
    shapes = len(capacity), index.shape, begin.shape, size.shape
    if shapes != (axes, (len(index), 2), (len(index), axes), (len(index), axes)):
        raise ValueError(f"expected arrays for {axes} axes, got {shapes}")
    if min(align, most) < 1 or not 0 <= head < capacity.min():
        raise ValueError(f"expected bins with room behind {head} rows, for at least one piece, got {capacity.tolist()}")
    aside, room = np.empty(len(length) if whole else 0, np.int64), np.zeros((3, axes), np.int64)
    return _concat(length, capacity, align, most, head, whole, aside, room, index, begin, size)


@helper
def _is_full(size: IntArray, capacity: IntArray) -> bool:
    """Whether an item reaches a limit and exceeds none."""
    reaches, exceeds = False, False
    for a in range(len(size)):
        reaches |= size[a] == capacity[a]
        exceeds |= size[a] > capacity[a]
    return reaches and not exceeds


@helper
def _reached(used: IntArray, capacity: IntArray) -> bool:
    """Whether a bin is full on some axis."""
    reached = False
    for a in range(len(used)):
        reached |= used[a] >= capacity[a]
    return reached


@helper
def _note(
    index: IntArray, begin: IntArray, size: IntArray, piece: int, pack: int, item: int, done: IntArray, take: IntArray
) -> None:
    """Write down one piece; where there is no room, pieces are only counted."""
    if piece < len(index):
        index[piece, 0], index[piece, 1] = pack, item
        for a in range(len(take)):
            begin[piece, a], size[piece, a] = done[a], take[a]


@helper
def _concat_one(
    length: IntArray,
    capacity: int,
    align: int,
    most: int,
    head: int,
    whole: bool,
    aside: IntArray,
    index: IntArray,
    begin: IntArray,
    size: IntArray,
) -> tuple[int, int]:
    """The same for one axis, which is all in registers."""
    items, room = len(length), len(index)
    pieces = 0
    bins = 0
    in_bin = 0
    kept = 0
    used = np.int64(0)
    for i in range(items + 1):
        total, done = length[i, 0] if i < items else np.int64(0), np.int64(0)
        apart = whole and i < items and total == capacity
        while True:
            if (i == items and in_bin > 0) or in_bin == most or used >= capacity:
                bins += 1
                in_bin = 0
                used = 0
            if in_bin == 0 and (i == items or (bins > 0 and kept > 0)):
                for j in range(kept):
                    if pieces + j < room:
                        index[pieces + j, 0], index[pieces + j, 1] = bins + j, aside[j]
                        begin[pieces + j, 0], size[pieces + j, 0] = 0, capacity
                pieces += kept
                bins += kept
                kept = 0
            if i == items or apart:
                break
            reserved = head if 0 < done < total else 0
            take = min(total - done, capacity - used - reserved)
            used += aligned(take + reserved, align)
            if pieces < room:
                index[pieces, 0] = bins
                index[pieces, 1] = i
                begin[pieces, 0] = done
                size[pieces, 0] = take
            done += take
            pieces += 1
            in_bin += 1
            if done == total:
                break
        if apart:
            aside[kept] = i
            kept += 1
    return pieces, bins


@kernel("i8[2C] i8[1C] i8 i8 i8 b1 i8[1C] i8[2C] i8[2C] i8[2C] i8[2C]")
def _concat(  # noqa: PLR0912 - one loop, no calls to pay for
    length: IntArray,
    capacity: IntArray,
    align: int,
    most: int,
    head: int,
    whole: bool,
    aside: IntArray,
    room: IntArray,
    index: IntArray,
    begin: IntArray,
    size: IntArray,
) -> tuple[int, int]:
    """`aside` has a place for each item if items stay whole; `room` is `[3, axes]` zeros."""
    if length.shape[1] == 1:
        return _concat_one(length, capacity[0], align, most, head, whole, aside, index, begin, size)
    items, axes = length.shape
    used = room[0]
    done = room[1]
    take = room[2]
    pieces = 0
    bins = 0
    in_bin = 0
    kept = 0
    for i in range(items + 1):
        left, apart = True, False
        if whole and i < items:
            apart = _is_full(length[i], capacity)
        for a in range(axes):
            done[a] = 0
        while left:
            if (i == items and in_bin > 0) or in_bin == most or _reached(used, capacity):
                bins, in_bin = bins + 1, 0
                for a in range(axes):
                    used[a] = 0
            if in_bin == 0 and (i == items or (bins > 0 and kept > 0)):
                for j in range(kept):
                    _note(index, begin, size, pieces + j, bins + j, aside[j], used, length[aside[j]])
                pieces += kept
                bins += kept
                kept = 0
            if i == items or apart:
                break
            left = False
            for a in range(axes):
                reserved = head if 0 < done[a] < length[i, a] else 0
                take[a] = min(length[i, a] - done[a], capacity[a] - used[a] - reserved)
                used[a] += aligned(take[a] + reserved, align)
                left |= done[a] + take[a] < length[i, a]
            _note(index, begin, size, pieces, bins, i, done, take)
            for a in range(axes):
                done[a] += take[a]
            pieces += 1
            in_bin += 1
        if apart:
            aside[kept] = i
            kept += 1
    return pieces, bins
