"""Scale rows of floats by a center and a width, one of each for every element: one pass, with NumPy's rounding.

NumPy takes two passes over new memory, and its inner loop ends with the last axis, which often has few elements.
Each operation rounds once, as NumPy's does: nothing is fused or reordered, so all bits are NumPy's. The caller owns
all arrays.
"""

from __future__ import annotations

from penstock.core.arrays import FloatingArray, read_only
from penstock.kernels.jit import kernel


def scale_rows(
    rows: FloatingArray, center: FloatingArray, width: FloatingArray, inverted: bool, out: FloatingArray
) -> None:
    """Write `(rows - center) / width`, or `rows * width + center` if `inverted`."""
    if not rows.shape == out.shape == (len(rows), len(center)) or len(center) != len(width):
        raise ValueError(f"expected a center and a width for {rows.shape[1:]} numbers, got {center.shape}, {out.shape}")
    (_unscale if inverted else _scale)(read_only(rows), read_only(center), read_only(width), out)


def overwrite_rows(rows: FloatingArray, center: FloatingArray, width: FloatingArray, inverted: bool) -> None:
    """Replace rows by what `scale_rows` makes of them. No other memory is touched, which is what costs most."""
    if not rows.shape[1:] == center.shape == width.shape:
        raise ValueError(f"expected a center and a width for {rows.shape[1:]} numbers, got {center.shape}")
    (_overwrite_back if inverted else _overwrite)(rows, read_only(center), read_only(width))


@kernel("f4[2C] f4[1Cr] f4[1Cr]", "f8[2C] f8[1Cr] f8[1Cr]")
def _overwrite(rows: FloatingArray, center: FloatingArray, width: FloatingArray) -> None:
    """Apart from `_scale`: input and output that overlap would not be vectorized there."""
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            rows[i, d] = (rows[i, d] - center[d]) / width[d]


@kernel("f4[2C] f4[1Cr] f4[1Cr]", "f8[2C] f8[1Cr] f8[1Cr]")
def _overwrite_back(rows: FloatingArray, center: FloatingArray, width: FloatingArray) -> None:
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            rows[i, d] = rows[i, d] * width[d] + center[d]


@kernel("f4[2Cr] f4[1Cr] f4[1Cr] f4[2C]", "f8[2Cr] f8[1Cr] f8[1Cr] f8[2C]")
def _scale(rows: FloatingArray, center: FloatingArray, width: FloatingArray, out: FloatingArray) -> None:
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[i, d] = (rows[i, d] - center[d]) / width[d]


@kernel("f4[2Cr] f4[1Cr] f4[1Cr] f4[2C]", "f8[2Cr] f8[1Cr] f8[1Cr] f8[2C]")
def _unscale(rows: FloatingArray, center: FloatingArray, width: FloatingArray, out: FloatingArray) -> None:
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[i, d] = rows[i, d] * width[d] + center[d]
