"""Positions that are kept: against a plain dictionary, whatever comes and goes, in memory that is bounded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.reference import record_log
from penstock.core.ragged import Ragged, offsets_of
from penstock_live import position_store
from penstock_live.block import Part
from penstock_live.kernels.record_log import copy_records, find_records, slide_records
from penstock_live.position_store import PositionStore

PUTS = st.tuples(st.just("put"), st.integers(1000, 1030), st.integers(0, 3), st.lists(st.integers(0, 3), max_size=4))
TAKES = st.tuples(st.just("take"), st.lists(st.integers(1000, 1031), max_size=6, unique=True), st.integers(0, 6))
FORGETS = st.tuples(st.just("forget"), st.integers(1000, 1031))
STEPS = st.lists(st.one_of(PUTS, TAKES, FORGETS), max_size=40)


def rows_of(number: int, use: int, counts: list[int], ragged: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows that name themselves, of so many frames a use."""
    place = np.arange(sum(counts)) + 7 * use
    rows = [np.full(1 + (number + p) % 19 if ragged else 5, (number + p) % 251, np.uint8) for p in place.tolist()]
    ends = offsets_of(counts)
    if ragged:
        return Ragged(np.concatenate([np.zeros(0, np.uint8), *rows]), offsets_of([len(r) for r in rows])), place, ends
    return np.array(rows, np.uint8).reshape(-1, 5), place, ends


def plain(block: Any) -> list[tuple[int, int, bytes]]:
    names = zip(block.chunk.tolist(), block.place.tolist(), strict=True)
    return [(chunk, place, bytes(block.rows[i])) for i, (chunk, place) in enumerate(names)]


def model_of(number: int, use: int, counts: list[int], ragged: bool) -> dict[int, list[tuple[int, int, bytes]]]:
    rows, place, ends = rows_of(number, use, counts, ragged)
    frames = [(number, int(p), bytes(rows[i])) for i, p in enumerate(place)]
    return {use + u: frames[lo:hi] for u, (lo, hi) in enumerate(pairwise(ends.tolist()))}


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("limit", [1 << 20, 3000, 900, 0])
@pytest.mark.parametrize("reference", [False, True])
@given(steps=STEPS)
def test_what_comes_out_is_what_was_put_in(ragged: bool, limit: int, reference: bool, steps: Any) -> None:
    """With room for all, everything comes out; with little, less, but never anything else, and never more bytes."""
    patch = pytest.MonkeyPatch()
    if reference:
        for name in ("find_records", "copy_records", "slide_records"):
            patch.setattr(position_store, name, getattr(record_log, name))
    store, model, any_rows = PositionStore(ahead=3, limit=limit), dict[int, dict[int, Any]](), False
    for step in steps:
        if step[0] == "put":
            _, number, use, counts = step
            counts = counts or [1]
            now = store.put(number, use, *rows_of(number, use, counts, ragged))
            held = model_of(number, use, counts, ragged)
            assert plain(Part.join([now])) == held[use]
            any_rows = any_rows or sum(counts) > 0
            if len(counts) > 1 and any_rows:
                model[number] = held
        elif step[0] == "take":
            numbers, use = np.array(step[1], np.int64), step[2]
            block, frames = store.take(numbers, np.full(len(numbers), use))
            found, expected = iter(plain(block)), [model.get(n, {}).get(use) for n in step[1]]
            for number, n, wanted in zip(step[1], frames.tolist(), expected, strict=True):
                if n >= 0:
                    assert [next(found) for _ in range(n)] == wanted
                    if use == max(model[number]):
                        del model[number]
                elif limit == 1 << 20:
                    assert wanted is None
            assert next(found, None) is None
        else:
            store.forget(step[1])
            model = {number: uses for number, uses in model.items() if number >= step[1]}
        assert store.nbytes <= limit
        if limit == 1 << 20:
            assert len(store) == len(model)
            numbers = np.arange(990, 1040)
            assert store.has(numbers).tolist() == [number in model for number in numbers.tolist()]
    patch.undo()


def test_the_oldest_go_first_and_no_more_than_a_quarter_at_once() -> None:
    store = PositionStore(ahead=1, limit=8 * 26 * 100)
    for number in range(1000):
        store.put(number, 0, *rows_of(number, 0, [1, 1], ragged=False))
        held = np.flatnonzero(store.has(np.arange(1000)))
        assert held.tolist() == list(range(number + 1 - len(held), number + 1))
        assert store.nbytes <= store.limit
    assert store.nbytes > 0.7 * store.limit


def test_frames_of_another_width_are_given_and_not_kept() -> None:
    store = PositionStore(ahead=1)
    store.put(1, 0, *rows_of(1, 0, [1, 1], ragged=False))
    now = store.put(2, 0, *rows_of(2, 0, [1, 1], ragged=True))
    assert len(now) == 1
    assert store.has(np.array([1, 2])).tolist() == [True, False]


def test_hits_and_misses_are_counted_but_for_draws_that_were_rejected() -> None:
    store = PositionStore(ahead=2)
    store.put(5, 0, *rows_of(5, 0, [1, 2, 1], ragged=True))
    store.take(np.array([5, 6, 7]), np.array([1, 0, -2]))
    assert (store.hits, store.misses) == (1, 1)


def test_positions_of_later_uses_are_counted() -> None:
    store, rows = PositionStore(ahead=2, limit=1 << 12), np.zeros((3, 1), np.uint8)
    store.put(4, 0, rows, np.arange(3), np.array([0, 1, 2, 3]))
    store.put(5, 0, rows, np.arange(3), np.array([0, 1, 1, 3]))
    assert (store.added, store.turned_away, store.positions) == (4, 0, 4)
    store.take(np.array([4]), np.array([2]))  # its last use
    assert store.positions == 2
    large = np.zeros((4000, 1), np.uint8)
    store.put(6, 0, large, np.arange(4000), np.array([0, 1, 4000]))
    assert (store.added, store.turned_away, store.positions) == (4, 3999, 2)


def test_arrays_that_do_not_fit_are_refused() -> None:
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    places, rows = np.zeros(1, np.int32), np.zeros(4, np.uint8)
    with pytest.raises(ValueError, match="columns"):
        find_records(one, one, 0, one, two, one, one)
    with pytest.raises(ValueError, match="room for all frames"):
        copy_records(one, one, 0, one, one, one, rows, one, one, places)
    with pytest.raises(ValueError, match="an end within 1"):
        slide_records(one, one, 0, 2, 0)
