from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.plan import fair, splits
from penstock.plan.fair import LIMIT, FairTable, Order
from penstock.plan.schedule import LONGEST, Schedule
from penstock.plan.splits import SplitTree
from penstock.plan.targets import ONE, PickTargets
from penstock.plan.weights import shares
from tests.kernels.reference import mixing as reference

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "packing" / "grain_mixing.json").read_text())["cases"]
LONG = [0.123456789, 0.31415926535, 0.2718281828, 0.1, 0.05, 0.01, 1e-9]
"""Shares that repeat after far more than `LIMIT` picks."""

Int = npt.NDArray[np.int64]
weights_of = st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any)


def drawn(order: Order, n: int) -> tuple[Int, Int]:
    source, rank = np.empty(n, np.int64), np.empty(n, np.int64)
    order.picks(np.arange(n), source, rank)
    return source, rank


def running(source: Int, sources: int) -> Int:
    """`[n, D]` counts after each pick."""
    return np.cumsum(source[:, None] == np.arange(sources), axis=0)


def deviation(source: Int, targets: PickTargets) -> float:
    """The greatest distance of a count from its target, after any pick."""
    wanted = np.array([targets.at(k + 1) for k in range(len(source))])
    return float(np.abs(running(source, wanted.shape[1]).astype(object) * ONE - wanted).max() / ONE)


def assert_sound(order: Order, targets: PickTargets, n: int) -> None:
    """Picks, ranks, counts and places agree, and counts stay within the bound."""
    source, rank = drawn(order, n)
    counts = running(source, targets.counts.shape[1])
    np.testing.assert_array_equal(rank, counts[np.arange(n), source] - 1)
    assert deviation(source, targets) <= order.bound + 1e-12
    for k in {0, n // 3, n // 2, n - 1}:
        np.testing.assert_array_equal(order.counts(k + 1), counts[k])
        assert order.place(int(source[k]), int(rank[k])) == k


@settings(deadline=None)
@given(weights_of)
def test_counts_stay_within_a_sample(weights: list[int]) -> None:
    schedule = Schedule.of(shares(weights))
    assert schedule.bound < 1
    assert_sound(schedule.order, PickTargets.of([(0, schedule.shares)]), 2 * sum(weights))


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=60))
def test_a_tree_stays_within_its_bound(weights: list[int]) -> None:
    targets = PickTargets.of([(0, shares(weights))])
    tree = SplitTree(targets)
    assert tree.bound < (1 if len(weights) <= 4 else 2)
    assert_sound(tree, targets, 300)


def stretches(data: st.DataObject, most: int, last: int) -> list[tuple[int, tuple[Fraction, ...]]]:
    count = data.draw(st.integers(1, most))
    weights = st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any)
    positions = data.draw(st.sets(st.integers(1, last), max_size=4))
    return [(at, shares(data.draw(weights))) for at in [0, *sorted(positions)]]


@settings(deadline=None)
@given(st.data())
def test_shares_that_change_stay_within_a_sample(data: st.DataObject) -> None:
    targets = PickTargets.of(stretches(data, 12, 900))
    order = FairTable.of(targets, None)
    assert order is not None
    assert order.bound < 1
    assert_sound(order, targets, 1200)


@settings(deadline=None)
@given(st.data())
def test_a_tree_follows_shares_that_change(data: st.DataObject) -> None:
    targets = PickTargets.of(stretches(data, 12, 400))
    if len(targets.picked) > 1:
        order = SplitTree(targets)
        has_gaps = any(weights[source] == 0 for weights in targets.weights for source in targets.picked)
        # A node adds 1/2 to what it passes on, whole at worst.
        # Three leaves lie at most two nodes deep, four leaves three.
        shallow = len(targets.picked) <= 3 or len(targets.weights) == 1
        assert order.bound <= (1 if shallow and not has_gaps else 1.5) or len(targets.picked) > 4
        assert_sound(order, targets, 500)


def test_long_stretches_fold_into_a_short_table() -> None:
    changing = [(0, shares([5, 3, 2])), (10**12 + 1, shares([2, 3, 5])), (10**15 + 7, shares([0, 1, 1]))]
    targets = PickTargets.of(changing)
    order = FairTable.of(targets, None)
    assert order is not None
    assert len(order.table) < 200
    for k in (10**12 - 3, 10**12 + 5, 10**14, 10**15, 10**15 + 40, 10**17):
        assert np.abs(order.counts(k).astype(object) * ONE - targets.at(k)).max() < ONE
        source, rank = np.empty(1, np.int64), np.empty(1, np.int64)
        order.picks(np.array([k]), source, rank)
        assert order.place(int(source[0]), int(rank[0])) == k
        assert order.counts(k)[source[0]] == rank[0]


def defined(shares: tuple[Fraction, ...], n: int) -> list[tuple[int, int]]:
    """Picks by the rule itself, in exact fractions: of the sources that may be picked, the one that is due first."""
    counts, order = [0] * len(shares), list[tuple[int, int]]()
    early = Fraction(1, max(2 * sum(share > 0 for share in shares) - 2, 2))
    for k in range(1, n + 1):
        may = [i for i, share in enumerate(shares) if share * k >= counts[i] + early]
        due = {i: int((counts[i] + 1 - early) / shares[i]) for i in may}
        ready = {i: -(-(counts[i] + early) // shares[i]) for i in may}
        i = min(may, key=lambda i: (due[i], ready[i], i))
        order.append((i, counts[i]))
        counts[i] += 1
    return order


@pytest.mark.parametrize("weights", [[1], [1, 1], [5, 3, 2], [1, 2, 4, 8], [7, 0, 2, 1], [0.5, 0.25, 0.125, 0.125]])
def test_a_table_is_what_its_rule_says(weights: list[float]) -> None:
    schedule = Schedule.of(shares(weights))
    source, rank = schedule.picks(np.arange(50))
    assert list(zip(source.tolist(), rank.tolist(), strict=True)) == defined(schedule.shares, 50)


@pytest.mark.parametrize("weights", [[3, 2, 1, 0], LONG, [1, 1e-9], list(range(1, 1001))])
def test_an_order_equals_its_definition(weights: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = shares(weights)
    k = np.concatenate([np.arange(700), 2**31 + np.arange(-9, 9), 2**53 + np.arange(-9, 9), LONGEST - 1 - np.arange(9)])
    picks = Schedule.of(wanted).picks(k)
    monkeypatch.setattr(fair, "earliest_deadline", reference.earliest_deadline)
    monkeypatch.setattr(fair, "mix_table", reference.mix_table)
    monkeypatch.setattr(splits, "mix_tree", reference.mix_tree)
    np.testing.assert_array_equal(picks, Schedule.of(wanted).picks(k))


@settings(deadline=None)
@given(
    st.sampled_from([(5, 3, 2), tuple(LONG)]), st.lists(st.integers(0, LONGEST - 1), max_size=50), st.integers(0, 50)
)
def test_picks_do_not_depend_on_their_grouping(weights: Any, k: list[int], cut: int) -> None:
    schedule, at = Schedule.of(shares(weights)), np.array(k, np.int64)
    whole, parts = schedule.picks(at), [schedule.picks(part) for part in (at[:cut], at[cut:])]
    for one, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(one, np.concatenate(pieces))


@settings(deadline=None)
@given(st.sampled_from([(5, 3, 2), tuple(LONG), (1, 1e-9)]), st.integers(0, LONGEST - 2))
def test_places_invert_picks_up_to_the_end(weights: Any, k: int) -> None:
    schedule = Schedule.of(shares(weights))
    source, rank = (int(part[0]) for part in schedule.picks(np.array([k])))
    assert schedule.place(source, rank) == k
    before, after = schedule.counts(k), schedule.counts(k + 1)
    assert (before.sum(), after.sum(), before[source], after[source]) == (k, k + 1, rank, rank + 1)


@pytest.mark.parametrize("weights", [LONG, list(range(1, 1001)), [1, 1.009], [1] * 7])
def test_long_runs_keep_their_shares(weights: list[float]) -> None:
    schedule = Schedule.of(shares(weights))
    for k in (10**6, 10**9 + 7, 2**53):
        wanted = np.array([share * k for share in schedule.shares])
        assert np.abs(schedule.counts(k) - wanted).max() <= schedule.bound


def test_tiny_and_zero_weights() -> None:
    schedule = Schedule.of(shares([1, 0, 1e-9]))
    assert schedule.counts(4 * (10**9 + 1)).tolist() == [4 * 10**9, 0, 4]
    assert schedule.place(2, 0) == pytest.approx(5e8, rel=1e-3)
    for never in ((1, 0), (3, 0), (0, -1), (2, 1 << 33)):
        with pytest.raises(PlanError, match="before 2\\^62"):
            schedule.place(*never)
    assert Schedule.of(shares([1, "1e-30"])).counts(1 << 62).tolist() == [1 << 62, 0]
    assert Schedule.of(shares([0, 2])).picks(np.arange(3))[0].tolist() == [1, 1, 1]


def test_small_weights_are_not_rounded_away() -> None:
    """A block of 2048 with `int(weight * block)` of each never picks a source below 1/2048."""
    weights = [1.0, *[1e-4] * 8]
    assert Schedule.of(shares(weights)).counts(10_008 * 3).tolist() == [30_000, *[3] * 8]


@pytest.mark.parametrize("weights", [(1, 1), (LIMIT - 1, 1), (LIMIT, 1)])
def test_the_longest_table(weights: tuple[int, int]) -> None:
    order = Schedule.of(shares(weights)).order
    assert isinstance(order, FairTable) == (sum(weights) <= LIMIT)
    assert order.bound <= 0.5


def test_picks_outside_are_refused() -> None:
    schedule = Schedule.of(shares([1, 2]))
    for bad in (-1, LONGEST):
        with pytest.raises(PlanError, match="within"):
            schedule.picks(np.array([0, bad]))
    for wrong in ([Fraction(1, 2)], [Fraction(2), Fraction(-1)], [0.5, 0.5], []):
        with pytest.raises(PlanError, match="add up to 1"):
            Schedule.of(wrong)


@pytest.mark.parametrize("case", [c for c in GOLDEN if c["kind"] == "selection_function"], ids=lambda c: c["id"])
def test_every_period_holds_what_grain_gives(case: dict[str, Any]) -> None:
    """Grain's order is another, and may be off by more than a sample inside a period; its whole periods are ours."""
    schedule = Schedule.of(shares(case["weights"]))
    theirs = np.array(case["output"])
    period = schedule.order.table.shape[0] if isinstance(schedule.order, FairTable) else LIMIT
    for n in range(period, len(theirs) + 1, period):
        np.testing.assert_array_equal(np.bincount(theirs[:n, 0], minlength=len(schedule.shares)), schedule.counts(n))
    ours = drawn(schedule.order, len(theirs))[0]
    targets = PickTargets.of([(0, schedule.shares)])
    assert deviation(ours, targets) <= deviation(theirs[:, 0], targets) + 1e-6
    assert deviation(ours, targets) < 1


@pytest.mark.parametrize("weights", [[1, 1, 1], [3, 1], LONG])
def test_each_source_counts_through_its_samples(weights: list[float]) -> None:
    source, rank = Schedule.of(shares(weights)).picks(np.arange(5000))
    for s in range(len(weights)):
        mine = rank[source == s].tolist()
        assert all(b == a + 1 for a, b in pairwise(mine))
        assert mine[:1] in ([0], [])
