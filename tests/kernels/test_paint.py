"""What is drawn from spans: ids, positions, and the places that none covers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import compiled, reference

spans = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8)


def laid(gaps: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, int]:
    """Places and lengths of spans with gaps between them, and how many places there are."""
    at, length, end = [], [], 0
    for gap, rows in gaps:
        at.append(end + gap)
        length.append(rows)
        end += gap + rows
    return np.array(at, np.int64), np.array(length, np.int64), end


@given(spans, st.integers(0, 3), st.integers(0, 1))
def test_painting_is_its_definition(gaps, rest, slope):
    at, length, end = laid(gaps)
    value = np.arange(len(at)) * 10 + 1
    ours, wanted = (np.full(end + rest, -1, np.int32) for _ in range(2))
    compiled.paint(at, length, value, slope, ours)
    reference.paint(at, length, value, slope, wanted)
    assert ours.tolist() == wanted.tolist()


@given(spans, st.integers(0, 3), st.integers(1, 9))
def test_zeroing_gaps_is_its_definition(gaps, rest, row_bytes):
    at, length, end = laid(gaps)
    ours, wanted = (np.ones((end + rest) * row_bytes, np.uint8) for _ in range(2))
    compiled.zero_gaps(at, length, row_bytes, ours)
    reference.zero_gaps(at, length, row_bytes, wanted)
    assert ours.tolist() == wanted.tolist()
    covered = sum(rows for _, rows in gaps) * row_bytes
    assert int(ours.sum()) == covered
