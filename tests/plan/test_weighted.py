"""Weighted draws: shares at every prefix, random draws, and weights by sample, episode and column."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.map_dataset import planned_samples
from penstock.errors import PlanError, SpecError
from penstock.kernels.mixing import deal
from penstock.plan import Plan, PlanTransform, Shuffle, Steps, Weighted
from penstock.plan.weighted import _tree
from penstock.testing.plans import TransformContract, episodes_of
from tests.kernels.reference import mixing as reference

WEIGHTS = st.lists(
    st.one_of(st.integers(0, 5), st.floats(0, 1e6), st.floats(-40, 40).map(np.exp)), min_size=1, max_size=40
).filter(lambda weights: max(weights) > 0)


def steps(n: int) -> penstock.MapDataset:
    return penstock.from_arrays({"x": np.arange(n)}, [n]).steps()


class TestWeighted(TransformContract):
    keeps_samples = takes_uneven = same_samples = distinct = False

    def transform(self) -> PlanTransform:
        return Weighted(np.exp(np.arange(32) % 5), seed=3)

    def test_no_episodes_make_an_empty_plan(self) -> None:
        nothing = episodes_of([])
        assert len(Weighted(np.zeros(0)).reorder(Steps().plan(nothing))) == 0


class TestWeightedAtRandom(TestWeighted):
    def transform(self) -> PlanTransform:
        return Weighted(np.arange(32), "random", seed=3, epoch_length=50)


@settings(max_examples=150, deadline=None)
@given(WEIGHTS, st.integers(0, 2**64 - 1))
def test_each_sample_has_its_share_at_every_prefix(weights: list[float], seed: int) -> None:
    draws = steps(len(weights)).weighted(weights, seed=seed)
    share = np.array(weights) / np.sum(weights)
    count = np.zeros(len(weights))
    for k, sample in enumerate(planned_samples(draws).at(np.arange(300))["x"].tolist(), start=1):
        count[sample] += 1
        assert np.abs(count - share * k).max() <= draws.plan.bound + 1e-6
    assert draws.plan.bound < 2
    assert count[share == 0].sum() == 0


def plain_draws(weights: list[int], many: int) -> list[int]:
    """Numbers of leaves, by the rule of the tree, for distinct ascending weights; shares are rounded to float64."""
    seen: Counter[tuple[int, int]] = Counter()
    drawn: list[int] = []
    sums = [0.0, *itertools.accumulate(weight / max(weights) for weight in weights)]
    for _ in range(many):
        lo, hi = 0, len(weights)
        while hi - lo > 1:
            half = (sums[lo] + sums[hi]) / 2
            middle = min(range(lo + 1, hi), key=lambda i: (abs(sums[i] - half), -i))
            share = Fraction((sums[middle] - sums[lo]) / (sums[hi] - sums[lo]))
            n = seen[lo, hi]
            seen[lo, hi] += 1
            lower = (share * (n + 1) + Fraction(1, 2)) // 1 > (share * n + Fraction(1, 2)) // 1
            lo, hi = (lo, middle) if lower else (middle, hi)
        drawn.append(lo)
    return drawn


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, 997), min_size=1, max_size=20).map(sorted))
def test_draws_follow_the_rule_of_the_tree(weights: list[int]) -> None:
    plan = steps(len(weights)).weighted(weights).plan
    assert plan.positions(np.arange(200)).tolist() == plain_draws(weights, 200)


@pytest.mark.parametrize("draw", ["systematic", "random"])
def test_positions_need_no_state(draw: str) -> None:
    rng = np.random.default_rng(1)
    plan = steps(500).weighted(rng.exponential(size=500), draw=draw, seed=9).plan
    k = rng.integers(0, 1 << 61, 3000)
    order = rng.permutation(len(k))
    assert np.array_equal(plan.positions(k)[order], plan.positions(k[order]))


def test_the_kernel_is_its_definition() -> None:
    rng = np.random.default_rng(2)
    weight = np.sort(rng.exponential(size=700) ** 5)
    nodes, _ = _tree(np.concatenate([[0.0], np.cumsum(weight)]))
    k = rng.integers(0, 1 << 62, 5000)
    found = np.empty((2, 2, len(k)), np.int64)
    for function, (leaf, rank) in zip((deal, reference.deal), found, strict=True):
        function(k, nodes, leaf, rank)
    assert np.array_equal(*found)


def test_equal_weights_are_a_shuffle() -> None:
    draws = steps(40).weighted(np.full(40, 0.3), seed=5)
    epochs = [planned_samples(draws).at(np.arange(40) + 40 * e)["x"].tolist() for e in range(3)]
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_draws_have_the_distribution(seed: int) -> None:
    weights = np.array([1.0, 0, 2, 3, 3, 0.25, 10])
    drawn = planned_samples(steps(7).weighted(weights, draw="random", seed=seed)).at(np.arange(70_000))["x"]
    count, expected = np.bincount(drawn, minlength=7), 70_000 * weights / weights.sum()
    assert count[1] == 0
    used = weights > 0
    chi_square = ((count - expected)[used] ** 2 / expected[used]).sum()
    assert chi_square < 22.5  # 5 degrees of freedom: exceeded once in 2,400 seeds
    same = np.mean([a == b for a, b in pairwise(drawn.tolist())])
    assert abs(same - np.sum((weights / weights.sum()) ** 2)) < 0.01


def test_epoch_length_and_shuffle() -> None:
    draws = steps(3).weighted([1, 0, 3], epoch_length=8)
    assert Counter(draws[:]["x"].tolist()) == {0: 2, 2: 6}
    shuffled = draws.shuffle(seed=1)
    assert len(shuffled) == 8
    for epoch in range(5):
        k = np.arange(8 * epoch, 8 * epoch + 8)
        assert sorted(planned_samples(shuffled).at(k)["x"].tolist()) == sorted(
            planned_samples(draws).at(k)["x"].tolist()
        )


def test_weights_by_episode() -> None:
    data = penstock.from_arrays({"x": np.arange(9), "r": np.arange(9.0)}, [2, 3, 4])
    by_array = data.windows(2, pad="zero").weighted([0, 1, 2], by="episode")
    sums = np.array([1.0, 9.0, 26.0])
    assert sorted(set(planned_samples(by_array).at(np.arange(200))["x"][:, 0].tolist())) == [2, 3, 4, 5, 6, 7, 8]
    by_table = data.sequences().weighted("total_steps", lambda n: n - 2, by="episode")
    assert by_table[:]["mask"].sum(axis=1).tolist() in ([4, 3, 4], [4, 4, 3])
    by_function = data.steps().shuffle(4).weighted(lambda table: sums[table["id"]], by="episode")
    count = np.bincount(planned_samples(by_function).at(np.arange(6200))["x"], minlength=9)
    assert np.abs(count - 6200 * np.repeat(sums, [2, 3, 4]) / 133).max() <= by_function.plan.bound
    chosen = data.filter("total_steps > 2").steps().weighted([1, 0], by="episode")
    assert set(chosen[:]["x"].tolist()) == {2, 3, 4}


def test_weights_by_column_and_function() -> None:
    data = penstock.from_arrays({"x": np.arange(6), "a": np.log(np.arange(1.0, 7))}, [2, 4])
    by_column = data.steps().weighted("a", np.exp, epoch_length=21)
    assert Counter(by_column[:]["x"].tolist()) == {i: i + 1 for i in range(6)}
    by_function = data.steps().weighted(lambda columns: columns["x"] == 3)
    assert set(by_function[:]["x"].tolist()) == {3}
    windows = data.windows(2).weighted("a", lambda a: a[:, 1])
    assert len(windows) == 4
    mapped = data.steps().map(lambda columns: {"x": columns["x"], "w": columns["x"] + 1.0}).weighted("w")
    assert mapped.fingerprint != data.steps().weighted("x", lambda x: x + 1).fingerprint


def test_a_run_that_is_resumed_on_other_ranks_sees_the_same_batches() -> None:
    draws = steps(90).weighted(np.random.default_rng(3).exponential(size=90), seed=2).shuffle(7)
    whole = [batch["x"].tolist() for loader in [draws.loader(16)] for _ in range(3) for batch in loader]
    loader = draws.loader(16, threads=0)
    first = [batch["x"].tolist() for _, batch in zip(range(4), loader, strict=False)]
    state, rest = loader.state_dict(), []
    ranks = [draws.loader(16, rank=rank, world=3, threads=0) for rank in range(3)]
    for each in ranks:
        each.load_state_dict(state)
    for _ in range(3):
        for parts in zip(*ranks, strict=True):
            rest.append([x for part in parts for x in part["x"].tolist()])
    assert first + rest == whole
    batch = next(iter(loader))
    assert loader.why(batch.ticket).table["step"].tolist() == batch["x"].tolist()


def test_weighted_in_mixes_packs_and_shards() -> None:
    rare = steps(10).weighted(np.arange(10), seed=1)
    mixed = penstock.mix({"a": rare, "b": steps(10)}, [1, 1], stop=40)
    assert mixed[:]["x"][::2].tolist() == planned_samples(rare).at(np.arange(20))["x"].tolist()
    shards = [rare.shard(i, 2)[:]["x"].tolist() for i in range(2)]
    assert [x for pair in zip(*shards, strict=True) for x in pair] == rare[:]["x"].tolist()
    data = penstock.from_arrays({"tokens": np.arange(30)}, [3] * 10).sequences()
    packs = data.weighted([0] * 9 + [1]).pack(6)
    assert len(packs) == 5
    assert np.array_equal(packs[:]["tokens"], np.tile([27, 28, 29], (5, 2)))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, np.nan, 1], "got nan for sample 1"),
        ([1, -2, 1], r"got -2.0 for sample 1"),
        ([np.inf, 1, 1], "got inf for sample 0"),
        ([0, 0, 0], "at least one weight above 0"),
        ([1, 1], r"one weight for each sample, \[3\], got an array of shape \[2\]"),
        (["a", "b", "c"], "weights as numbers"),
    ],
)
def test_weights_that_say_nothing_are_refused(weights: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        steps(3).weighted(weights)


def test_wrong_arguments_are_refused() -> None:
    data = penstock.from_arrays({"x": np.arange(6)}, [2, 4])
    with pytest.raises(SpecError, match="got 'y'"):
        data.steps().weighted("y")
    with pytest.raises(PlanError, match=r"reduce the steps of a sample"):
        data.windows(2).weighted("x")
    with pytest.raises(PlanError, match="by to be 'sample' or 'episode'"):
        data.steps().weighted([1] * 6, by="step")
    with pytest.raises(PlanError, match="draw to be"):
        data.steps().weighted([1] * 6, draw="exact")
    with pytest.raises(PlanError, match="epoch_length"):
        data.steps().weighted([1] * 6, epoch_length=0)
    with pytest.raises(PlanError, match=r"one weight for each episode, \[2\]"):
        data.steps().weighted([1] * 6, by="episode")
    mixed = penstock.mix([data.steps(), data.steps()], stop="drain")
    with pytest.raises(PlanError, match="before they are mixed"):
        mixed.weighted([1, 1], by="episode")
    with pytest.raises(PlanError, match="same samples every epoch"):
        penstock.mix([data.steps(), data.steps()], stop=3).weighted([1, 1, 1])


def test_fingerprints_cover_weights_and_options() -> None:
    made = [
        steps(3).weighted([1, 2, 3]),
        steps(3).weighted([1, 2, 4]),
        steps(3).weighted([1, 2, 3], seed=1),
        steps(3).weighted([1, 2, 3], draw="random"),
        steps(3).weighted([1, 2, 3], epoch_length=9),
    ]
    assert len({data.fingerprint for data in made}) == 5
    assert made[0].fingerprint == steps(3).weighted([2, 4, 6]).fingerprint
    assert "Weighted(n=3" in planned_samples(made[0]).chain[-1]


def test_a_plan_below_that_is_shuffled_keeps_its_first_epoch() -> None:
    below: Plan = Shuffle(1).reorder(Steps().plan(episodes_of([5])))
    plan = Weighted([1, 1, 1, 1, 6]).reorder(below)
    last = below.resolve(np.array([4]))[0].start
    assert (plan.resolve(np.arange(100))[0].start == last).sum() == 60
