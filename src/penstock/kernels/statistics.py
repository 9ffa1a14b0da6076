"""Moments, extremes and histograms of columns, exact enough that no partition of the rows changes them.

What a column gets is the same for any order of its leaves, for any number of threads, and for any way to cut the data
into parts that are merged later. A *leaf* is a run of rows that is never cut, such as 4,096 steps of one episode.

* *Moments.* Within a leaf, `c` is its first finite value, and the sums `p` of `x - c` and `q` of `(x - c)^2` are added
  up as float64, in the order of the rows. The offset `c` keeps the digits of values that are far from zero, such as
  times. A leaf of `n` values contributes `p + n c` to the sum, and `q + 2 c p + n c^2` to the sum of squares. These
  terms are split into float64 without error (Dekker, "A floating-point technique for extending the available
  precision", 1971) and added to a fixed-point number of 2,176 bits (Kulisch), which has no rounding. So only `p` and
  `q` are rounded, with a relative error below `n * 2**-53`.
* *Histogram.* A value counts in the bucket of the nearest number with 8 significant bits, that is the upper half of its
  float32, 65,536 buckets for all float32. A bucket has no parameter, so histograms add up. A value read from one is
  within 1/256 of the true one, and exact for numbers of 8 bits, such as 0, 1 and small whole numbers. This is the idea
  of DDSketch (Masson et al., 2019) with powers of two, where the bucket costs an addition and a shift.
* *Bytes* are counted by value, 256 counts, from which all figures follow exactly. They are read as words, and each
  place of a period has its own table, because neighbouring pixels are often equal, and counts of a table take turns.

The caller owns all arrays. Rows are `[n, D]`: `D` numbers of a row are separate unless the caller reshapes.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, FloatArray, FloatingArray, IntArray, UInt32Array, UInt64Array
from penstock.errors import PlanError
from penstock.kernels.jit import uncounted_helper, uncounted_kernel

LIMBS = 68
"""Limbs of a fixed-point number: 32 bits each in an int64, the lowest first. The lowest bit is worth `2**LOWEST`."""
LOWEST = -1120
BUCKETS = 1 << 16
LANES = 64
"""Values of a column that are added side by side."""
TILE = 32
"""Columns that are transposed together: their scratch fits in a cache of 128 kB."""
LARGEST = 2.0**500
"""Values of at least this size count as infinite: their squares have no room."""
PERIOD = 24
"""Bytes that are counted in one round, each place into a table of its own: three words of memory."""
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
    bins: IntArray,
) -> None:
    """Add rows to the figures of a column.

    Args:
        values: `[n, D]` float32 or float64 rows, C-contiguous.
        leaves: `[m + 1]` int64 bounds of the leaves: rows `leaves[i] : leaves[i + 1]` are one.
        sums: `[D, LIMBS]` int64 fixed-point sums, which are added to.
        squares: `[D, LIMBS]` int64 fixed-point sums of squares, which are added to.
        count: `[D]` int64 number of finite values, which is added to.
        special: `[3, D]` int64 numbers of NaN and infinities, which are added to.
        low: `[D]` float64 least finite values, which are lowered.
        high: `[D]` float64 greatest finite values, which are raised.
        bins: `[D, BUCKETS]` int64 histograms, or `[1, BUCKETS]` for all values together, which are added to.

    Raises:
        PlanError: An array has another shape, or the leaves are outside the rows.
    """
    n, d = values.shape
    shapes = (sums.shape, squares.shape, count.shape, special.shape, low.shape, high.shape, bins.shape[1:])
    if shapes != ((d, LIMBS), (d, LIMBS), (d,), (3, d), (d,), (d,), (BUCKETS,)) or len(bins) not in (1, d):
        raise PlanError(f"expected the figures of {d} numbers a row, got arrays of {[*shapes, bins.shape]}")
    _check_leaves(leaves, n)
    scratch = (np.empty((TILE, LANES)), np.empty((TILE, 3)), np.empty((TILE, 4, LANES)))
    _summarize(values, leaves, sums, squares, count, special, low, high, bins, *scratch)


def count_bytes(values: ByteArray, counts: IntArray) -> None:
    """Count bytes by value.

    Args:
        values: `[n, D]` uint8 rows, C-contiguous.
        counts: `[D, 256]` int64, which is added to.

    Raises:
        PlanError: `counts` has another shape.
    """
    if counts.shape != (values.shape[1], 256):
        raise PlanError(f"expected [{values.shape[1]}, 256] counts, got {counts.shape}")
    flat = values.reshape(-1)
    if PERIOD % len(counts) or flat.ctypes.data % 8:  # other numbers of columns, or no whole words
        _count_bytes(values, counts, np.zeros((4, *counts.shape), np.uint32))
        return
    rounds = flat.size // PERIOD * PERIOD
    part = np.zeros((PERIOD, 256), np.uint32)
    _count_words(flat[:rounds].view(np.uint64), part)
    for place, value in enumerate(flat[rounds:].tolist()):
        part[place, value] += 1
    counts += part.reshape(-1, *counts.shape).sum(axis=0, dtype=np.int64)


def total(limbs: IntArray) -> list[int]:
    """Return fixed-point numbers `[D, LIMBS]` as whole multiples of `2**LOWEST`.

    Example:
        >>> limbs = np.zeros((1, LIMBS), np.int64)
        >>> limbs[0, :2] = 5, -1
        >>> total(limbs) == [5 - (1 << 32)]
        True
    """
    return [sum(limb << (32 * i) for i, limb in enumerate(row)) for row in limbs.tolist()]


def _check_leaves(leaves: IntArray, n: int) -> None:
    if len(leaves) < 1 or leaves[0] < 0 or leaves[-1] > n or np.any(leaves[1:] < leaves[:-1]):
        raise PlanError(f"expected increasing bounds of leaves within {n} rows, got {leaves[:3]} to {leaves[-1:]}")


@uncounted_helper
def _add(limbs: IntArray, x: float) -> None:
    """Add a finite number to a fixed-point number: its 53 bits go to three limbs.

    `|x| < 2**1024` and its lowest bit is worth at least `2**-1074`, so the limbs are within bounds. Each limb
    grows by less than `2**32`, so `2**30` additions fit before `_carry`.
    """
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent:
        mantissa |= 1 << 52
    else:
        exponent = 1
    place = exponent - 1075 - LOWEST
    limb = place >> 5
    shift = place & 31
    low = (mantissa & 0xFFFFFFFF) << shift  # below 2**63
    high = (mantissa >> 32) << shift  # below 2**52
    sign = -1 if bits < 0 else 1
    limbs[limb] += sign * (low & 0xFFFFFFFF)
    limbs[limb + 1] += sign * ((low >> 32) + (high & 0xFFFFFFFF))
    limbs[limb + 2] += sign * (high >> 32)


@uncounted_helper
def _add_product(limbs: IntArray, a: float, b: float) -> None:
    """Add `a * b` without rounding: the product and its error, by Dekker's method. `|a|, |b| < 2**520`."""
    product = a * b
    big_a = 134217729.0 * a  # 2**27 + 1 splits 53 bits into halves
    upper_a = big_a - (big_a - a)
    lower_a = a - upper_a
    big_b = 134217729.0 * b
    upper_b = big_b - (big_b - b)
    lower_b = b - upper_b
    error = lower_a * lower_b - (((product - upper_a * upper_b) - lower_a * upper_b) - upper_a * lower_b)
    _add(limbs, product)
    _add(limbs, error)


@uncounted_helper
def _carry(limbs: IntArray) -> None:
    """Bring all limbs but the last into `0 .. 2**32`."""
    for i in range(LIMBS - 1):
        carried = limbs[i] >> 32
        limbs[i] -= carried << 32
        limbs[i + 1] += carried


@uncounted_helper
def _close_leaf(
    d: int,
    figures: FloatArray,
    lane: FloatArray,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
    low: FloatArray,
    high: FloatArray,
) -> None:
    """Add the figures of a leaf to the figures of column `d`: see the opening comment."""
    n = figures[0]
    if n == 0:
        return
    p = 0.0
    q = 0.0
    for i in range(np.int64(figures[1])):
        p += lane[0, i]
        q += lane[1, i]
        low[d] = min(low[d], lane[2, i])
        high[d] = max(high[d], lane[3, i])
    count[d] += np.int64(n)
    c = figures[2]
    _add(sums[d], p)
    _add_product(sums[d], n, c)
    _add(squares[d], q)
    _add_product(squares[d], 2 * c, p)
    # n c^2 = n * (product + error), each without rounding: a count has at most 53 bits.
    product = c * c
    big = 134217729.0 * c
    upper = big - (big - c)
    lower = c - upper
    error = lower * lower - ((product - upper * upper) - 2 * upper * lower)
    _add_product(squares[d], n, product)
    _add_product(squares[d], n, error)


@uncounted_helper
def _without_special(x: FloatArray, m: int, special: IntArray, d: int) -> int:
    """Count NaN and infinities among `x[:m]`, and move the finite values to the front. Returns their number."""
    finite = 0
    for i in range(m):
        if abs(x[i]) < LARGEST:
            x[finite] = x[i]
            finite += 1
        elif x[i] > 0:
            special[POSITIVE, d] += 1
        elif x[i] < 0:
            special[NEGATIVE, d] += 1
        else:
            special[NANS, d] += 1
    return finite


@uncounted_helper
def _summarize_run(x: FloatArray, m: int, figures: FloatArray, lane: FloatArray, table: IntArray) -> None:
    """Add `m` finite values of one column, at most `LANES`, to its figures of a leaf, and count them in `table`.

    The `i`-th value goes to lane `i`, so that several lanes are added in one instruction, in an order that the code
    fixes: `lane[0]` and `lane[1]` are sums of `x - c` and of its square, `lane[2]` and `lane[3]` the extremes.
    `figures` are the number of values, the number of lanes in use, and `c`, which is the first value.
    """
    if figures[0] == 0:
        figures[2] = x[0]
    for i in range(np.int64(figures[1]), m):
        lane[0, i] = 0
        lane[1, i] = 0
        lane[2, i] = np.inf
        lane[3, i] = -np.inf
    figures[0] += m
    figures[1] = max(figures[1], m)
    c = figures[2]
    for i in range(m):
        y = x[i] - c
        lane[0, i] += y
        lane[1, i] += y * y
        lane[2, i] = x[i] if x[i] < lane[2, i] else lane[2, i]
        lane[3, i] = x[i] if x[i] > lane[3, i] else lane[3, i]
    for i in range(m):
        # The nearest number of 8 bits: half of the last place is added before the lower half is cut off.
        key = (np.int64(np.float32(x[i]).view(np.uint32)) + 0x8000) >> 16
        table[key & 0xFFFF] += 1


@uncounted_helper
def _gather(values: FloatingArray, first: int, m: int, column: int, columns: int, x: FloatArray) -> None:
    """Copy `m` rows of some columns to `x[columns, LANES]`, in the order of memory."""
    if values.shape[1] == 1:  # without a loop over columns, which would take half of the time
        for i in range(m):
            x[0, i] = values[first + i, 0]
        return
    for i in range(m):
        for t in range(columns):
            x[t, i] = values[first + i, column + t]


@uncounted_kernel(
    "f4[2C] i8[1C] i8[2C] i8[2C] i8[1C] i8[2C] f8[1C] f8[1C] i8[2C] f8[2C] f8[2C] f8[3C]",
    "f8[2C] i8[1C] i8[2C] i8[2C] i8[1C] i8[2C] f8[1C] f8[1C] i8[2C] f8[2C] f8[2C] f8[3C]",
)
def _summarize(
    values: FloatingArray,
    leaves: IntArray,
    sums: IntArray,
    squares: IntArray,
    count: IntArray,
    special: IntArray,
    low: FloatArray,
    high: FloatArray,
    bins: IntArray,
    x: FloatArray,
    figures: FloatArray,
    lane: FloatArray,
) -> None:
    """One pass over `TILE` columns at a time, whose histograms stay in the cache; `x[TILE, LANES]` transposes a run."""
    pooled = 0 if len(bins) == 1 else 1
    for column in range(0, values.shape[1], TILE):
        columns = min(TILE, values.shape[1] - column)
        for leaf in range(len(leaves) - 1):
            for t in range(columns):
                figures[t, 0] = 0
                figures[t, 1] = 0
            for first in range(leaves[leaf], leaves[leaf + 1], LANES):
                m = min(LANES, leaves[leaf + 1] - first)
                _gather(values, first, m, column, columns, x)
                for t in range(columns):
                    d = column + t
                    finite = 0
                    for i in range(m):
                        finite += 1 if abs(x[t, i]) < LARGEST else 0
                    if finite < m:
                        finite = _without_special(x[t], m, special, d)
                    if finite:
                        _summarize_run(x[t], finite, figures[t], lane[t], bins[d * pooled])
            for t in range(columns):
                _close_leaf(column + t, figures[t], lane[t], sums, squares, count, low, high)
    for d in range(values.shape[1]):
        _carry(sums[d])
        _carry(squares[d])


@uncounted_kernel("u1[2C] i8[2C] u4[3C]")
def _count_bytes(values: ByteArray, counts: IntArray, part: UInt32Array) -> None:
    """Count into four tables in turn: neighbouring pixels are often equal, and each count waits for the one before."""
    n = len(values)
    numbers = values.shape[1]
    for r in range(n):
        for d in range(numbers):
            part[r & 3, d, values[r, d]] += 1
    for t in range(4):
        for d in range(numbers):
            for v in range(256):
                counts[d, v] += part[t, d, v]


@uncounted_kernel("u8[1C] u4[2C]")
def _count_words(words: UInt64Array, part: UInt32Array) -> None:
    """Count the bytes of `[3 n]` words into `[PERIOD, 256]` tables: one load for eight bytes.

    Byte `j` of the words goes to table `j % PERIOD`, and so to column `j % D` where `D` divides `PERIOD`.
    """
    for first in range(0, len(words), 3):
        for k in range(3):
            word = words[first + k]
            for j in range(8):
                part[8 * k + j, (word >> np.uint64(8 * j)) & np.uint64(255)] += 1
