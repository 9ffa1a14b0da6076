"""Positions by use: each once in so many uses, as many as wanted, as often as weighed."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock_live.unpacker import ChunkUnpacker

SIZES = st.sampled_from([0, 1, 2, 3, 15, 16, 17, 100])
SEEDS = st.integers(-5, 1 << 66)


@given(st.integers(1, 40), SIZES, st.integers(0, 10**12), SEEDS, st.integers(0, 9))
def test_a_rate_of_one_in_k_has_each_position_exactly_once_in_k_uses(
    k: int, n: int, number: int, seed: int, first: int
) -> None:
    unpacker = ChunkUnpacker(rate=Fraction(1, k), seed=seed)
    uses = [unpacker.places(number, use, n) for use in range(first * k, first * k + k)]
    assert sorted(np.concatenate(uses).tolist()) == list(range(n))
    assert all((np.diff(use) > 0).all() for use in uses)
    assert max(map(len, uses)) - min(map(len, uses)) <= 1


@given(st.fractions(Fraction(1, 50), 1), st.integers(1, 60), st.integers(0, 1000), SEEDS)
def test_any_rate_is_kept_on_average_and_no_use_has_a_position_twice(
    rate: Fraction, n: int, number: int, seed: int
) -> None:
    unpacker, uses = ChunkUnpacker(rate=rate, seed=seed), 20
    taken = [unpacker.places(number, use, n).tolist() for use in range(uses)]
    assert all(len(set(use)) == len(use) for use in taken)
    assert abs(sum(map(len, taken)) - uses * n * rate) <= 1
    counts = Counter(place for use in taken for place in use)
    often = [counts[place] for place in range(n)]
    assert max(often) - min(often) <= 1


def test_short_chunks_are_used_at_any_use() -> None:
    """A chunk of one position at 1/33: all 33 uses are as likely to have it."""
    unpacker = ChunkUnpacker(rate="1/33", seed=1)
    uses = Counter(next(u for u in range(33) if len(unpacker.places(c, u, 1))) for c in range(3300))
    assert set(uses) == set(range(33))
    assert max(abs(n - 100) for n in uses.values()) < 50


@given(st.integers(1, 7), SIZES, st.integers(0, 1000), SEEDS)
def test_a_count_repeats_nothing_until_all_was_taken(k: int, n: int, number: int, seed: int) -> None:
    unpacker = ChunkUnpacker(count=k, seed=seed)
    taken = np.concatenate([unpacker.places(number, use, n) for use in range(3 * n)] or [np.zeros(0)]).tolist()
    assert len(taken) == 3 * n * k
    for cycle in range(3 * k):
        assert sorted(taken[cycle * n : (cycle + 1) * n]) == list(range(n))


@given(st.integers(1, 4), st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=12), SEEDS)
def test_weighted_uses_are_cut_from_one_sequence(k: int, weights: list[float], seed: int) -> None:
    held = np.array(weights)
    one, many = ChunkUnpacker(count=1, seed=seed), ChunkUnpacker(count=k, seed=seed)
    uses = [many.places(3, use, len(held), held).tolist() for use in range(4)]
    flat = [place for use in uses for place in use]
    if held.max() == 0:
        assert flat == []
    else:
        assert flat == [int(one.places(3, use, len(held), held)[0]) for use in range(4 * k)]
        assert all(held[place] > 0 for place in flat)


def test_positions_come_as_often_as_they_weigh() -> None:
    weights, unpacker = np.array([1.0, 0.0, 2.0, 4.0]), ChunkUnpacker(count=70, seed=2)
    counts = Counter(place for c in range(100) for place in unpacker.places(c, 1, 4, weights).tolist())
    assert counts[1] == 0
    assert [abs(counts[p] - n) < 150 for p, n in [(0, 1000), (2, 2000), (3, 4000)]] == [True] * 3


@given(
    st.sampled_from([{"count": 1}, {"count": 7}, {"rate": 1}, {"rate": "2/3"}, {"rate": "1/50"}]),
    st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1000), SIZES), max_size=6),
    SEEDS,
)
def test_a_use_of_each_of_several_chunks_has_the_places_of_each(
    options: dict[str, Any], chunks: list[tuple[int, int, int]], seed: int
) -> None:
    unpacker = ChunkUnpacker(**options, seed=seed)
    places, cuts = unpacker.one_use_each(*np.array(chunks, np.int64).reshape(-1, 3).T.copy())
    assert [places[a:b].tolist() for a, b in pairwise(cuts.tolist())] == [
        unpacker.places(*chunk).tolist() for chunk in chunks
    ]


def test_seeds_and_chunks_differ() -> None:
    for make in (lambda s: ChunkUnpacker(count=8, seed=s), lambda s: ChunkUnpacker(rate=0.4, seed=s)):
        found = {str(make(seed).places(number, 1, 20)) for seed in range(5) for number in range(5)}
        assert len(found) >= 24


BAD: list[dict[str, Any]] = [{}, {"rate": 1, "count": 1}, {"rate": 0}, {"rate": 1.5}, {"count": 0}]


@pytest.mark.parametrize("bad", BAD)
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        ChunkUnpacker(**bad)


@pytest.mark.parametrize("weights", [[1.0], [1.0, np.nan], [1.0, -1.0], [np.inf, 1.0]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(PlanError, match="2 weights that are finite"):
        ChunkUnpacker(count=1).places(0, 0, 2, np.array(weights))
    with pytest.raises(PlanError, match="no weights with a rate"):
        ChunkUnpacker(rate=0.5).places(0, 0, 2, np.ones(2))
