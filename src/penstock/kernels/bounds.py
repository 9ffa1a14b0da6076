"""Say whether values are within bounds, and which the least and the greatest are, in one pass.

NumPy takes five calls and three arrays for it: for the few values of a short episode that is most of the cost of a
check, and for many values they are further passes over memory.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray
from penstock.kernels.jit import kernel

KINDS = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
DTYPES = frozenset(np.dtype(kind) for kind in KINDS)


def are_within(values: AnyArray, low: AnyArray, high: AnyArray) -> bool:
    """Whether all values of an array are within bounds, of which there is one for each element of a row.

    NaN is not, nor are values that are no whole rows.
    """
    return _are_within(np.ascontiguousarray(values).reshape(-1), low, high)


@kernel(*(f"{kind}{array} {kind}[1C] {kind}[1C]" for kind in KINDS for array in ("[1C]", "[1Cr]")))
def _are_within(values: AnyArray, low: AnyArray, high: AnyArray) -> bool:
    width = len(low)
    if width == 0 or len(high) != width or len(values) % width:
        return False
    within = True
    if width == 1:  # a loop over one element would not be vectorized
        least, most = low[0], high[0]
        for i in range(len(values)):
            within &= (values[i] >= least) & (values[i] <= most)
        return within
    for first in range(0, len(values), width):
        for j in range(width):
            within &= (values[first + j] >= low[j]) & (values[first + j] <= high[j])
    return within


def extremes(values: FloatArray) -> tuple[float, float]:
    """Return the least and the greatest number of `[n]`, or NaN for both if there is NaN or none."""
    return _extremes(np.ascontiguousarray(values, np.float64))


@kernel("f8[1C]", "f8[1Cr]")
def _extremes(values: FloatArray) -> tuple[float, float]:
    least = most = values[0] if len(values) else np.nan
    for i in range(len(values)):
        value = values[i]
        if np.isnan(value):
            return np.nan, np.nan
        least = value if value < least else least
        most = value if value > most else most
    return least, most
