"""Moments, extremes and histograms of columns, exact enough that no partition of the rows changes them.

What a column gets is the same for any order of its leaves, for any number of threads, and for any way to cut the data
into parts that are merged later. A *leaf* is a run of rows that is never cut, such as 1,024 steps of one episode.

* *Moments.* Within a leaf, `c` is its first finite value without the lower 32 bits, and the sums `p` of `x - c` and `q`
  of `(x - c)^2` are added up as float64, in an order that the shape of the leaf fixes. The offset `c` keeps the digits
  of values that are far from zero, such as times. A leaf of `n` values contributes `p + n c` to the sum, and
  `q + 2 c p + n c^2` to the sum of squares. These terms are split into float64 without error (Dekker, "A floating-point
  technique for extending the available precision", 1971) and added to a fixed-point number of 2,176 bits (Kulisch),
  which has no rounding. So only `p` and `q` are rounded, with a relative error below `n * 2**-53`. Most terms have no
  error, because `c` has 21 significant bits. The square of a value of `2**480` or more could exceed a float64. It is
  added apart, scaled by `2**-1024`, to the upper limbs of the sum of squares.
* *Histograms* are counts of fixed buckets, which add up: see `histograms`.

Rows are not transposed. `k` rows of `D` numbers are one *wide row* of `k * D` lanes, and wide rows are added lane by
lane, four in a step, so that one instruction adds 8 numbers for any `D`. The lanes of a column are added at the end of
the leaf. Columns whose leaf has a value that is not finite are added again, one value at a time.

The caller owns all arrays. Rows are `[n, D]`: `D` numbers of a row are separate unless the caller reshapes.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, FloatingArray, IntArray, UInt16Array, UInt32Array, read_only
from penstock.errors import PlanError
from penstock.kernels.histograms import BUCKETS, count_values, key_buffer
from penstock.kernels.jit import helper, kernel

LIMBS = 68
"""Limbs of a fixed-point number: 32 bits each in an int64, the lowest first. The lowest bit is worth `2**LOWEST`."""
LOWEST = -1120
SQUARE_LIMBS = LIMBS + 32
"""Limbs of a sum of squares: squares that are scaled by `2**-1024` are added 32 limbs higher."""
LARGEST = 2.0**480
"""Values of at least this size are added one at a time: sums of their squares could exceed a float64."""
MOST_LEAVES = 1 << 26
"""Leaves that may be added between two calls of `carry`: six terms of a leaf add less than `2**35` to a limb."""
LANES = 256
"""Least number of lanes of a wide row of long leaves: loops over fewer take longer for each number."""
GROUP = 1 << 15
"""Values whose buckets are counted together, at least: they are still in the cache after their moments."""
# Rows of `special`: how many values are NaN, and infinite with either sign.
NANS = 0
POSITIVE = 1
NEGATIVE = 2


def summarize(
    values: FloatingArray,
    leaves: IntArray,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
    special: IntArray,
    low: FloatArray,
    high: FloatArray,
    tables: UInt32Array,
) -> None:
    """Add rows to the figures of a column."""
    n, d = values.shape
    shapes = (sums.shape, squares.shape, count.shape, special.shape, low.shape, high.shape, tables.shape[1:])
    if shapes != ((d, LIMBS), (d, SQUARE_LIMBS), (d,), (3, d), (d,), (d,), (BUCKETS,)) or not len(tables):
        raise PlanError(f"expected the figures of {d} numbers a row, got arrays of {[*shapes, tables.shape]}")
    if len(leaves) < 1 or leaves[0] < 0 or leaves[-1] > n or np.any(leaves[1:] < leaves[:-1]):
        raise PlanError(f"expected increasing bounds of leaves within {n} rows, got {leaves[:3]} to {leaves[-1:]}")
    flat = read_only(values.reshape(-1))
    lanes, ends = np.empty((3, max(LANES, d))), np.empty((2, max(LANES, d)), values.dtype)
    keys = key_buffer(tables, GROUP)
    _summarize(flat, d, leaves, sums, squares, count, special, low, high, tables, lanes, ends, keys)


def carry(limbs: IntArray) -> None:
    """Bring all limbs but the last of fixed-point numbers `[D, limbs]` into `0 .. 2**32`: the numbers stay the same."""
    for i in range(limbs.shape[1] - 1):
        limbs[:, i + 1] += limbs[:, i] >> 32
        limbs[:, i] &= (1 << 32) - 1


def total(limbs: IntArray) -> list[int]:
    """Return fixed-point numbers `[D, limbs]` as whole multiples of `2**LOWEST`."""
    return [sum(limb << (32 * i) for i, limb in enumerate(row)) for row in limbs.tolist()]


@helper
def _add(limbs: IntArray, x: float, up: int = 0) -> None:
    """Add a finite number to a fixed-point number, `up` limbs higher than its size: its 53 bits go to three limbs.

    `|x| < 2**1024` and its lowest bit is worth at least `2**-1074`, so the limbs are within bounds. Each limb
    grows by less than `2**32`, so `2**30` additions fit before `carry`.
    """
    if x == 0:
        return
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent:
        mantissa |= 1 << 52
    else:
        exponent = 1
    place = exponent - 1075 - LOWEST
    limb = (place >> 5) + up
    shift = place & 31
    low = (mantissa & 0xFFFFFFFF) << shift  # below 2**63
    high = (mantissa >> 32) << shift  # below 2**52
    sign = -1 if bits < 0 else 1
    limbs[limb] += sign * (low & 0xFFFFFFFF)
    limbs[limb + 1] += sign * ((low >> 32) + (high & 0xFFFFFFFF))
    limbs[limb + 2] += sign * (high >> 32)


@helper
def _add_product(limbs: IntArray, a: float, b: float, up: int = 0) -> None:
    """Add `a * b` without rounding: the product and its error, by Dekker's method. `|a|, |b| < 2**520`."""
    product = a * b
    big_a = 134217729.0 * a  # 2**27 + 1 splits 53 bits into halves
    upper_a = big_a - (big_a - a)
    lower_a = a - upper_a
    big_b = 134217729.0 * b
    upper_b = big_b - (big_b - b)
    lower_b = b - upper_b
    error = lower_a * lower_b - (((product - upper_a * upper_b) - lower_a * upper_b) - upper_a * lower_b)
    _add(limbs, product, up)
    _add(limbs, error, up)


@helper
def _close_leaf(
    j: int,
    n: int,
    c: float,
    p: float,
    q: float,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
) -> None:
    """Add the figures of a leaf to the figures of column `j`: see the opening comment."""
    count[j] += n
    _add(sums[j], p)
    _add(sums[j], n * c)  # without rounding, as c has 21 bits
    _add(squares[j], q)
    _add_product(squares[j], 2 * c, p)
    shift = 0
    while n >> shift:  # 11 bits of the count and 42 of the square: products without rounding
        _add(squares[j], (((n >> shift) & 2047) << shift) * (c * c))
        shift += 11


@helper
def _offset(x: float) -> float:
    """Return a value with 21 significant bits; 0 for one that is not finite, or too large."""
    if not abs(x) < LARGEST:
        return 0.0
    return np.int64((np.float64(x).view(np.int64) >> 32) << 32).view(np.float64)


@helper
def _add_wide_rows(
    values: FloatingArray, begin: int, end: int, width: int, c: FloatArray, p: FloatArray, q: FloatArray, ends: AnyArray
) -> None:
    """Add `values[begin:end]` to lanes, place `i` to lane `i % width`. Lanes are sums, and the extremes `ends`."""
    low = ends[0]
    high = ends[1]
    first = begin
    while end - first >= 4 * width:
        w0 = values[first : first + width]
        w1 = values[first + width : first + 2 * width]
        w2 = values[first + 2 * width : first + 3 * width]
        w3 = values[first + 3 * width : first + 4 * width]
        for j in range(width):
            x0 = w0[j]
            x1 = w1[j]
            x2 = w2[j]
            x3 = w3[j]
            y0 = x0 - c[j]
            y1 = x1 - c[j]
            y2 = x2 - c[j]
            y3 = x3 - c[j]
            p[j] += (y0 + y1) + (y2 + y3)
            q[j] += (y0 * y0 + y1 * y1) + (y2 * y2 + y3 * y3)
            # In this form, a minimum is one instruction. A NaN may be lost here; the sums keep it.
            a = x0 if x0 < x1 else x1
            b = x2 if x2 < x3 else x3
            a = a if a < b else b
            low[j] = a if a < low[j] else low[j]
            a = x0 if x0 > x1 else x1
            b = x2 if x2 > x3 else x3
            a = a if a > b else b
            high[j] = a if a > high[j] else high[j]
        first += 4 * width
    while first < end:
        w0 = values[first : min(first + width, end)]
        for j in range(len(w0)):
            x0 = w0[j]
            y0 = x0 - c[j]
            p[j] += y0
            q[j] += y0 * y0
            low[j] = x0 if x0 < low[j] else low[j]
            high[j] = x0 if x0 > high[j] else high[j]
        first += width


@helper
def _add_finite(
    values: FloatingArray,
    begin: int,
    n: int,
    d: int,
    j: int,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
    special: IntArray,
    low: FloatArray,
    high: FloatArray,
) -> None:
    """Add a leaf of `n` rows to the figures of column `j`, and large values, NaN and infinities apart."""
    finite = 0
    c = 0.0
    p = 0.0
    q = 0.0
    least = low[j]
    greatest = high[j]
    for i in range(n):
        x = np.float64(values[begin + i * d + j])
        if abs(x) < LARGEST:
            if finite == 0:
                c = _offset(x)
            finite += 1
            p += x - c
            q += (x - c) * (x - c)
            least = x if x < least else least
            greatest = x if x > greatest else greatest
        elif abs(x) < np.inf:
            count[j] += 1
            _add(sums[j], x)
            _add_product(squares[j], x * 2.0**-512, x * 2.0**-512, SQUARE_LIMBS - LIMBS)
            least = x if x < least else least
            greatest = x if x > greatest else greatest
        elif x > 0:
            special[POSITIVE, j] += 1
        elif x < 0:
            special[NEGATIVE, j] += 1
        else:
            special[NANS, j] += 1
    low[j] = least
    high[j] = greatest
    if finite:
        _close_leaf(j, finite, c, p, q, sums, squares, count)


@helper
def _add_leaf(
    values: FloatingArray,
    begin: int,
    n: int,
    d: int,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
    special: IntArray,
    low: FloatArray,
    high: FloatArray,
    lanes: FloatArray,
    ends: AnyArray,
) -> bool:
    """Add a leaf of `n` rows to the figures of its columns. Returns whether all values are finite and not too large."""
    k = max(
        1, min(LANES // d, n // 16)
    )  # rows of a wide row: few for a short leaf, whose lanes cost more than its rows
    width = k * d
    c = lanes[0]
    p = lanes[1]
    q = lanes[2]
    for t in range(k):
        for j in range(d):
            c[t * d + j] = _offset(values[begin + j])
    for j in range(width):
        p[j] = 0
        q[j] = 0
        ends[0, j] = np.inf
        ends[1, j] = -np.inf
    _add_wide_rows(values, begin, begin + n * d, width, c, p, q, ends)
    finite = True
    for j in range(d):
        a = 0.0
        b = 0.0
        least = np.inf
        greatest = -np.inf
        for t in range(j, width, d):
            a += p[t]
            b += q[t]
            least = min(least, np.float64(ends[0, t]))
            greatest = max(greatest, np.float64(ends[1, t]))
        if not np.isnan(a) and least > -LARGEST and greatest < LARGEST:
            low[j] = min(low[j], least)
            high[j] = max(high[j], greatest)
            _close_leaf(j, n, c[j], a, b, sums, squares, count)
        else:
            finite = False
            _add_finite(values, begin, n, d, j, sums, squares, count, special, low, high)
    return finite


@kernel(
    "f4[1Cr] i8 i8[1C] i8[2C] i8[2C] i8[1C] i8[2C] f8[1C] f8[1C] u4[2C] f8[2C] f4[2C] u2[1C]",
    "f8[1Cr] i8 i8[1C] i8[2C] i8[2C] i8[1C] i8[2C] f8[1C] f8[1C] u4[2C] f8[2C] f8[2C] u2[1C]",
)
def _summarize(
    values: FloatingArray,
    d: int,
    leaves: IntArray,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
    special: IntArray,
    low: FloatArray,
    high: FloatArray,
    tables: UInt32Array,
    lanes: FloatArray,
    ends: AnyArray,
    keys: UInt16Array,
) -> None:
    """Add groups of leaves: the moments of each, and then the histograms of all."""
    last = len(leaves) - 1
    leaf = 0
    while leaf < last:
        begin = leaves[leaf] * d
        end = begin
        finite = True
        while leaf < last and end - begin < len(keys):
            n = leaves[leaf + 1] - leaves[leaf]
            if n:
                one = _add_leaf(values, end, n, d, sums, squares, count, special, low, high, lanes, ends)
                finite = finite and one
            leaf += 1
            end = leaves[leaf] * d
        count_values(values[begin:end], finite, tables, keys)
