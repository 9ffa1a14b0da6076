"""Buffers store rows of any dtype and number of axes, and refuse others, also where they grow."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.spec import Field
from penstock.errors import DataError
from penstock.recording.buffer import FIRST_ROWS, column_for

ROWS = 2 * FIRST_ROWS + 1


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "?", "u1", "i8", ">f4", "U5", "S3", "M8[s]"])
def test_rows_of_each_dtype_are_stored(dtype: str, shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(len(shape)).integers(0, 2, (ROWS, *shape)).astype(dtype)
    column = column_for("x", Field(np.dtype(dtype), shape, "step"))
    for i, row in enumerate(rows):
        column.store(i, row)
    taken = column.take(ROWS)
    assert isinstance(taken, np.ndarray)
    assert (taken.dtype, taken.shape) == (rows.dtype, rows.shape)
    assert (taken == rows).all()


@pytest.mark.parametrize("wrong", [np.zeros(0, "f4"), np.zeros(2, "f4"), np.zeros(4, "f4"), np.zeros((3, 1), "f4")])
@pytest.mark.parametrize("i", [0, FIRST_ROWS - 1, FIRST_ROWS])
def test_a_row_of_another_shape_is_refused_also_behind_the_last(wrong: np.ndarray, i: int) -> None:
    with pytest.raises(DataError, match="x"):
        column_for("x", Field(np.dtype("f4"), (3,), "step")).store(i, wrong)
