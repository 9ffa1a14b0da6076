# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernel that packs items end to end and cuts them at full bins. Definition: `packing_reference.concat`.

One axis has its own loop, whose state is in registers. Pieces are counted also where the output has no room for them,
so a first call can ask for the count. The caller owns all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.jit import helper, kernel
from penstock.kernels.packing import aligned


@helper
def _is_full(size: Any, capacity: Any) -> Any:
    """Whether an item reaches a limit and exceeds none."""
    reaches, exceeds = False, False
    for a in range(len(size)):
        reaches |= size[a] == capacity[a]
        exceeds |= size[a] > capacity[a]
    return reaches and not exceeds


@helper
def _reached(used: Any, capacity: Any) -> Any:
    """Whether a bin is full on some axis."""
    reached = False
    for a in range(len(used)):
        reached |= used[a] >= capacity[a]
    return reached


@helper
def _note(index: Any, begin: Any, size: Any, piece: int, pack: int, item: int, done: Any, take: Any) -> None:
    """Write down one piece; where there is no room, pieces are only counted."""
    if piece < len(index):
        index[piece, 0], index[piece, 1] = pack, item
        for a in range(len(take)):
            begin[piece, a], size[piece, a] = done[a], take[a]


@helper
def _concat_one(
    length: Any, capacity: int, align: int, most: int, head: int, whole: bool, index: Any, begin: Any, size: Any
) -> Any:
    """The same for one axis, which is all in registers."""
    items, room = len(length), len(index)
    aside = np.empty(items if whole else 0, np.int64)
    pieces, bins, held, kept, used = 0, 0, 0, 0, np.int64(0)
    for i in range(items + 1):
        total, done = length[i, 0] if i < items else np.int64(0), np.int64(0)
        apart = whole and i < items and total == capacity
        while True:
            if (i == items and held > 0) or held == most or used >= capacity:
                bins, held, used = bins + 1, 0, 0
            if held == 0 and (i == items or (bins > 0 and kept > 0)):
                for j in range(kept):
                    if pieces + j < room:
                        index[pieces + j, 0], index[pieces + j, 1] = bins + j, aside[j]
                        begin[pieces + j, 0], size[pieces + j, 0] = 0, capacity
                pieces, bins, kept = pieces + kept, bins + kept, 0
            if i == items or apart:
                break
            reserved = head if 0 < done < total else 0
            take = min(total - done, capacity - used - reserved)
            used += aligned(take + reserved, align)
            if pieces < room:
                index[pieces, 0], index[pieces, 1], begin[pieces, 0], size[pieces, 0] = bins, i, done, take
            done, pieces, held = done + take, pieces + 1, held + 1
            if done == total:
                break
        if apart:
            aside[kept] = i
            kept += 1
    return pieces, bins


@kernel
def concat(  # noqa: PLR0912 - one loop, no calls to pay for
    length: Any, capacity: Any, align: int, most: int, head: int, whole: bool, index: Any, begin: Any, size: Any
) -> Any:
    """See `packing_reference.concat`."""
    if length.shape[1] == 1:
        return _concat_one(length, capacity[0], align, most, head, whole, index, begin, size)
    items, axes = length.shape
    used, done, take = np.zeros(axes, np.int64), np.zeros(axes, np.int64), np.zeros(axes, np.int64)
    aside = np.empty(items if whole else 0, np.int64)
    pieces, bins, held, kept = 0, 0, 0, 0
    for i in range(items + 1):
        left, apart = True, False
        if whole and i < items:
            apart = _is_full(length[i], capacity)
        for a in range(axes):
            done[a] = 0
        while left:
            if (i == items and held > 0) or held == most or _reached(used, capacity):
                bins, held = bins + 1, 0
                for a in range(axes):
                    used[a] = 0
            if held == 0 and (i == items or (bins > 0 and kept > 0)):
                for j in range(kept):
                    _note(index, begin, size, pieces + j, bins + j, aside[j], used, length[aside[j]])
                pieces, bins, kept = pieces + kept, bins + kept, 0
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
            held += 1
        if apart:
            aside[kept] = i
            kept += 1
    return pieces, bins
