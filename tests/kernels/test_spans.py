"""Arrays filled by spans equal their definitions, and spans that overlap or leave an array are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.spans import paint, zero_gaps
from tests.kernels.reference import spans as reference

rows_with_gaps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8)


def spans_of(gaps: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, int]:
    """Places and lengths of spans with gaps between them, and how many places there are."""
    at, length, end = [], [], 0
    for gap, rows in gaps:
        at.append(end + gap)
        length.append(rows)
        end += gap + rows
    return np.array(at, np.int64), np.array(length, np.int64), end


@given(rows_with_gaps, st.integers(0, 3), st.integers(0, 1))
def test_painting_equals_its_definition(gaps, rest, slope):
    at, length, end = spans_of(gaps)
    value = np.arange(len(at)) * 10 + 1
    ours, wanted = (np.full(end + rest, -1, np.int32) for _ in range(2))
    paint(at, length, value, slope, ours)
    reference.paint(at, length, value, slope, wanted)
    assert ours.tolist() == wanted.tolist()


@given(rows_with_gaps, st.integers(0, 3), st.integers(1, 9))
def test_zeroing_gaps_equals_its_definition(gaps, rest, row_bytes):
    at, length, end = spans_of(gaps)
    ours, wanted = (np.ones((end + rest) * row_bytes, np.uint8) for _ in range(2))
    zero_gaps(at, length, row_bytes, ours)
    reference.zero_gaps(at, length, row_bytes, wanted)
    assert ours.tolist() == wanted.tolist()
    covered = sum(rows for _, rows in gaps) * row_bytes
    assert int(ours.sum()) == covered


@pytest.mark.parametrize(
    ("start", "length", "wrong"),
    [
        ([0, 1], [2, 1], "span 1 of 1 rows at 1"),
        ([-1], [1], "span 0 of 1 rows at -1"),
        ([0, 3], [1, 2], "span 1 of 2 rows at 3"),
        ([1], [-1], "span 0 of -1 rows at 1"),
        ([2**62], [2**62], "span 0"),
    ],
)
def test_spans_that_overlap_or_leave_the_array_are_refused(start, length, wrong):
    columns = np.array(start), np.array(length)
    with pytest.raises(ValueError, match=wrong):
        paint(*columns, columns[0], 0, np.zeros(4, np.int32))
    with pytest.raises(ValueError, match=wrong):
        zero_gaps(*columns, 2, np.zeros(8, np.uint8))


def test_columns_have_one_length_and_rows_have_bytes():
    one, two, out = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(4, np.uint8)
    for columns in ((two, one, one), (one, two, one), (one, one, two)):
        with pytest.raises(ValueError, match="equal length"):
            paint(*columns, 0, np.zeros(4, np.int32))
    with pytest.raises(ValueError, match="equal length"):
        zero_gaps(two, one, 1, out)
    with pytest.raises(ValueError, match="whole number of rows"):
        zero_gaps(one, one, 0, out)
    with pytest.raises(ValueError, match="whole number of rows"):
        zero_gaps(one, one, 3, out)


def test_other_types_are_refused_instead_of_compiled():
    one = np.zeros(1, np.int64)
    with pytest.raises(TypeError, match=r"_paint to be called with \(i8\[1C\] .*got \(.*int32"):
        paint(one.astype(np.int32), one, one, 0, np.zeros(4, np.int32))
    with pytest.raises(TypeError, match="_zero_gaps"):
        zero_gaps(one, one, 1, np.zeros(8, np.uint8)[::2])
