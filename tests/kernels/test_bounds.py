"""Bounds of rows, and extremes of numbers: the kernels equal NumPy, with NaN, infinities and empty columns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.core.arrays import read_only
from penstock.kernels.bounds import KINDS, are_within, extremes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_values_within_bounds(kind: str, width: int) -> None:
    rng = np.random.default_rng(width)
    values = rng.integers(10, 20, (7, width)).astype(kind)
    low, high = values.min(axis=0), values.max(axis=0)
    assert are_within(values, low, high)
    assert are_within(read_only(values), low, high)
    assert are_within(np.repeat(values, 2, axis=0)[::2], low, high)
    for row, element in np.ndindex(values.shape):
        for outside in (low[element] - 1, high[element] + 1):
            wrong = values.copy()
            wrong[row, element] = outside
            assert not are_within(wrong, low, high)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_that_are_not_finite_are_outside(wrong: float, dtype: str) -> None:
    finite = np.finfo(dtype)
    low, high = np.array([finite.min], dtype), np.array([finite.max], dtype)
    values = np.array([finite.min, 0, finite.max], dtype)
    assert are_within(values, low, high)
    values[1] = wrong
    assert not are_within(values, low, high)


def test_rows_that_bounds_do_not_fit_are_not_within() -> None:
    bounds = np.zeros(2), np.ones(2)
    assert are_within(np.zeros((0, 2)), *bounds)
    assert not are_within(np.zeros(3), *bounds)
    assert not are_within(np.zeros(4), np.zeros(2), np.ones(1))
    assert not are_within(np.zeros((4, 0)), np.zeros(0), np.zeros(0))


@pytest.mark.parametrize("n", [1, 2, 63, 200])
def test_extremes(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    for same in (values, read_only(values), np.repeat(values, 2)[::2]):
        assert extremes(same) == (values.min(), values.max())
    values[n // 2] = np.inf
    assert extremes(values)[1] == np.inf
    values[n // 3] = np.nan
    assert all(map(math.isnan, extremes(values)))


def test_no_numbers_have_no_extremes() -> None:
    assert all(map(math.isnan, extremes(np.zeros(0))))
