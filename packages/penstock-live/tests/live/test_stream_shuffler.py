"""Draws from a moving window: each number at most once a pass, evenly, whatever the size of calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.reference import draws as reference
from penstock.core.ragged import offsets_of
from penstock.errors import PlanError, StateError
from penstock_live.kernels import draws
from penstock_live.stream_shuffler import StreamShuffler


def shuffled(n: int, seed: int = 0) -> StreamShuffler:
    shuffler = StreamShuffler(seed)
    shuffler.extend(0, n)
    return shuffler


@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64, 65, 1000])
@pytest.mark.parametrize("seed", [0, 1, 1 << 63])
def test_a_pass_has_every_number_once(n: int, seed: int) -> None:
    shuffler = shuffled(n, seed)
    assert sorted(shuffler.draw(n + 5).tolist()) == list(range(n))
    assert len(shuffler.draw(1)) == 0


def test_seeds_and_passes_differ() -> None:
    orders = []
    for seed in (0, 1):
        shuffler = shuffled(100, seed)
        for _ in range(2):
            orders.append(tuple(shuffler.draw(100).tolist()))
            shuffler.restart()
    assert len(set(orders)) == 4


Moves = list[tuple[str, int]]
MOVES = st.lists(st.tuples(st.sampled_from(["in", "out", "draw"]), st.integers(0, 9)), max_size=30)


def run(moves: Moves, seed: int, cut: int = 0, restore_at: int = -1) -> list[list[int]]:
    """The numbers that every `draw` of `moves` gave; calls are cut into pieces of at most `cut`."""
    shuffler, drawn, (lo, hi) = StreamShuffler(seed), [], (0, 0)
    for i, (kind, n) in enumerate(moves):
        if i == restore_at:
            state = shuffler.state_dict()
            shuffler = StreamShuffler(seed)
            shuffler.load_state_dict(state)
        if kind == "draw":
            pieces = [cut] * (n // cut) + [n % cut] if cut else [n]
            drawn.append([k for piece in pieces for k in shuffler.draw(piece).tolist()])
        else:
            lo, hi = (lo, hi + n) if kind == "in" else (min(lo + n, hi), hi)
            shuffler.extend(lo, hi)
    return [*drawn, shuffler.draw(1000).tolist()]


@given(MOVES, st.integers(0, 1 << 64))
def test_no_number_twice_none_that_left_and_none_missing(moves: Moves, seed: int) -> None:
    drawn, (lo, hi), seen, calls = run(moves, seed), (0, 0), set[int](), 0
    for kind, n in [*moves, ("draw", 1000)]:
        if kind == "draw":
            numbers = drawn[calls]
            calls += 1
            assert all(lo <= k < hi for k in numbers)
            assert len(set(numbers)) == len(numbers)
            assert not seen.intersection(numbers)
            assert len(numbers) == min(n, len(set(range(lo, hi)) - seen))
            seen.update(numbers)
        else:
            lo, hi = (lo, hi + n) if kind == "in" else (min(lo + n, hi), hi)
    assert seen >= set(range(lo, hi))


@given(MOVES, st.integers(1, 4), st.integers(0, 30))
def test_neither_the_size_of_calls_nor_a_restored_state_changes_a_draw(moves: Moves, cut: int, at: int) -> None:
    assert run(moves, 7) == run(moves, 7, cut=cut) == run(moves, 7, restore_at=at)


def test_late_arrivals_are_as_likely_as_those_that_are_left() -> None:
    first = Counter[int]()
    for seed in range(4000):
        shuffler = shuffled(4, seed)
        taken = set(shuffler.draw(2).tolist())
        shuffler.extend(0, 8)
        (number,) = shuffler.draw(1).tolist()
        first[sorted({*range(8)} - taken).index(number)] += 1
    assert set(first) == set(range(6))
    assert max(abs(n - 4000 / 6) for n in first.values()) < 5 * np.sqrt(4000 / 6)


def test_all_orders_of_a_small_window_are_equally_likely() -> None:
    orders = Counter(tuple(shuffled(4, seed).draw(4).tolist()) for seed in range(4800))
    assert len(orders) == 24
    assert max(abs(n - 200) for n in orders.values()) < 5 * np.sqrt(200)


def test_many_small_arrivals_stay_few_ranges_until_something_is_drawn() -> None:
    shuffler = StreamShuffler()
    for hi in range(1, 1000):
        shuffler.extend(0, hi)
    assert len(shuffler.state_dict()["ranges"]) == 1
    shuffler.draw(1)
    for hi in range(1000, 1010):
        shuffler.extend(0, hi)
        shuffler.draw(1)
    assert len(shuffler.state_dict()["ranges"]) <= 11


def test_state_and_memory_do_not_grow_with_the_window() -> None:
    shuffler = shuffled(10**15)
    assert len(set(shuffler.draw(1000).tolist())) == 1000
    assert len(str(shuffler.state_dict())) < 300


def test_a_window_moves_to_the_right_only() -> None:
    shuffler = StreamShuffler()
    shuffler.extend(3, 9)
    for window in [(2, 9), (3, 8), (10, 9)]:
        with pytest.raises(PlanError, match="to the right of"):
            shuffler.extend(*window)
    assert shuffler.window == (3, 9)


@pytest.mark.parametrize(
    "change",
    [{"ranges": [[0, 5, 0]]}, {"ranges": [[0, 99, 0, 0]]}, {"ranges": [[0, 5, 0, 6]]}, {"window": None}, {"seed": 1}],
)
def test_a_foreign_state_is_refused(change: dict[str, Any]) -> None:
    shuffler = shuffled(5)
    before = shuffler.state_dict()
    with pytest.raises(StateError):
        shuffler.load_state_dict({**before, **change})
    assert shuffler.state_dict() == before


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.integers(0, 30), st.integers(0, (1 << 64) - 1))
def test_the_compiled_kernel_equals_its_definition(left: list[int], n: int, key: int) -> None:
    results = []
    for module in (draws, reference):
        remaining, out = np.array(left, np.int64), np.zeros(n, np.int64)
        drawn = module.draw_ranges(remaining, np.uint64(key), 5, out)
        results.append((drawn, remaining.tolist(), out.tolist()))
    assert results[0] == results[1]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 90), st.integers(0, 60)), max_size=4),
    st.booleans(),
    st.integers(0, (1 << 64) - 1),
)
def test_shuffled_places_equal_their_definition(chunks: list[tuple[int, int, int]], endless: bool, key: int) -> None:
    n, begin, k = (np.array([chunk[i] for chunk in chunks], np.int64) for i in range(3))
    cuts, number = offsets_of(k), 3 * np.arange(len(k))
    ours, wanted = np.zeros(cuts[-1], np.int64), np.zeros(cuts[-1], np.int64)
    draws.shuffle_places(np.uint64(key), number, n, begin, endless, cuts, ours)
    reference.shuffle_places(np.uint64(key), number, n, begin, endless, cuts, wanted)
    assert ours.tolist() == wanted.tolist()


def test_draws_need_elements() -> None:
    out = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="at least 0 elements, got -1"):
        draws.draw_ranges(np.array([2, -1]), np.uint64(0), 0, out)
    one = np.array([1])
    for n, begin in ((0, 0), (1, -1)):
        with pytest.raises(ValueError, match=f"got {n} and {begin}"):
            draws.shuffle_places(np.uint64(0), one, n * one, begin * one, True, np.array([0, 1]), out)
    for cuts in ([0, 2], [1, 1], [0, 0], [0, 2, 1]):
        of = np.ones(len(cuts) - 1, np.int64)
        with pytest.raises(ValueError, match=f"cuts from 0 to 1.* got {cuts[0]} to {cuts[-1]}"):
            draws.shuffle_places(np.uint64(0), of, of, of, True, np.array(cuts), out)
    with pytest.raises(ValueError, match="as many values of each kind as chunks, got 1, 1, 2"):
        draws.shuffle_places(np.uint64(0), one, one, np.array([0, 0]), True, np.array([0, 1]), out)


def test_a_negative_number_of_elements_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 elements"):
        draws.draw_ranges(np.array([-1]), np.uint64(0), 0, np.zeros(1, np.int64))
