from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.plan.schedule import MixSchedule
from penstock.plan.splits import SplitTree
from penstock.plan.targets import ONE, PickTargets
from penstock.plan.weights import shares

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "packing" / "grain_mixing.json").read_text())["cases"]
MIXES = [c for c in GOLDEN if c["kind"] == "mix" and not c["selection_map"]]

Int = npt.NDArray[np.int64]


@st.composite
def mixes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Weights and sizes; a source without weight may be empty."""
    count = draw(st.integers(1, 12))
    weights = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count).filter(any))
    sizes = [draw(st.integers(1 if weight else 0, 60)) for weight in weights]
    return weights, sizes


def epoch(course: MixSchedule) -> tuple[Int, Int]:
    assert course.length is not None
    return course.picks(np.arange(course.length))


def counted(source: Int, sources: int) -> Int:
    return np.bincount(source, minlength=sources)


def assert_near(course: MixSchedule, targets: PickTargets) -> None:
    """Counts stay within the bound, and below one, of the targets after every pick."""
    source, _ = epoch(course)
    counts = np.cumsum(source[:, None] == np.arange(len(course.sizes)), axis=0).astype(object)
    wanted = np.array([targets.at(k + 1) for k in range(len(source))], object).reshape(counts.shape)
    assert np.abs(counts * ONE - wanted).max(initial=0) <= (course.bound + 1e-12) * ONE
    assert course.bound < 1


@settings(deadline=None)
@given(mixes())
def test_first_exhausted_ends_before_a_source_repeats(mix: tuple[list[int], list[int]]) -> None:
    weights, sizes = mix
    course = MixSchedule.of(shares(weights), sizes)
    source, rank = epoch(course)
    assert np.all(counted(source, len(sizes)) <= np.maximum(sizes, 0) * (np.array(weights) > 0))
    assert np.all(rank < np.array(sizes)[source])
    after = course.order.counts(int(course.length or 0) + 1)
    assert np.any(after > sizes)
    assert_near(course, PickTargets.of([(0, shares(weights))]))


@settings(deadline=None)
@given(mixes())
def test_all_exhausted_uses_up_every_source_and_no_more(mix: tuple[list[int], list[int]]) -> None:
    weights, sizes = mix
    course = MixSchedule.of(shares(weights), sizes, "all_exhausted")
    used = np.array(weights) > 0
    counts = counted(epoch(course)[0], len(sizes))
    assert np.all(counts[used] >= np.array(sizes)[used])
    before = course.counts(int(course.length or 0) - 1)
    assert np.any(before[used] < np.array(sizes)[used])
    assert_near(course, PickTargets.of([(0, shares(weights))]))


@settings(deadline=None)
@given(mixes())
def test_drain_gives_every_sample_once(mix: tuple[list[int], list[int]]) -> None:
    weights, sizes = mix
    wanted = [size if weight else 0 for size, weight in zip(sizes, weights, strict=True)]
    course = MixSchedule.of(shares(weights), sizes, "drain")
    source, rank = epoch(course)
    assert course.length == sum(wanted)
    assert counted(source, len(sizes)).tolist() == wanted
    assert len(set(zip(source.tolist(), rank.tolist(), strict=True))) == sum(wanted)
    assert np.all(rank < np.array(wanted)[source])
    assert_near(course, PickTargets.limited([(0, shares(weights))], wanted))


@settings(deadline=None)
@given(mixes(), st.integers(0, 500))
def test_a_number_is_the_length(mix: tuple[list[int], list[int]], length: int) -> None:
    weights, sizes = mix
    course = MixSchedule.of(shares(weights), sizes, length)
    source, _ = epoch(course)
    assert len(source) == course.length == length
    assert course.counts(length).tolist() == counted(source, len(sizes)).tolist()


@settings(deadline=None)
@given(st.data())
def test_changing_weights_follow_their_integral(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 10))
    positions = [0, *sorted(data.draw(st.sets(st.integers(1, 400), min_size=1, max_size=4)))]
    weights = st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any)
    stretches = [(at, shares(data.draw(weights))) for at in positions]
    assert_near(MixSchedule.of(stretches, [None] * count, 600), PickTargets.of(stretches))


def limited_targets(stretches: Any, limits: list[int | None], picks: int) -> list[list[Fraction]]:
    """The integrated shares after each pick, by small exact steps from event to event."""
    counts, now = [Fraction(0)] * len(limits), Fraction(0)
    out = [list(counts)]
    while len(out) <= picks:
        given = [part for at, part in stretches if at <= now][-1]
        left = [i for i, n in enumerate(limits) if given[i] and (n is None or counts[i] < n)]
        total = sum(given[i] for i in left)
        if not total:
            break
        ends = [(limits[i] - counts[i]) * total / given[i] for i in left if limits[i] is not None]
        step = min([*ends, len(out) - now, *(at - now for at, _ in stretches if at > now)])
        now += step
        for i in left:
            counts[i] += step * given[i] / total
        if now == len(out):
            out.append(list(counts))
    return out


@st.composite
def limited(draw: st.DrawFn) -> tuple[Any, list[int | None]]:
    count = draw(st.integers(1, 7))
    positions = [0, *sorted(draw(st.sets(st.integers(1, 150), max_size=3)))]
    weights = st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any)
    limits = draw(st.lists(st.none() | st.integers(0, 40), min_size=count, max_size=count))
    return [(at, shares(draw(weights))) for at in positions], limits


@settings(deadline=None)
@given(limited(), st.integers(0, 300))
def test_a_source_leaves_at_its_limit_and_the_others_share_its_part(mix: Any, length: int) -> None:
    stretches, limits = mix
    wanted = limited_targets(stretches, limits, length)
    if len(wanted) <= length:
        with pytest.raises(PlanError, match=f"at most {len(wanted) - 1} samples"):
            MixSchedule.of(stretches, [None] * len(limits), length, limits)
        return
    course = MixSchedule.of(stretches, [None] * len(limits), length, limits)
    source, rank = epoch(course)
    counts = np.cumsum(source[:, None] == np.arange(len(limits)), axis=0)
    for i, limit in enumerate(limits):
        assert limit is None or np.all(counts[:, i] <= limit)
        assert rank[source == i].tolist() == list(range(int(np.sum(source == i))))
        near = [abs(int(n) - targets[i]) for n, targets in zip(counts[:, i], wanted[1:], strict=True)]
        assert max(near, default=0) < 1
    assert course.picks(np.arange(length)[::-1])[0].tolist() == source[::-1].tolist()


def test_limits_in_long_runs_and_trees() -> None:
    limits = [None, 3 * 10**9, 7, None, 10**6]
    for weights in ([5, 3, 1, 1, 2], [0.123456789, 0.2, 0.0271828, 1e-5, 0.3333333]):
        course = MixSchedule.of(shares(weights), [None] * 5, "never", limits)
        counts = course.counts(10**15)
        assert counts[[1, 2, 4]].tolist() == [3 * 10**9, 7, 10**6]
        assert counts.sum() == 10**15
        wanted = 10**15 - 3 * 10**9 - 7 - 10**6
        assert abs(int(counts[0]) - wanted * Fraction(str(weights[0])) / Fraction(str(weights[0] + weights[3]))) < 2
        later = 10**15 + np.arange(1000)
        source, rank = course.picks(later)
        assert set(source.tolist()) <= {0, 3}
        assert rank[source == 0].tolist()[0] == counts[0]


@pytest.mark.parametrize(
    ("stop", "counts"),
    [("first_exhausted", [60, 10, 12]), ("all_exhausted", [60, 10, 12]), ("drain", [60, 10, 12]), (50, [28, 10, 12])],
)
def test_where_an_epoch_ends_with_limits(stop: Any, counts: list[int]) -> None:
    course = MixSchedule.of(shares([1, 1, 1]), [60, 5, 8], stop, [None, 10, 12])
    assert course.counts(course.length or 0).tolist() == counts
    assert course.offset(2).tolist() == [2 * n for n in counts]


def test_changing_weights_and_ends() -> None:
    turn = [(0, shares([1, 0])), (10, shares([0, 1]))]
    assert MixSchedule.of(turn, [10, 5]).length == 15
    assert MixSchedule.of(turn, [8, 5]).length == 8
    assert MixSchedule.of(turn, [20, 5]).length == 15
    assert MixSchedule.of(turn, [10, 5], "all_exhausted").length == 15
    with pytest.raises(PlanError, match="end at zero"):
        MixSchedule.of(turn, [11, 5], "all_exhausted")
    with pytest.raises(PlanError, match="end at zero"):
        MixSchedule.of(turn, [11, None])
    with pytest.raises(PlanError, match="constant"):
        MixSchedule.of(turn, [10, 5], "drain")


@pytest.mark.parametrize("case", MIXES, ids=lambda c: c["id"])
def test_mixes_of_grain(case: dict[str, Any]) -> None:
    """Same samples of the same sources over whole periods; order within a period differs where ours is nearer to the
    shares. Grain's datasets end at `floor(size / share)`; ours go on until a sample would come again."""
    parents = list(case["parents"].values()) if isinstance(case["parents"], dict) else case["parents"]
    given = case["weights"] or [1] * len(parents)
    weights = shares(list(given.values()) if isinstance(given, dict) else given)
    parts = PickTargets.of([(0, weights)]).weights[0]
    period = sum(parts)
    endless = isinstance(parents[0], dict)
    course = MixSchedule.of(
        weights, [None if endless else len(p) for p in parents], "never" if endless else "first_exhausted"
    )
    whole = len(case["output"]) // period * period
    if not endless:
        least = min(Fraction(len(p)) / share for p, share in zip(parents, weights, strict=True))
        assert int(least) - 1 <= (course.length or 0) < least + period
        whole = min(whole, (course.length or 0) // period * period)
        if case["mode"] == "map" and case["length"] % period == 0:
            assert (course.length or 0) >= case["length"]
    lists = [p["infinite_prefix"] if endless else p for p in parents]
    whole = min(whole, *(len(p) // part * period for p, part in zip(lists, parts, strict=True)))
    source, rank = course.picks(np.arange(whole))
    assert whole
    ours = [lists[s][r] for s, r in zip(source.tolist(), rank.tolist(), strict=True)]
    assert sorted(ours) == sorted(case["output"][:whole])


def test_sources_go_on_in_the_next_epoch() -> None:
    course = MixSchedule.of(shares([3, 1]), [7, 5])
    seen: list[tuple[int, int]] = []
    for number in range(4):
        source, rank = epoch(course)
        seen += zip(source.tolist(), (rank + course.offset(number)[source]).tolist(), strict=True)
    assert len(set(seen)) == len(seen)
    for s in range(2):
        assert [rank for one, rank in seen if one == s] == list(range(4 * int(course.counts(course.length or 0)[s])))


@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted", "drain", 11])
def test_an_epoch_begins_where_the_one_before_ended(stop: Any) -> None:
    course = MixSchedule.of(shares([3, 1, 0]), [7, 5, 9], stop)
    np.testing.assert_array_equal(course.offset(1), course.counts(course.length or 0))
    np.testing.assert_array_equal(course.offset(3), 3 * course.offset(1))


def test_endless_mixes() -> None:
    course = MixSchedule.of(shares([2, 1]), [3, None], "never")
    assert course.length is None
    assert course.picks(np.array([3 * 10**15]))[1].tolist() == [2 * 10**15]
    assert course.offset(0).tolist() == [0, 0]
    with pytest.raises(PlanError, match="never stops"):
        course.offset(1)
    with pytest.raises(PlanError, match="never stops"):
        course.realised(["a", "b"])
    assert [part.samples for part in course.realised(["a", "b"], length=30).parts] == [20, 10]


def test_the_report_has_both_units() -> None:
    course = MixSchedule.of(shares([4, 1]), [80, 20])
    report = course.realised(["short", "long"], [Fraction(10), Fraction(40)])
    assert [(part.samples, part.rows, part.share_of_rows) for part in report.parts] == [(80, 800, 0.5), (20, 800, 0.5)]


def test_a_thousand_sources_drain() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 400, 1000).tolist()
    course = MixSchedule.of(shares(rng.integers(1, 10**6, 1000).tolist()), sizes, "drain")
    assert counted(epoch(course)[0], 1000).tolist() == sizes


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 300)), min_size=2, max_size=20))
def test_a_tree_drains_exactly(sources: list[tuple[int, int]]) -> None:
    """As it does for mixes that no table holds."""
    weights, sizes = zip(*sources, strict=True)
    targets = PickTargets.limited([(0, shares(weights))], sizes)
    if len(targets.picked) > 1:
        assert SplitTree(targets).counts(sum(sizes)).tolist() == list(sizes)


def test_long_courses_of_odd_shares_are_exact_too() -> None:
    sizes = [10**12 + 7, 3 * 10**11 + 1, 77_777_777, 5, 10**9 + 9, 10**12]
    course = MixSchedule.of(shares([0.123456789, 0.2, 0.0271828, 1e-5, 0.3333333, 0.31459]), sizes, "drain")
    assert course.length == sum(sizes)
    assert course.counts(sum(sizes)).tolist() == sizes
    even = MixSchedule.of(shares(sizes), sizes, "all_exhausted")
    assert even.bound < 2
    assert np.all(even.counts(even.length or 0) - sizes <= 2)


@pytest.mark.parametrize(
    ("sizes", "stop", "message"),
    [
        ([1], "never", "2 sources"),
        ([1, -1], "never", "0 or more"),
        ([1, 0], "first_exhausted", "weight 0"),
        ([None, 2], "drain", "sources that end"),
        ([None, None], "first_exhausted", "sources that end"),
        ([None, None], "all_exhausted", "sources that end"),
        ([1, 1], -1, "2\\^62"),
        ([1, 1], "last", "first_exhausted"),
    ],
)
def test_courses_that_cannot_be(sizes: Any, stop: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        MixSchedule.of(shares([1, 1]), sizes, stop)


@pytest.mark.parametrize("positions", [[1], [0, 0], [0, 5, 3]])
def test_positions_ascend_from_zero(positions: list[int]) -> None:
    with pytest.raises(PlanError, match="ascending"):
        MixSchedule.of([(at, shares([1])) for at in positions], [1])


def test_a_course_is_printed_by_what_it_was_made_of() -> None:
    courses = [MixSchedule.of(shares([1, 2]), np.array([3, 4]), np.int64(9)) for _ in range(2)]
    assert repr(courses[0]) == repr(courses[1])
    assert "stop=9, length=9" in repr(courses[0])


def test_nothing_left_to_drain() -> None:
    assert MixSchedule.of(shares([1, 1]), [0, 0], "drain").length == 0
    assert len(epoch(MixSchedule.of(shares([1, 1]), [0, 3], "drain"))[0]) == 3
    with pytest.raises(PlanError, match="within"):
        MixSchedule.of(shares([1, 1]), [2, 2]).picks(np.array([4]))
