"""How few packs can hold a set of items: the bound of Martello and Toth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import IntArray
from penstock.errors import PlanError


def lower_bound(lengths: npt.ArrayLike, capacity: int | tuple[int, ...]) -> int:
    """No way of packing `lengths` needs fewer packs: the bound L2; for several axes, the greatest of theirs.

    Arguments: `lengths`, `[n]` or `[n, A]` integers of 0 to `capacity`; `capacity` of each axis. Cost: a sort. Source:
    Martello and Toth, "Lower bounds and reduction procedures for the bin packing problem" (1990).
    """
    limits = np.atleast_1d(np.asarray(capacity, np.int64))
    rows = np.asarray(lengths)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.size and rows.shape[1:] != limits.shape:
        raise PlanError(f"expected lengths of {len(limits)} axes for capacity {capacity}, got {list(rows.shape)}")
    bounds = [0]
    for limit, column in zip(limits.tolist(), rows.T, strict=False):
        value, count = np.unique(column, return_counts=True)
        if len(value) and not (value[0] >= 0 and value[-1] <= limit):
            raise PlanError(f"expected lengths within 0 to {limit}, got {value[0]} to {value[-1]}")
        bounds.append(bound_of(value.astype(np.int64), count, limit))
    return max(bounds)


def bound_of(value: IntArray, count: IntArray, capacity: int) -> int:
    """The bound L2 for `count[j]` items of length `value[j]`, which increase and are within `0 : capacity + 1`.

    For each threshold `t` up to half the capacity: items longer than `capacity - t` and those longer than half each
    need one pack each, and only the latter leave room for the items of `t` to half; what exceeds it needs more.
    """
    items = np.concatenate([[0], np.cumsum(count)])
    rows = np.concatenate([[0], np.cumsum(value * count)])
    half = int(np.searchsorted(value, capacity // 2, side="right"))
    low = np.append(0, value[:half])
    long = np.searchsorted(value, capacity - low, side="right")
    middle, middle_rows = items[long] - items[half], rows[long] - rows[half]
    small = rows[half] - rows[np.searchsorted(value, low)]
    more = -(-(small - (middle * capacity - middle_rows)) // capacity)
    return int((items[-1] - items[half] + np.maximum(more, 0)).max())
