"""Which episodes are in memory: rows and anchors keep their numbers, and the oldest leave in whole segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from penstock.kernels.replay import EPISODE
from penstock.replay.samples import AnchorRule
from penstock.replay.segments import SegmentStore, fits, live_range
from tests.replay.runs import SPEC, episode, episodes, filled, lengths_of


def plain(lengths: list[int], capacity: int, segment_steps: int) -> list[list[int]]:
    """The segments after these episodes, by a plain list."""
    segments: list[list[int]] = []
    for number, steps in enumerate(lengths):
        newest = segments[-1] if segments else None
        if newest is None or not fits(sum(lengths[e] for e in newest), len(newest), steps, segment_steps):
            segments.append([])
        while sum(lengths[e] for s in segments for e in s) + steps > capacity:
            segments.pop(0)
            if not segments:
                segments.append([])
        segments[-1].append(number)
    return segments


@pytest.mark.parametrize("seed", range(8))
def test_the_stored_episodes_follow_from_the_lengths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity, segment_steps = int(rng.integers(12, 200)), int(rng.integers(1, 40))
    lengths = lengths_of(seed, 300)
    store = SegmentStore(SPEC, AnchorRule(), capacity, segment_steps)
    for n, each in enumerate(episodes(lengths), 1):
        store.add(each)
        wanted = plain(lengths[:n], capacity, segment_steps)
        first = wanted[0][0]
        assert live_range(lengths[:n], capacity, segment_steps) == first
        assert store.extent == (sum(lengths[:first]), sum(lengths[:n]))
        assert store.table[:, EPISODE].tolist() == list(range(first, n))
    assert store.extent[1] - store.extent[0] <= capacity


@pytest.mark.parametrize("rule", [AnchorRule(), AnchorRule(2, 3), AnchorRule(0, 4, 3)])
def test_every_anchor_is_found(rule: AnchorRule) -> None:
    lengths = lengths_of(5, 3000, most=9)
    store = SegmentStore(SPEC, rule, 4000, 150)
    for each in episodes(lengths):
        store.add(each)
    lo, hi = store.anchors
    counts = rule.count(np.array(lengths))
    owner = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    anchors = np.random.default_rng(0).permutation(np.arange(lo, hi))
    places = store.find(anchors)
    assert hi == counts.sum()
    assert store.table[places[:, 0], EPISODE].tolist() == owner[anchors].tolist()
    assert places[:, 1].tolist() == (rule.first + rule.stride * within[anchors]).tolist()


@pytest.mark.parametrize("outside", [-1, 7, 1 << 40])
def test_anchors_outside_are_refused(outside: int) -> None:
    store = SegmentStore(SPEC, AnchorRule(), 100, 10)
    store.add(episode(0, 7))
    with pytest.raises(IndexError, match="expected an anchor of an episode in memory"):
        store.find(np.array([3, outside]))


def test_a_store_that_starts_in_the_middle_goes_on_like_the_whole_run() -> None:
    lengths, rule = lengths_of(7, 400), AnchorRule(1, 1, 2)
    counts = rule.count(np.array(lengths))
    whole = SegmentStore(SPEC, rule, 90, 13)
    for number, each in enumerate(episodes(lengths)):
        whole.add(each)
        if number == 250:
            first = live_range(lengths[:251], 90, 13)
            at = {"first": first, "start": sum(lengths[:first]), "anchors": int(counts[:first].sum())}
            part = SegmentStore(SPEC, rule, 90, 13, **at)
            for old in episodes(lengths[first:251], first):
                part.add(old)
        if number >= 250:
            if number > 250:
                part.add(each)
            assert (part.extent, part.anchors, part.arrived) == (whole.extent, whole.anchors, whole.arrived)


def test_memory_is_used_again() -> None:
    store = SegmentStore(SPEC, AnchorRule(), 100, 10)
    for each in episodes([10] * 11):
        store.add(each)
    known = set(store.address[0].tolist())
    for each in episodes([10] * 90, 11):
        store.add(each)
    assert set(store.address[0].tolist()) == known


def test_an_episode_longer_than_a_segment_has_its_own() -> None:
    store = SegmentStore(SPEC, AnchorRule(), 100, 10)
    for each in episodes([3, 60, 3, 3]):
        store.add(each)
    assert store.extent == (0, 69)
    store.add(episode(4, 40))
    assert store.extent == (63, 109)


def test_episodes_that_cannot_be_stored_are_refused() -> None:
    replay = penstock.Replay(None, 100)
    replay.write(episode(0, 5))
    with pytest.raises(penstock.errors.DataError, match="at most 100 steps, the capacity"):
        replay.write(episode(1, 101))
    assert (replay.episodes, replay.extent) == (1, (0, 5))


@pytest.mark.parametrize("samples", [penstock.replay.Transitions(n_step=2), penstock.transforms.Windows(2)])
@pytest.mark.parametrize("capacity", [12, 1000])
def test_episodes_without_steps_have_a_number_and_no_samples(samples: Any, capacity: int) -> None:
    lengths = [0, 3, 0, 0, 4, 5, 0]
    replay = filled(penstock.Replay(None, capacity, samples=samples, seed=3), lengths)
    assert (replay.episodes, replay.extent[1]) == (7, 12)
    lines = replay.why(replay.sample(200).ticket).table
    first = live_range(lengths, capacity, replay.segment_steps)
    assert set(lines["episode"].tolist()) == {e for e, n in enumerate(lengths) if n and e >= first}


def test_a_capacity_below_one_sequence_is_refused() -> None:
    with pytest.raises(penstock.errors.PlanError, match="at least one sample, which is 16 steps, got 15"):
        penstock.Replay(None, 15, samples=penstock.transforms.Windows(16)).write(episode(0, 3))


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_a_capacity_is_a_positive_integer(capacity: int) -> None:
    with pytest.raises(penstock.errors.PlanError, match="expected capacity to be an integer"):
        penstock.Replay(None, capacity)


@pytest.mark.parametrize(("side", "segment_steps"), [(40, 700), (1, 700), (20, 70)])
def test_segments_in_huge_pages_of_their_own_and_shared(side: int, segment_steps: int) -> None:
    """Segments of more than 2 MB, of a few kB, and such as share 2 MB; each is used again."""
    frames = np.random.default_rng(3).integers(0, 256, (14040, side, side), np.uint8)
    columns = {"observations": frames, "rewards": np.arange(14000.0), "task": np.arange(40)}
    data = penstock.from_arrays(columns, lengths=[350] * 40, align={"task": "episode"})
    replay = penstock.Replay(None, 5600, segment_steps=segment_steps)
    replay.write_all(data)
    batch = replay.take(np.arange(*replay.anchors))
    rows = np.arange(replay.extent[0], 14000)
    np.testing.assert_array_equal(batch["observations"], frames[rows + rows // 350])
    np.testing.assert_array_equal(batch["rewards"], columns["rewards"][rows])
    np.testing.assert_array_equal(batch["task"], rows // 350)
