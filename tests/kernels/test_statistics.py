"""Bytes are counted alike by both loops, at any address and for any number of columns."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels.statistics import count_bytes


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 8, 24, 30])
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
