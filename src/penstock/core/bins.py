"""Bins of equal width, for histograms."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import FloatArray, IntArray


def equal_bins(
    values: FloatArray, bins: int, low: float, high: float, counts: IntArray | None = None
) -> tuple[IntArray, FloatArray]:
    """Count values in bins of equal width. Edges may be equal where floats between the ends are too few."""
    share = np.arange(bins + 1) / bins
    edges = np.maximum.accumulate((low * (1 - share) + high * share).clip(low, high))  # no difference overflows
    edges[-1] = high
    number = np.searchsorted(edges, values, "right") - 1
    binned = np.zeros(bins, np.int64)
    np.add.at(binned, number.clip(0, bins - 1), 1 if counts is None else counts)
    return binned, edges
