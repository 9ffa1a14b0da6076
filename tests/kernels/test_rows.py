from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.ragged import offsets_of
from penstock.kernels.rows import RowMap

SEAMS = [0, 1, 2, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025]


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def scattered(draw: Any, row_bytes: int) -> tuple[RowMap, Any]:
    """A map of runs that lie anywhere in two buffers, and the same rows as one array."""
    runs = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    buffers = [rng.integers(0, 256, 200, np.uint8) for _ in range(2)]
    which = rng.integers(0, 2, len(runs))
    offset = np.array([rng.integers(0, 200 - rows * row_bytes + 1) for rows in runs], np.int64)
    parts = [buffers[b][o : o + n * row_bytes] for b, o, n in zip(which, offset, runs, strict=True)]
    rows = RowMap.build(buffers, np.array(runs, np.int64), which, offset, row_bytes)
    return rows, np.concatenate(parts).reshape(-1, row_bytes)


@settings(deadline=None)
@given(st.data(), st.sampled_from([1, 3, 8, 17]))
def test_spans_across_runs_equal_numpy(data: Any, row_bytes: int) -> None:
    rows, dense = scattered(data.draw, row_bytes)
    spans = data.draw(st.lists(st.tuples(st.integers(0, rows.n), st.integers(0, 12)), max_size=8))
    start = ints(*(s for s, _ in spans))
    length = np.minimum(ints(*(n for _, n in spans)), rows.n - start)
    at = offsets_of(length + 1)  # a row is left free behind each span
    want = np.full((at[-1], row_bytes), 9, np.uint8)
    for s, n, a in zip(start, length, at[:-1], strict=True):
        want[a : a + n] = dense[s : s + n]
    out = np.full_like(want, 9)
    rows.gather(start, length, at[:-1], out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("row_bytes", [1, 2, 4, 8, 12, 24, 64, 72])
def test_single_rows_of_any_width_out_of_runs(row_bytes: int) -> None:
    rng = np.random.default_rng(row_bytes)
    dense = rng.integers(0, 256, (60, row_bytes), np.uint8)
    buffers = [dense[:20].reshape(-1), dense[20:].reshape(-1)]
    rows = RowMap.build(buffers, ints(20, 40), ints(0, 1), ints(0, 0), row_bytes)
    picks, places = rng.integers(0, 60, 50), rng.permutation(50)
    out = np.zeros((51, row_bytes), np.uint8)
    rows.gather(picks, np.ones(50, np.int64), places, out)
    np.testing.assert_array_equal(out[places], dense[picks])
    assert not out[50].any()


@pytest.mark.parametrize("n", SEAMS)
def test_seams(n: int) -> None:
    array = np.random.default_rng(n).random((n + 1, 3))
    picks = np.random.default_rng(1).integers(0, n + 1, n)
    out = np.zeros((n, 3))
    RowMap.of(array).gather(picks, np.ones(n, np.int64), np.arange(n), out.view(np.uint8))
    np.testing.assert_array_equal(out, array[picks])


@pytest.mark.parametrize(
    ("start", "length", "at", "message"),
    [
        (-1, 1, 0, "rows within 0:6"),
        (6, 1, 0, "rows within 0:6"),
        (5, 2, 0, "rows within 0:6"),
        (0, -1, 0, "rows within 0:6"),
        (2**62, 2**62, 0, "rows within 0:6"),
        (0, 1, -1, "places within 0:3"),
        (0, 2, 2, "places within 0:3"),
    ],
)
def test_bad_spans_copy_nothing(start: int, length: int, at: int, message: str) -> None:
    out = np.zeros((3, 2), np.uint8)
    with pytest.raises(IndexError, match=message):
        RowMap.of(np.ones((6, 2), np.uint8)).gather(ints(0, start), ints(1, length), ints(0, at), out)
    assert not out.any()


@pytest.mark.parametrize(
    "out", [np.zeros(7, np.uint8), np.zeros((3, 4), np.uint8)[:, ::2], np.zeros((3, 2), np.int8)], ids=str
)
def test_buffers_that_are_not_whole_rows(out: Any) -> None:
    with pytest.raises(IndexError, match="C-contiguous buffer of uint8 with whole rows of 2 bytes"):
        RowMap.of(np.ones((6, 2), np.uint8)).gather(ints(0), ints(1), ints(0), out)


def test_nothing_to_copy() -> None:
    RowMap.build([], ints(), ints(), ints(), 4).gather(ints(0), ints(0), ints(0), np.zeros((2, 4), np.uint8))
    RowMap.of(np.zeros((5, 0))).gather(ints(1), ints(2), ints(0), np.zeros((2, 0), np.uint8))
    RowMap.of(np.zeros((0, 4), np.uint8)).gather(ints(), ints(), ints(), np.zeros((2, 4), np.uint8))


@pytest.mark.parametrize(
    ("rows", "buffer", "offset"), [(3, 0, 0), (2, 0, 1), (2**62, 0, 0), (1, 1, 0), (1, -1, 0), (-1, 0, 0), (1, 0, -1)]
)
def test_runs_outside_their_buffer(rows: int, buffer: int, offset: int) -> None:
    with pytest.raises(IndexError, match="expected run"):
        RowMap.build([np.zeros(8, np.uint8)], ints(rows), ints(buffer), ints(offset), 4)


def test_read_only_rows_are_fine() -> None:
    array = np.arange(6)
    array.flags.writeable = False
    out = np.zeros(2, np.int64)
    RowMap.of(array).gather(ints(3), ints(2), ints(0), out.view(np.uint8))
    assert out.tolist() == [3, 4]
