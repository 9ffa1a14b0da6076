from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import SpecError

rows_strategy = st.lists(st.lists(st.integers(-100, 100), max_size=5), min_size=1, max_size=12)


@given(rows_strategy)
def test_rows_come_back(rows):
    ragged = Ragged.from_rows(rows, dtype=np.int64)
    assert [ragged[i].tolist() for i in range(len(ragged))] == rows
    assert ragged.lengths.tolist() == [len(r) for r in rows]


@given(rows_strategy, st.data())
def test_take_equals_python_indexing(rows, data):
    ragged = Ragged.from_rows(rows, dtype=np.int64)
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    taken = ragged.take(np.array(index, np.int64))
    assert [taken[i].tolist() for i in range(len(taken))] == [rows[i] for i in index]


@given(st.lists(st.text(max_size=6), max_size=8))
def test_strings_round_trip(strings):
    strings = [s.encode("utf-8", "ignore").decode() for s in strings]
    assert Ragged.from_strings(strings).strings() == strings


def test_slices_and_negative_indices():
    ragged = Ragged.from_strings(["a", "bb", "ccc"])
    assert ragged[1:].strings() == ["bb", "ccc"]
    assert ragged[::-1].strings() == ["ccc", "bb", "a"]
    assert ragged[-1].tobytes() == b"ccc"
    with pytest.raises(IndexError):
        ragged[3]


def test_grid_indexing_gives_rows_of_rows():
    grid = Ragged.from_strings(list("abcdef")).reshape(2, 3)
    assert grid.shape == (2, 3)
    assert len(grid) == 2
    assert grid[1].strings() == ["d", "e", "f"]
    assert grid[[1, 0]].strings() == ["d", "e", "f", "a", "b", "c"]
    assert grid[:1].shape == (1, 3)


def test_concatenate():
    joined = Ragged.concatenate([Ragged.from_rows([[1], []], np.int32), Ragged.from_rows([[2, 3]], np.int32)])
    assert joined.dtype == np.int32
    assert [row.tolist() for row in joined] == [[1], [], [2, 3]]


@pytest.mark.parametrize("offsets", [[0, 2, 1, 3], [1, 3], [0, 2], [0, 4], []])
def test_offsets_that_lie_are_refused(offsets):
    with pytest.raises(SpecError, match="expected offsets"):
        Ragged(np.zeros(3), np.array(offsets, np.int64))


def test_a_grid_that_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="grid of 2 rows"):
        Ragged(np.zeros(2), offsets_of([1, 1]), (3,))


def test_rows_keep_their_dtype():
    assert Ragged.from_rows([np.array([1, 2], "i4"), np.array([3], "i4")]).dtype == np.dtype("i4")
    assert Ragged.from_rows([[1, 2], [3]]).values.tolist() == [1, 2, 3]
    assert Ragged.from_rows([[1], [2.5]]).dtype == np.dtype("f8")


def test_windows_are_joined_along_their_samples():
    one = Ragged.from_strings(["a", "b", "c", "d"]).reshape(2, 2)
    both = Ragged.concatenate([one, one[:1], one[:0]])
    assert both.shape == (3, 2)
    assert both[2].strings() == ["a", "b"]
    with pytest.raises(SpecError, match="of one grid"):
        Ragged.concatenate([one, one.reshape(4, 1)])


def test_long_rows_are_taken_without_an_index_of_their_values():
    rows = [np.arange(size) % 251 for size in (3000, 0, 5000, 1)]
    ragged = Ragged(np.concatenate(rows).astype(np.uint8), np.array([0, 3000, 3000, 8000, 8001]))
    wanted = np.array([2, 1, 0, 2])
    tracemalloc.start()
    taken = ragged.take(wanted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [taken[i].tolist() for i in range(4)] == [rows[i].tolist() for i in wanted]
    assert peak < 4 * 13_000
