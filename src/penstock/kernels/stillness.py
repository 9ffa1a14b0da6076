"""Mark rows that change little, compared with the range of the values of their episode.

NumPy needs nine passes over new arrays of float64, and its inner loop ends with the few elements of a row: it took half
of the time of a check. Here a first pass finds the range of each element in an episode, and a second one compares
neighbours while the episode is in the cache. Values are compared as float64. NaN in an element leaves it no range, so
no row of that episode is still. The caller owns all arrays.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import BoolArray, FloatArray, FloatingArray, IntArray, read_only
from penstock.kernels.jit import kernel


def mark_still(rows: FloatingArray, bounds: IntArray, share: float, out: BoolArray) -> None:
    """Write for each row whether no element differs from the row before by more than a share of its range.

    The first row of an episode is marked as its second row. The row of an episode of one row is not marked.
    """
    if len(rows) != len(out) or not len(bounds) or bounds[0] != 0 or bounds[-1] != len(rows):
        raise ValueError(f"expected bounds from 0 to {len(rows)} and as many marks, got {bounds} and {len(out)}")
    if (np.diff(bounds) < 0).any():
        raise ValueError("expected bounds that ascend")
    limits = np.empty((2, rows.shape[1]))
    _mark_still(read_only(rows), read_only(bounds), float(share), limits[0], limits[1], out)


@kernel("f4[2Cr] i8[1Cr] f8 f8[1C] f8[1C] b1[1C]", "f8[2Cr] i8[1Cr] f8 f8[1C] f8[1C] b1[1C]")
def _mark_still(
    rows: FloatingArray, bounds: IntArray, share: float, low: FloatArray, high: FloatArray, out: BoolArray
) -> None:
    for e in range(len(bounds) - 1):
        first, end = bounds[e], bounds[e + 1]
        for d in range(rows.shape[1]):
            low[d] = np.inf
            high[d] = -np.inf
        for i in range(first, end):
            for d in range(rows.shape[1]):
                value = np.float64(rows[i, d])
                low[d] = np.minimum(low[d], value)  # NaN stays
                high[d] = np.maximum(high[d], value)
        for d in range(rows.shape[1]):  # from here on: the largest change
            low[d] = share * (high[d] - low[d])
        for i in range(first + 1, end):
            still = True
            for d in range(rows.shape[1]):
                still &= abs(np.float64(rows[i, d]) - np.float64(rows[i - 1, d])) <= low[d]
            out[i] = still
        if end > first + 1:
            out[first] = out[first + 1]
        elif end > first:
            out[first] = False
