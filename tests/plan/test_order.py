"""Shuffle, Repeat, Shard, and the order that transforms may stand in."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.plan import DerivedPlan, Pairs, Plan, Repeat, Shard, Shuffle, Split, Steps, Where, Windows, apply
from penstock.testing.plans import episodes_of

SEAMS = [0, 1, 2, *(2**k + d for k in (2, 4, 8, 12) for d in (-1, 0, 1)), 65537, 1048577]


def steps(n: int) -> Plan:
    return Steps().plan(episodes_of([n]))


def positions(plan: Plan, k: Any) -> Any:
    assert isinstance(plan, DerivedPlan)
    return plan.positions(np.asarray(k, np.int64))


@pytest.mark.parametrize("n", SEAMS)
@pytest.mark.parametrize("shuffle", [Shuffle(3), Shuffle(3, block=64, pool=4), Shuffle(3, block=1000, pool=1)], ids=str)
def test_an_epoch_has_every_sample_once(n: int, shuffle: Shuffle) -> None:
    plan = shuffle.reorder(steps(n))
    for epoch in (0, 1, 2**20):
        k = np.arange(epoch * n, (epoch + 1) * n)
        np.testing.assert_array_equal(np.sort(positions(plan, k)), k)


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(1, 400), st.integers(1, 400), st.integers(0, 2**64 - 1))
def test_pools_of_any_size_are_exact(n: int, block: int, pool: int, seed: int) -> None:
    order = Shuffle(seed, block, pool).order(np.arange(2 * n), n)
    np.testing.assert_array_equal(np.sort(order), np.arange(2 * n))


@settings(deadline=None)
@given(
    st.integers(1, 300), st.integers(1, 60), st.integers(1, 9), st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 7])
)
def test_pools_are_as_their_definition_says(n: int, block: int, pool: int, seed: int, epoch: int) -> None:
    """Blocks change places, are cut into pools, and each pool of each epoch is shuffled by a key of its own."""

    def permuted(count: int, stream: int, key: int) -> list[int]:
        return permute(np.arange(count), np.full(count, count), np.full(count, stream), key).tolist()

    block = min(block, n)
    blocks = [list(range(first, min(first + block, n))) for first in range(0, n, block)]
    moved = [blocks[number] for number in permuted(len(blocks), epoch, seed)]
    pools = [list(chain(*moved[first : first + pool])) for first in range(0, len(moved), pool)]
    expected: list[int] = []
    for number, samples in enumerate(pools):
        places = permuted(len(samples), epoch * len(pools) + number, (seed + 1) % 2**64)
        expected += [samples[place] for place in places]
    order = Shuffle(seed, block, pool).order(np.arange(epoch * n, (epoch + 1) * n), n)
    assert (order - epoch * n).tolist() == expected


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 50), st.integers(1, 20))
def test_a_block_is_read_within_one_pool(n: int, block: int, pool: int) -> None:
    """All positions that read a block lie within `pool * block` of each other."""
    blocks = Shuffle(1, block, pool).order(np.arange(n), n) // block
    for number in range(-(-n // block)):
        where = np.flatnonzero(blocks == number)
        assert where[-1] - where[0] < pool * block


def test_pools_mix_within_and_blocks_change_places() -> None:
    order = Shuffle(2, block=100, pool=4).order(np.arange(10_000), 10_000)
    assert len(set((order[:400] // 100).tolist())) == 4
    assert np.mean(np.diff(order[:400] // 100) != 0) > 0.6
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.3


def test_seed_and_epoch_change_the_order() -> None:
    for options in ({}, {"block": 5, "pool": 2}):
        orders = [
            tuple(Shuffle(seed, **options).order(np.arange(40) + 40 * epoch, 40) % 40)
            for seed in range(30)
            for epoch in range(30)
        ]
        assert len(set(orders)) == 900


def test_blocks_as_large_as_can_be() -> None:
    assert sorted(Shuffle(1, block=2**62, pool=2**62).order(np.arange(9), 9).tolist()) == list(range(9))
    n = 2**62
    k = np.array([0, n // 2, n - 1])
    assert len(set(Shuffle(1).order(k, n).tolist())) == 3
    np.testing.assert_array_equal(np.sort(Shuffle(1, block=1, pool=n).order(np.array([5]), 6)) < 6, [True])


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 9))
def test_shards_hold_every_sample_once(n: int, count: int) -> None:
    plan = Shuffle(4).reorder(steps(n))
    shards = [Shard(index, count).reorder(plan) for index in range(count)]
    assert sum(map(len, shards)) == n
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    for epoch in (0, 3):
        parts = [positions(s, np.arange(epoch * len(s), (epoch + 1) * len(s))) for s in shards]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(epoch * n, (epoch + 1) * n))
        assert all((p % n % count == i).all() for i, p in enumerate(parts) if n)


@pytest.mark.parametrize(("times", "n"), [(1, 5), (3, 5), (4, 0)])
def test_repeat_counts_epochs_on(times: int, n: int) -> None:
    plan = Repeat(times).reorder(Shuffle(1).reorder(steps(n)))
    assert len(plan) == times * n
    k = np.arange(2 * times * n)
    assert positions(plan, k).tolist() == k.tolist()


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (
            (Shuffle(1),),
            r"expected Shuffle\(seed=1, .*\) after Steps, Windows, .* got it after 'Episodes'",
        ),
        ((Split(), Shard(0, 2)), r"expected Shard.* got it after Split\(sizes=\(0.9, 0.1\)"),
        ((Steps(), Windows(2)), r"expected Windows\(.* before the samples are cut, got it after Steps"),
        ((Steps(), Shuffle(1), Where("id > 1")), r"expected Where\(.* got it after Shuffle\(seed=1"),
        ((Pairs(), Split()), r"expected Split\(.* got it after Pairs\(offset=1"),
        ((5,), "expected a transform such as Windows or Shuffle after 'Episodes', got 5"),
        ((Steps(), "shuffle"), r"expected a transform .* after Steps\(.*, got 'shuffle'"),
    ],
)
def test_a_wrong_order_names_both(chain: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        apply(episodes_of([9]), *chain)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shuffle(-1), "Shuffle seed to be an integer within 0 to 18446744073709551615, got -1"),
        (lambda: Shuffle(2**64), "Shuffle seed"),
        (lambda: Shuffle("a"), "Shuffle seed"),
        (lambda: Shuffle(1, block=2), "both block and pool or neither, got block=2 and pool=None"),
        (lambda: Shuffle(1, block=0, pool=1), "Shuffle block"),
        (lambda: Shuffle(1, block=1, pool=0), "Shuffle pool"),
        (lambda: Repeat(0), "Repeat times to be an integer of at least 1, got 0"),
        (lambda: Shard(2, 2), "Shard index to be an integer within 0 to 1, got 2"),
        (lambda: Shard(0, 0), "Shard count"),
        (lambda: Shuffle().reorder(steps(2**62 + 1)), r"at most 2\^62 samples"),
        (lambda: steps(3).resolve(np.array([-1])), "positions of 0 or more, got -1"),
        (lambda: Shuffle().reorder(steps(0)).resolve(np.array([0])), "a plan with samples, got an empty one"),
    ],
)
def test_what_cannot_be_ordered(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()
