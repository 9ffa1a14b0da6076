"""Which samples are in memory: those whose last step is among the last `capacity` steps, for any order of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.arrays import IntArray
from penstock.kernels.replay import EPISODE
from penstock.replay.completions import ONE_EACH
from penstock.replay.folder import live_range
from penstock.replay.samples import AnchorRule, SampleLayout
from penstock.replay.segments import SegmentStore
from tests.replay.runs import SPEC, episode, episodes, filled, lengths_of, take


def entered(lengths: list[int], rule: AnchorRule, delay: int) -> tuple[IntArray, IntArray, IntArray]:
    """Episode, step, and completing step of all anchors, by plain loops."""
    rows: list[tuple[int, int, int]] = []
    before = 0
    for number, steps in enumerate(lengths):
        for step in range(rule.first, steps - rule.spare, rule.stride):
            rows.append((number, step, before + min(step + delay, steps - 1)))
        before += steps
    return tuple(np.array(rows).T) if rows else (np.zeros(0, np.int64),) * 3  # type: ignore[return-value]


RULES = [(AnchorRule(), 0), (AnchorRule(2, 3), 3), (AnchorRule(0, 4, 3), 6), (AnchorRule(stride=ONE_EACH), 5)]


@pytest.mark.parametrize(("rule", "delay"), RULES)
@pytest.mark.parametrize("seed", range(3))
def test_the_samples_in_memory_follow_from_the_lengths(rule: AnchorRule, delay: int, seed: int) -> None:
    capacity = int(np.random.default_rng(seed).integers(1, 300))
    lengths = lengths_of(seed, 300)
    store = SegmentStore(SPEC, SampleLayout(rule, (), delay=delay), capacity)
    number, step, since = entered(lengths, rule, delay)
    for n, each in enumerate(episodes(lengths), 1):
        store.add(each)
        steps = sum(lengths[:n])
        live = np.flatnonzero((since >= steps - capacity) & (since < steps))
        assert store.extent == (max(0, steps - capacity), steps)
        assert store.anchors == ((live[0], live[-1] + 1) if len(live) else store.anchors)
        if n % 40 == 0 and len(live):
            places = store.find(live)
            assert store.table[places[:, 0], EPISODE].tolist() == number[live].tolist()
            assert places[:, 1].tolist() == step[live].tolist()
            assert live_range(np.array(lengths[:n]), capacity) <= number[live[0]]
            assert store.lengths(places[:, 0]).tolist() == np.array(lengths)[number[live]].tolist()


@pytest.mark.parametrize("outside", [-1, 7, 1 << 40])
def test_anchors_outside_are_refused(outside: int) -> None:
    store = SegmentStore(SPEC, SampleLayout(AnchorRule(), ()), 100)
    store.add(episode(0, 7))
    with pytest.raises(IndexError, match="expected an anchor of an episode in memory"):
        store.find(np.array([3, outside]))


def test_a_store_that_starts_in_the_middle_goes_on_like_the_whole_run() -> None:
    lengths, rule = lengths_of(7, 400), AnchorRule(1, 1, 2)
    layout = SampleLayout(rule, (), delay=2)
    counts = rule.count(np.array(lengths))
    whole = SegmentStore(SPEC, layout, 90)
    first = live_range(np.array(lengths[:251]), 90)
    part = SegmentStore(SPEC, layout, 90, first=first, start=sum(lengths[:first]), anchors=int(counts[:first].sum()))
    for number, each in enumerate(episodes(lengths)):
        whole.add(each)
        if number >= first:
            part.add(each)
        if number >= 250:
            assert (part.extent, part.anchors, part.arrived) == (whole.extent, whole.anchors, whole.arrived)


def test_memory_and_tables_are_used_again() -> None:
    store = SegmentStore(SPEC, SampleLayout(AnchorRule(), ()), 1000)
    for each in episodes([10] * 110):
        store.add(each)
    known, rows = set(store.address[0].tolist()), len(store.table)
    for each in episodes([10] * 900, 110):
        store.add(each)
    assert set(store.address[0].tolist()) == known
    assert len(store.table) == rows


@pytest.mark.parametrize("samples", [penstock.replay.Transitions(n_step=2), penstock.transforms.Windows(2)])
@pytest.mark.parametrize("capacity", [12, 1000])
def test_episodes_without_steps_have_a_number_and_no_samples(samples: Any, capacity: int) -> None:
    lengths = [0, 3, 0, 0, 4, 5, 0]
    replay = filled(penstock.Replay(None, capacity, samples=samples, seed=3), lengths)
    assert (replay.refresh().episodes, replay.refresh().steps) == (7, 12)
    lines = replay.why(replay.sample(200).ticket).table
    assert set(lines["episode"].tolist()) == {1, 4, 5}


def test_a_capacity_below_one_sequence_is_refused() -> None:
    with pytest.raises(penstock.errors.PlanError, match="at least one sample, which is 16 steps, got 15"):
        penstock.Replay(None, 15, samples=penstock.transforms.Windows(16)).write(episode(0, 3))


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_a_capacity_is_a_positive_integer(capacity: int) -> None:
    with pytest.raises(penstock.errors.PlanError, match="expected capacity to be an integer"):
        penstock.Replay(None, capacity)


@pytest.mark.parametrize(("side", "steps"), [(40, 700), (1, 700), (20, 70)])
def test_segments_in_huge_pages_of_their_own_and_shared(side: int, steps: int) -> None:
    """Segments of more than 2 MB, of a few kB, and such as share 2 MB; each is used again."""
    frames = np.random.default_rng(3).integers(0, 256, (14040, side, side), np.uint8)
    columns = {"observations": frames, "rewards": np.arange(14000.0), "task": np.arange(40)}
    data = penstock.from_arrays(columns, lengths=[350] * 40, align={"task": "episode"})
    replay = penstock.Replay(None, 32 * steps // 4)
    replay.write_all(data)
    rows = np.arange(14000 - 32 * steps // 4, 14000) if 8 * steps < 14000 else np.arange(14000)
    batch = take(replay, rows)
    np.testing.assert_array_equal(batch["observations"], frames[rows + rows // 350])
    np.testing.assert_array_equal(batch["rewards"], columns["rewards"][rows])
    np.testing.assert_array_equal(batch["task"], rows // 350)
