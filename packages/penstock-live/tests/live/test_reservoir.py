"""Frames through a reservoir: none lost, none twice, an order that depends on the seed alone, rows that stay theirs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.reference import pages as reference
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import PlanError, StateError
from penstock_live import reservoir as reservoir_module
from penstock_live.block import Block
from penstock_live.kernels import pages
from penstock_live.reservoir import PAGE, Reservoir

LENGTHS = [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 5 * PAGE + 7]


def frames(lo: int, hi: int, ragged: bool = True) -> Block:
    """Frames whose bytes follow from their number."""
    numbers = np.arange(lo, hi)
    if not ragged:
        return Block((numbers[:, None] * 7 + np.arange(PAGE + 3)).astype(np.uint8), numbers, numbers.astype(np.int32))
    rows = [row_of(k) for k in numbers.tolist()]
    values = np.concatenate([np.zeros(0, np.uint8), *rows])
    return Block(Ragged(values, offsets_of([len(r) for r in rows])), numbers, (numbers * 3).astype(np.int32))


def row_of(k: int) -> np.ndarray:
    return (np.arange(LENGTHS[k % len(LENGTHS)]) * 31 + k).astype(np.uint8)


def through(reservoir: Reservoir, n: int, cuts: list[int], ragged: bool = True) -> list[int]:
    """The numbers in the order in which they come out, each with its own bytes."""
    out, lo = [], 0
    for hi in [*sorted(c % (n + 1) for c in cuts), n]:
        out.append(reservoir.exchange(frames(lo, hi, ragged)))
        lo = hi
    while len(reservoir):
        out.append(reservoir.drain(3))
    return [k for block in out for k in checked(block)]


def checked(block: Block) -> list[int]:
    for i, k in enumerate(block.chunk.tolist()):
        expected = row_of(k) if isinstance(block.rows, Ragged) else frames(k, k + 1, ragged=False).rows[0]
        np.testing.assert_array_equal(block.rows[i], expected)
        assert block.place[i] == (3 * k if isinstance(block.rows, Ragged) else k)
    return block.chunk.tolist()


@given(st.integers(1, 40), st.integers(0, 120), st.lists(st.integers(0, 120), max_size=6), st.integers(-9, 1 << 70))
def test_every_frame_comes_out_once_whatever_the_blocks(slots: int, n: int, cuts: list[int], seed: int) -> None:
    order = through(Reservoir(slots, seed), n, cuts)
    assert sorted(order) == list(range(n))
    assert order == through(Reservoir(slots, seed), n, [])


@pytest.mark.parametrize("ragged", [True, False])
def test_seeds_differ_and_one_slot_keeps_the_order(ragged: bool) -> None:
    assert len({tuple(through(Reservoir(16, seed), 60, [5, 31], ragged)) for seed in range(8)}) == 8
    assert through(Reservoir(1, 5), 9, [2], ragged) == list(range(9))


def test_frames_stay_as_long_as_chance_has_it() -> None:
    """Half are out after 0.69 slots' worth of frames, and two in three after as many frames as there are slots."""
    slots, n = 500, 40_000
    reservoir, out = Reservoir(slots, 3), []
    for lo in range(0, n, 1000):
        out += reservoir.exchange(frames(lo, lo + 1000, ragged=False)).chunk.tolist()
    stayed = np.arange(slots, slots + len(out)) - np.array(out)
    assert abs(np.mean(stayed[10_000:] <= slots) - (1 - np.exp(-1))) < 0.02
    assert abs(np.median(stayed[10_000:]) / slots - np.log(2)) < 0.05


def test_what_is_drained_is_in_random_order() -> None:
    firsts = Counter(through(Reservoir(5, seed), 5, [])[0] for seed in range(1000))
    assert max(abs(n - 200) for n in firsts.values()) < 5 * np.sqrt(200)


@given(st.integers(1, 20), st.integers(0, 60), st.integers(0, 60), st.integers(0, 25), st.integers(0, 3))
def test_a_restored_reservoir_goes_on_as_if_nothing_had_been(
    slots: int, before: int, after: int, drained: int, seed: int
) -> None:
    whole = Reservoir(slots, seed)
    whole.exchange(frames(0, before))
    early = len(whole.drain(drained)) if after == 0 else 0
    state = whole.state_dict()
    again = Reservoir(slots, seed)
    missing = again.load_state_dict(state)
    for part in np.array_split(missing, 3):
        held = [frames(k, k + 1) for k in state["chunk"][part].tolist()]
        rows = Ragged.concatenate([b.rows for b in held]) if held else Ragged.from_rows([], "uint8")
        again.restore(part, Block(rows, state["chunk"][part], state["place"][part]))
    ends = []
    for reservoir in (whole, again):
        out = checked(reservoir.exchange(frames(before, before + after))) if not early else []
        ends.append([*out, *(k for _ in range(slots) for k in checked(reservoir.drain(2)))])
    assert ends[0] == ends[1]


def test_foreign_states_and_frames_are_refused() -> None:
    reservoir = Reservoir(4, seed=1)
    reservoir.exchange(frames(0, 3))
    state = reservoir.state_dict()
    for change in ({"slots": 5}, {"seed": 2}, {"filled": 2}, {"drained": 4}, {"chunk": "?"}):
        with pytest.raises(StateError):
            Reservoir(4, seed=1).load_state_dict({**state, **change})
    fresh = Reservoir(4, seed=1)
    slots = fresh.load_state_dict(state)
    with pytest.raises(StateError, match="the frames that the state names"):
        fresh.restore(slots, frames(1, 4))


def test_bad_use_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one slot"):
        Reservoir(0)
    reservoir = Reservoir(3)
    reservoir.exchange(frames(0, 2))
    with pytest.raises(PlanError, match="expected rows of unequal lengths, got 131 bytes"):
        reservoir.exchange(frames(2, 4, ragged=False))
    reservoir.drain(1)
    with pytest.raises(PlanError, match="once a reservoir is drained"):
        reservoir.exchange(frames(2, 4))


def test_pages_are_used_again() -> None:
    reservoir = Reservoir(200, 0)
    reservoir.exchange(frames(0, 200))
    held = reservoir.nbytes
    for lo in range(200, 6000, 100):
        reservoir.exchange(frames(lo, lo + 100))
    assert reservoir.nbytes < 1.3 * held


def test_the_definitions_of_its_kernels_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = through(Reservoir(9, 4), 70, [3, 30, 31])
    monkeypatch.setattr(reservoir_module, "exchange", reference.exchange)
    monkeypatch.setattr(reservoir_module, "exchange_references", reference.exchange_references)
    assert through(Reservoir(9, 4), 70, [3, 30, 31]) == expected


def test_a_kernel_stops_before_what_has_no_room() -> None:
    for exchange in (reference.exchange, pages.exchange):
        store, link = np.zeros((2, 4), np.uint8), np.zeros(2, np.int32)
        free, head, length = np.array([-1, 0]), np.zeros(2, np.int32), np.zeros(2, np.int64)
        given, ends = np.arange(12, dtype=np.uint8), np.array([0, 3, 12])
        taken, taken_ends = np.zeros(0, np.uint8), np.zeros(3, np.int64)
        args = (store, link, free, head, length, np.array([0, 1]), given, ends, taken, taken_ends)
        assert exchange(*args, 0) == 1
        assert (free.tolist(), length.tolist(), store[0].tolist()) == ([-1, 1], [3, 0], [0, 1, 2, 0])


@pytest.mark.parametrize(("slot", "ends"), [(2, [0, 1]), (-1, [0, 1]), (0, [1, 0]), (0, [-1, 1]), (0, [0, 3])])
def test_slots_and_rows_outside_their_arrays_are_refused(slot: int, ends: list[int]) -> None:
    slots, free, numbers = np.array([slot]), np.array([-1, 0]), np.zeros(2, np.int32)
    store = np.zeros((2, 4), np.uint8), numbers, free, numbers.copy(), np.zeros(2, np.int64)
    given, taken = np.zeros(2, np.uint8), np.zeros(2, np.uint8)
    with pytest.raises(IndexError, match="expected slots within 0:2 and rows within 0:2"):
        pages.exchange(*store, slots, given, np.array(ends), taken, np.zeros(2, np.int64), 0)
    if slot:
        places = np.zeros(1, np.int32)
        with pytest.raises(IndexError, match="expected slots within 0:2"):
            pages.exchange_references(np.zeros(2, np.int64), numbers, slots, slots, places, slots.copy(), places)
    with pytest.raises(ValueError, match="expected arrays for 2 pages, 2 slots and 1 rows"):
        pages.exchange(*store, slots, given, np.zeros(1, np.int64), taken, np.zeros(2, np.int64), 0)
    with pytest.raises(ValueError, match="one length for all rows"):
        pages.exchange_references(slots, numbers, slots, slots, numbers, slots, numbers)
