"""The window of the newest chunks: against a plain model, its journal, anchors, uses, and bad use."""

# pyright: basic

from __future__ import annotations

import threading
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError, StateError
from penstock.flow.queue import QueueClosed
from penstock_live.events import EventLog, SourceLeft, SourcePlaced
from penstock_live.hanse import HanseSampling
from penstock_live.journal import Arrival, Journal, Move, read_journal
from penstock_live.pool import OPEN, REJECTED, Draws, ShufflingChunkPool

ACTIONS = st.lists(st.tuples(st.sampled_from(["in", "draw"]), st.integers(1, 6)), min_size=1, max_size=30)


def arrival(name: int, count: int) -> Arrival:
    return Arrival(f"f{name}", f"k{name:04d}", count, size=name, mtime_ns=name)


def drawn(draws: Draws | None) -> list[tuple[int, int, int]]:
    if draws is None:
        return []
    return list(zip(draws.number.tolist(), draws.use.tolist(), [draws.epoch] * len(draws), strict=True))


def run(actions: Any, size: int, seed: int, journal: Journal | None = None, restore_at: int = -1) -> list[Any]:
    pool, found = ShufflingChunkPool(size, seed, journal=journal), []
    for i, (kind, n) in enumerate(actions):
        if i == restore_at:
            state, pool = pool.state_dict(), ShufflingChunkPool(size, seed, journal=journal)
            pool.load_state_dict(state)
            assert drawn_again(pool, state) == [row for group in found for row in group]
        if kind == "in":
            pool.arrive([arrival(i, n)])
        elif pool.window[1] > 0:
            found.append(drawn(pool.draw(n)))
    return found


def drawn_again(pool: ShufflingChunkPool, state: Any) -> list[Any]:
    return [row for _ in state["log"] for row in drawn(pool.draw(1))]


@given(ACTIONS, st.integers(1, 12), st.integers(0, 99))
def test_draws_are_those_of_a_plain_model(actions: Any, size: int, seed: int) -> None:
    """Whole old sources leave, the window is the newest `size`, no number twice a pass, uses counted, none missed."""
    found = iter(run(actions, size, seed))
    upper, sources, epoch = 0, deque[tuple[int, int]](), 0
    uses, seen = Counter[int](), set[int]()
    for kind, n in actions:
        lo = max(sources[0][0] if sources else 0, upper - size)
        if kind == "in":
            sources.append((upper, n))
            upper += n
            while len(sources) > 1 and upper - sources[1][0] >= size:
                sources.popleft()
            continue
        if not upper:
            continue
        group = next(found)
        left = set(range(lo, upper)) - seen
        if not left:
            epoch, seen, left = epoch + 1, set(), set(range(lo, upper))
        assert len(group) == min(n, len(left))
        for number, use, its_epoch in group:
            assert number in left
            assert (use, its_epoch) == (uses[number], epoch)
            left.discard(number)
            seen.add(number)
            uses[number] += 1


# A draw that came short at the end of a pass drew numbers that had left, behind the last one that it returned.
@example(
    [
        *[("in", 4), ("draw", 1), ("in", 1), ("in", 1), ("in", 1), ("draw", 5)],
        *[("in", 1), ("in", 1), ("draw", 1), ("in", 1), ("draw", 1)],
    ],
    5,
    9,
    0,
)
@given(ACTIONS, st.integers(1, 12), st.integers(0, 99), st.integers(0, 30))
def test_states_and_replays_change_nothing(actions: Any, size: int, seed: int, at: int) -> None:
    journal = Journal()
    expected = run(actions, size, seed, journal)
    assert run(actions, size, seed, restore_at=at) == expected
    flat = [row for group in expected for row in group]
    replay, again = ShufflingChunkPool(size, seed, replay=journal.moves()), []
    while len(again) < len(flat):
        again += drawn(replay.draw(min(4, len(flat) - len(again))))
    assert again == flat


def test_seeds_differ() -> None:
    assert len({str(run([("in", 9), ("draw", 9)], 9, seed)) for seed in range(6)}) == 6


def test_what_leaves_is_told_by_whole_sources() -> None:
    events, journal = EventLog(), Journal()
    pool = ShufflingChunkPool(5, journal=journal, events=events)
    for i, n in enumerate([3, 3, 2, 9, 1]):
        pool.arrive([arrival(i, n)])
    assert [event.lo for event in events if isinstance(event, SourcePlaced)] == [0, 3, 6, 8, 17]
    assert [event.lo for event in events if isinstance(event, SourceLeft)] == [0, 3, 6]
    assert pool.window == (13, 18)
    assert [move.left for move in journal.moves()] == [(), (), ("f0",), ("f1", "f2"), ()]


def test_late_arrivals_join_the_pass() -> None:
    pool = ShufflingChunkPool(100, passes=1)
    pool.arrive([arrival(0, 4)])
    early = drawn(pool.draw(4))
    pool.arrive([arrival(1, 3)])
    pool.finish()
    assert {n for n, _, _ in early} == {0, 1, 2, 3}
    assert {n for n, _, _ in drawn(pool.draw(9))} == {4, 5, 6}
    assert pool.draw(1) is None


def test_an_empty_window_is_waited_for_and_ends_in_time() -> None:
    pool = ShufflingChunkPool()
    with pytest.raises(TimeoutError, match="chunks to draw from"):
        pool.draw(1, timeout=0.01)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(pool.draw(1)))
    thread.start()
    pool.arrive([arrival(0, 1)])
    thread.join()
    assert drawn(found[0]) == [(0, 0, 0)]
    pool.close()
    with pytest.raises(QueueClosed):
        pool.draw(1)
    finished = ShufflingChunkPool()
    finished.finish()
    assert finished.draw(1) is None


def test_anchors_count_what_came_since() -> None:
    pool = ShufflingChunkPool(100)
    pool.set_anchor("k0001")
    pool.arrive([arrival(i, 10) for i in range(4)])  # at the start, those above the anchor count
    assert pool.chunks_since_anchor == 20
    pool.draw(1)
    pool.arrive([arrival(0, 5)])  # later, all do
    assert pool.chunks_since_anchor == 25
    assert pool.reset_anchor() == pool.anchor() == "k0003"
    assert pool.chunks_since_anchor == 0
    pool.arrive([arrival(7, 2)])
    state = pool.state_dict()
    again = ShufflingChunkPool(100)
    again.load_state_dict(state)
    assert (again.anchor(), again.chunks_since_anchor) == ("k0003", 2)
    again.set_anchor("k0002")
    assert again.chunks_since_anchor == 12


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), st.integers(0, 50), st.integers(1, 5))
@settings(max_examples=50)
def test_hanse_decisions_do_not_depend_on_when_they_are_made(weights: list[float], seed: int, cut: int) -> None:
    held = np.array(weights)
    results = []
    for size in (cut, 100):
        pool = ShufflingChunkPool(100, seed, hanse=HanseSampling(0.8, seed), passes=4)
        pool.arrive([arrival(0, len(weights))])
        pool.finish()
        drawn_first = []
        while (draws := pool.draw(size)) is not None:
            assert (draws.use == OPEN).all()
            drawn_first.append(draws)
        decided = [pool.decide(draws, held[draws.number]) for draws in drawn_first]
        results.append([row for draws in decided for row in drawn(draws)])
    assert results[0] == results[1]
    used = Counter[int]()
    for number, use, _ in results[0]:
        if use != REJECTED:
            assert use == used[number]
            used[number] += 1
    largest = int(np.argmax(held))
    assert used[largest] == (4 if held[largest] > 0 else 0)


def test_a_draw_that_is_bound_to_be_rejected_is_known_to_be() -> None:
    hanse = HanseSampling(1.0, seed=3)
    hanse.accept(np.array([0]), np.array([10.0]))
    hopeless = hanse.hopeless(np.arange(1, 200), np.full(199, 5.0))
    taken = HanseSampling(1.0, seed=3)
    taken.accept(np.array([0]), np.array([10.0]))
    accepted = taken.accept(np.arange(1, 200), np.full(199, 5.0))
    np.testing.assert_array_equal(hopeless, ~accepted)
    assert 60 < hopeless.sum() < 140
    assert hanse.hopeless(np.arange(3), np.array([0.0, np.nan, 11.0])).tolist() == [True, True, False]


def test_a_journal_that_was_cut_goes_on_and_takes_moves_back(tmp_path: Path) -> None:
    path = tmp_path / "moves"
    with Journal(path) as journal:
        journal.write([Move(i, i, arrival(i, 1)) for i in range(3)])
    whole = path.read_bytes()
    for cut in range(1, 20):
        path.write_bytes(whole[:-cut])
        assert len(read_journal(path)) == 2
        with Journal(path) as journal:
            journal.write([Move(9, 2, arrival(9, 1))])
        assert [m.draw for m in read_journal(path)] == [0, 1, 9]
    with Journal(path) as journal:
        journal.resume(1)
        journal.write([Move(5, 1, arrival(5, 1), ("f0",))])
        assert [(m.draw, m.left) for m in read_journal(path)] == [(0, ()), (5, ("f0",))]
    assert journal.moves() == read_journal(path)


def test_bad_use_is_refused() -> None:
    for bad in ({"size": 0}, {"passes": 0}):
        with pytest.raises(PlanError):
            ShufflingChunkPool(**bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError):
        HanseSampling(-1)
    replay = ShufflingChunkPool(replay=[Move(0, 5, arrival(0, 1))])
    with pytest.raises(PlanError, match="no arrivals in a replay"):
        replay.arrive([arrival(0, 1)])
    with pytest.raises(StateError, match="a journal of this run"):
        replay.draw(1)


@pytest.mark.parametrize("change", [{"seed": 1}, {"size": 9}, {"largest": 1.0}, {"sources": 3}, {"log": [[0]]}])
def test_foreign_states_are_refused(change: dict[str, Any]) -> None:
    pool = ShufflingChunkPool(5)
    pool.arrive([arrival(0, 3)])
    state = pool.state_dict()
    with pytest.raises(StateError):
        ShufflingChunkPool(5).load_state_dict({**state, **change})
    with pytest.raises(StateError, match="has not begun"):
        pool.load_state_dict(state)
