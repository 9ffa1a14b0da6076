"""Kernels of statistics against NumPy: bytes at any address, histograms of any number of columns, missing values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from penstock.core.arrays import AnyArray
from penstock.kernels.histograms import BUCKETS, count_bytes, tables_for
from penstock.kernels.statistics import LIMBS, LOWEST, SQUARE_LIMBS, carry, summarize, total


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 8, 12, 24, 30])
@pytest.mark.parametrize("address", [0, 3])
def test_bytes_are_counted_by_column_and_value(columns: int, address: int) -> None:
    rng = np.random.default_rng(columns)
    for rows in (0, 1, 7, 100):
        memory = rng.integers(0, 256, 8 + rows * columns, dtype=np.uint8)
        values = memory[address : address + rows * columns].reshape(rows, columns)
        counts = np.full((columns, 256), 5, np.int64)
        count_bytes(values, counts)
        expected = np.stack([np.bincount(values[:, d], minlength=256) for d in range(columns)])
        np.testing.assert_array_equal(counts, expected + 5)


def buckets(values: AnyArray) -> AnyArray:
    """The histogram of finite values, by NumPy."""
    bits = values[np.isfinite(values)].astype(np.float32).view(np.uint32).astype(np.int64)
    return np.bincount((bits + 0x8000) >> 16, minlength=BUCKETS)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 6, 17, 300])
def test_moments_and_histograms_are_those_of_numpy(columns: int, dtype: str) -> None:
    rng = np.random.default_rng(columns)
    bounds = np.array([0, 1, 1, 20, 1020, 1500])
    rows = rng.normal(-7, 3, (1500, columns)).astype(dtype)
    rows[:, 0] = 0.1  # one bucket, which counts again and again
    if columns > 1:
        rows[rng.random(1500) < 0.3, 1] = np.nan
        rows[30, 1], rows[0, -1], rows[40, -1] = np.inf, -np.inf, np.nan
    tables = np.zeros((tables_for(columns), BUCKETS), np.uint32)
    sums, squares = np.zeros((columns, LIMBS), np.int64), np.zeros((columns, SQUARE_LIMBS), np.int64)
    count, special = np.zeros(columns, np.int64), np.zeros((3, columns), np.int64)
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    summarize(rows, bounds, sums, squares, count, special, low, high, tables)
    finite = np.where(np.isfinite(rows), rows, np.nan)
    assert count.tolist() == np.isfinite(rows).sum(axis=0).tolist()
    assert special.tolist() == [
        np.isnan(rows).sum(axis=0).tolist(),
        *((rows == s * np.inf).sum(0).tolist() for s in (1, -1)),
    ]
    np.testing.assert_array_equal(low, np.nanmin(finite, axis=0))
    np.testing.assert_array_equal(high, np.nanmax(finite, axis=0))
    for d in range(columns):
        histogram = tables[d::columns].sum(axis=0)
        np.testing.assert_array_equal(histogram, buckets(rows[:, d]), err_msg=str(d))
        exact = [Fraction(float(x)) for x in finite[:, d] if not np.isnan(x)]
        for limbs, power in ((sums, 1), (squares, 2)):
            before = total(limbs[d : d + 1])[0]
            carry(limbs)
            assert total(limbs[d : d + 1])[0] == before
            value = float(before * Fraction(2) ** LOWEST)
            assert value == pytest.approx(float(sum(x**power for x in exact)), rel=1e-13)
        if d > 20:
            break


@pytest.mark.parametrize("scale", [1e-300, 5e-324, 2e144, 1e150, 1e308])
def test_sums_of_a_constant_are_exact(scale: float) -> None:
    """The offset has 21 bits, so a value that has more is not subtracted to 0; nothing is lost in the sum."""
    rows = np.full((1000, 3), scale * 1.2345678901234567)
    sums, squares = np.zeros((3, LIMBS), np.int64), np.zeros((3, SQUARE_LIMBS), np.int64)
    figures = np.zeros(3, np.int64), np.zeros((3, 3), np.int64), np.full(3, np.inf), np.full(3, -np.inf)
    summarize(rows, np.array([0, 1000]), sums, squares, *figures, np.zeros((6, BUCKETS), np.uint32))
    one = Fraction(float(rows[0, 0]))
    for limbs, power in ((sums, 1), (squares, 2)):
        for n in total(limbs):
            error = abs(n * Fraction(2) ** LOWEST / 1000 - one**power)
            assert error <= max(one**power * Fraction(1e-14), Fraction(1e-320))
