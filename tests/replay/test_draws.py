"""Draws: functions of the seed, the number of the draw, and the arrivals and priorities before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import Episode
from penstock.core.arrays import IntArray
from penstock.formats.columns.writer import ColumnsWriter
from penstock.replay.prioritized import sequence_priorities
from penstock.replay.replay import run_of
from penstock.replay.sum_tree import SumTree, key_of
from tests.replay.runs import SPEC, drawn_from, episode, filled, take

GOLDEN, M1, M2, WHOLE = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, (1 << 64) - 1


def random_bits(key: int, number: int) -> int:
    """The definition: the number-th output of SplitMix64."""
    z = (key + (number + 1) * GOLDEN) & WHOLE
    z = ((z ^ (z >> 30)) * M1) & WHOLE
    z = ((z ^ (z >> 27)) * M2) & WHOLE
    return z ^ (z >> 31)


def anchors_of(replay: penstock.Replay, batch: Any) -> list[int]:
    return replay.why(batch.ticket).table["anchor"].tolist()


def test_uniform_draws_are_defined_by_key_and_number() -> None:
    replay = filled(penstock.Replay(None, 1000, seed=9), [10, 20])
    batches = [replay.sample(n) for n in (3, 1, 5)]
    drawn = [a for batch in batches for a in anchors_of(replay, batch)]
    assert drawn == [random_bits(int(key_of(9)), i) % 30 for i in range(9)]
    assert [batch.ticket.position for batch in batches] == [0, 3, 4]


def test_recent_draws_are_defined_by_key_and_number() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=penstock.replay.RecentSampler(half_life=5)), [10, 20])
    drawn = anchors_of(replay, replay.sample(50))
    for i, anchor in enumerate(drawn):
        u = (random_bits(int(key_of(0)), i) >> 11) / 2**53
        assert anchor == 29 - int(-5 * np.log2(1 - u * (1 - 2.0 ** (-30 / 5))))


def test_newer_samples_are_more_likely_by_the_half_life() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=penstock.replay.RecentSampler(half_life=100)), [400])
    counts = np.bincount(drawn_from(replay, 200_000).anchors // 100, minlength=4)
    np.testing.assert_allclose(counts / counts.sum(), np.array([1, 2, 4, 8]) / 15, atol=0.005)


@pytest.mark.parametrize("leaves", [1, 15, 16, 17, 255, 256, 257, 5000])
def test_a_tree_has_the_sums_of_its_weights(leaves: int) -> None:
    rng, tree = np.random.default_rng(leaves), SumTree()
    wanted = np.ones(leaves, np.float32)
    tree.extend(0, leaves, 1.0)
    for _ in range(5):
        anchors = rng.integers(0, leaves, 40)
        weights = rng.random(40).astype("f4") + np.float32(0.1)
        tree.set(anchors, weights)
        for a, w in zip(anchors.tolist(), weights, strict=True):
            wanted[a] = w
    assert tree.weights.tolist() == wanted.tolist()
    assert tree.total == pytest.approx(float(wanted.astype("f8").sum()), rel=1e-12)
    assert tree.least == wanted.min()
    again = SumTree()
    again.restore(0, wanted)
    assert again.total == tree.total
    assert again.draw(key_of(1), 0, 99)[0].tolist() == tree.draw(key_of(1), 0, 99)[0].tolist()


def test_a_tree_follows_a_range_that_moves() -> None:
    rng, tree = np.random.default_rng(0), SumTree()
    wanted: dict[int, float] = {}
    hi = 0
    for turn in range(60):
        new = int(rng.integers(1, 90))
        tree.extend(hi, hi + new, 0.5 + turn)
        wanted.update(dict.fromkeys(range(hi, hi + new), 0.5 + turn))
        hi += new
        lo = max(min(wanted), hi - 700)
        tree.drop(lo)
        wanted = {a: w for a, w in wanted.items() if a >= lo}
        assert (tree.lo, tree.hi) == (lo, hi)
        assert tree.weights.tolist() == [wanted[a] for a in range(lo, hi)]
        assert tree.total == pytest.approx(sum(wanted.values()), rel=1e-12)
        drawn, weights = tree.draw(key_of(turn), 0, 64)
        assert [wanted[a] for a in drawn.tolist()] == weights.tolist()


def test_priorities_are_drawn_in_proportion() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=penstock.replay.PrioritizedSampler(0.5, 1.0, 1e-9)), [64])
    priorities = np.arange(64.0) ** 2
    replay.update(np.arange(64), priorities)
    draw = drawn_from(replay, 200_000)
    wanted = np.maximum(np.arange(64.0), 1e-4)
    np.testing.assert_allclose(np.bincount(draw.anchors, minlength=64) / 200_000, wanted / wanted.sum(), atol=1e-3)
    seen = draw.anchors > 0
    weights = np.asarray(draw.weights)[seen] / np.asarray(draw.weights)[seen].max()
    probability = wanted[draw.anchors[seen]]
    np.testing.assert_allclose(weights, probability.min() / probability, rtol=1e-5)


def test_each_part_of_the_sum_has_one_draw() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=penstock.replay.PrioritizedSampler()), [10] * 10)
    assert sorted(anchors_of(replay, replay.sample(100))) == list(range(100))


def test_new_samples_have_the_highest_weight() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=penstock.replay.PrioritizedSampler(1.0)), [10])
    replay.update(np.arange(10), np.full(10, 3.0))
    filled(replay, [30], first=1)
    replay.update(np.arange(10), np.zeros(10))
    draw = drawn_from(replay, 3000)
    assert (draw.anchors >= 10).all()


def test_beta_grows_with_the_samples() -> None:
    sampler = penstock.replay.PrioritizedSampler(1.0, (0.0, 1.0, 100), 1e-9)
    replay = filled(penstock.Replay(None, 1000, sampler=sampler), [2])
    replay.update([0, 1], [1.0, 4.0])
    assert set(np.asarray(replay.sample(50)["weights"]).tolist()) == {1.0}
    assert set(np.asarray(replay.sample(50)["weights"]).tolist()) == {1.0, 0.5}
    assert set(np.asarray(replay.sample(50)["weights"]).tolist()) == {1.0, 0.25}


def test_ranks_decide_and_not_sizes() -> None:
    def drawn(scale: float) -> IntArray:
        sampler = penstock.replay.PrioritizedSampler(1.0, kind="rank")
        replay = filled(penstock.Replay(None, 1000, sampler=sampler), [100, 100])
        replay.update(np.arange(200), scale * np.random.default_rng(0).permutation(200))
        return drawn_from(replay, 50_000).anchors

    one = drawn(1.0)
    assert one.tolist() == drawn(1e6).tolist()
    rank = np.empty(200)
    rank[np.argsort(-np.random.default_rng(0).permutation(200))] = np.arange(1, 201)
    wanted = (1 / rank) / (1 / rank).sum()
    np.testing.assert_allclose(np.bincount(one, minlength=200) / 50_000, wanted, atol=2e-3)


def test_ranks_between_renewals_are_near() -> None:
    sampler = penstock.replay.PrioritizedSampler(1.0, kind="rank")
    replay = filled(penstock.Replay(None, 10_000, sampler=sampler), [1000])
    replay.update(np.arange(1000), np.arange(1000.0))
    drawn_from(replay, 1)
    replay.update([0], [499.5])
    probability = np.mean(drawn_from(replay, 400_000).anchors == 0)
    wanted = (1 / 500) / (1 / np.arange(1, 1001)).sum()
    assert probability == pytest.approx(wanted, rel=0.2)


def test_sequence_priorities_mix_the_largest_and_the_mean() -> None:
    errors, mask = np.array([[1.0, -5.0, 3.0], [2.0, 9.0, 9.0]]), np.array([[True] * 3, [True, False, False]])
    assert sequence_priorities(errors, mask).tolist() == [0.9 * 5 + 0.1 * 3, 2.0]
    with pytest.raises(penstock.errors.PlanError):
        sequence_priorities(errors, eta=1.1)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([0.0, np.nan], penstock.errors.DataError, "got nan for sample 1 of the batch; check the loss"),
        ([0.0, np.inf], penstock.errors.DataError, "got inf for sample 1"),
        ([-1.0, 0.0], penstock.errors.DataError, "got -1.0 for sample 0"),
        ([1.0], penstock.errors.DataError, "expected 2 priorities, one for each sample"),
        (["a", "b"], penstock.errors.ArgumentError, "expected numbers as priorities"),
        ([1e30, 1e30], penstock.errors.DataError, "scale them"),
    ],
)
def test_wrong_priorities_change_nothing(given: Any, error: type[Exception], message: str) -> None:
    replay = filled(penstock.Replay(None, 100, sampler=penstock.replay.PrioritizedSampler(2.0)), [5])
    before = str(replay.state_dict()["sampler"])
    with pytest.raises(error, match=message):
        replay.update([0, 1], given)
    assert str(replay.state_dict()["sampler"]) == before


def test_a_batch_names_its_samples() -> None:
    replays = [
        filled(penstock.Replay(None, 100, sampler=penstock.replay.PrioritizedSampler(), seed=3), [5]) for _ in range(2)
    ]
    for replay, by_ticket in zip(replays, (True, False), strict=True):
        batch = replay.sample(4)
        assert replay.update(batch.ticket if by_ticket else batch, [1.0, 2.0, 3.0, 4.0]) == 0
    np.testing.assert_equal(replays[0].state_dict(), replays[1].state_dict())


@pytest.mark.parametrize("which", [0.5, [0.5], [[1]], {"actions": [1]}, None])
def test_samples_are_a_list_of_integers(which: Any) -> None:
    replay = filled(penstock.Replay(None, 100, sampler=penstock.replay.PrioritizedSampler()), [5])
    with pytest.raises(
        penstock.errors.ArgumentError, match="expected a batch, its ticket or a list of numbers of samples"
    ):
        replay.update(which, [1.0])


def test_priorities_of_samples_that_left_are_counted() -> None:
    replay = filled(penstock.Replay(None, 20, sampler=penstock.replay.PrioritizedSampler()), [10, 10])
    batch = replay.sample(20)
    filled(replay, [10], first=2)
    assert replay.update(batch.ticket, np.ones(20)) == 10
    assert replay.refresh().expired == 10
    assert sorted(set(replay.why(batch.ticket).table["episode"].tolist())) == [-1, 1]


def test_arrays_that_cannot_be_written_are_accepted() -> None:
    replay = filled(penstock.Replay(None, 20, sampler=penstock.replay.PrioritizedSampler()), [10])
    anchors, priorities = np.arange(3), np.ones(3, "f4")
    anchors.flags.writeable = priorities.flags.writeable = False
    assert replay.update(anchors, priorities) == 0
    assert take(replay, anchors)["actions"].tolist() == [0, 1, 2]


def test_priorities_of_samples_to_come_are_refused() -> None:
    replay = filled(penstock.Replay(None, 20, sampler=penstock.replay.PrioritizedSampler()), [10])
    with pytest.raises(penstock.errors.ExpiredRowError, match="expected samples below 10, got 10"):
        replay.update([10], [1.0])


def test_tickets_of_others_are_refused() -> None:
    replay, other = (
        filled(penstock.Replay(None, 20, seed=s, sampler=penstock.replay.PrioritizedSampler()), [10]) for s in (0, 1)
    )
    ticket = other.sample(3).ticket
    replay.sample(3)
    with pytest.raises(penstock.errors.StateError, match="expected the ticket of one of the last 1,048,576 samples"):
        replay.update(ticket, np.ones(3))


def test_an_empty_replay_says_why(tmp_path: Path) -> None:
    with pytest.raises(penstock.errors.PlanError, match=r"got none: no episode has arrived$"):
        penstock.Replay(None, 20).sample(1)
    with pytest.raises(penstock.errors.PlanError, match=f"no episode has arrived in {tmp_path}"):
        penstock.Replay(tmp_path / "none", 20).sample(1)
    replay = filled(penstock.Replay(None, 20, samples=penstock.transforms.Windows(5)), [4, 4])
    with pytest.raises(penstock.errors.PlanError, match=r"no episode is as long as 5 steps, which Windows"):
        replay.sample(1)
    with pytest.raises(penstock.errors.PlanError, match="at least 1 sample"):
        replay.sample(0)


def test_uniform_replays_take_no_priorities() -> None:
    replay = filled(penstock.Replay(None, 20), [4])
    with pytest.raises(penstock.errors.PlanError, match="sampler=PrioritizedSampler"):
        replay.update([0], [1.0])


PRIORITIES = penstock.replay.PrioritizedSampler(1.0)
KINDS: list[Any] = [
    penstock.replay.UniformSampler(),
    penstock.replay.RecentSampler(30.0),
    penstock.replay.PrioritizedSampler(),
    penstock.replay.PrioritizedSampler(beta=(0.0, 1.0, 900), kind="rank"),
]


def run(replay: penstock.Replay, writer: ColumnsWriter, turns: range) -> list[list[int]]:
    """A run: an episode now and then, batches, and priorities that depend on the batch."""
    batches: list[list[int]] = []
    for turn in turns:
        if turn % 3 == 0:
            writer.write(episode(turn, 5 + turn % 7))
        batch = replay.sample(16)
        batches.append(batch["actions"].tolist())
        if isinstance(run_of(replay).options.sampler, penstock.replay.PrioritizedSampler):
            replay.update(batch.ticket, batch["rewards"] % 7)
            if turn % 5 == 0:
                lo = run_of(replay).anchors[0]
                replay.update([lo, lo + 1, lo], [1.0, 2.0, float(turn)])
    return batches


@pytest.mark.parametrize("sampler", KINDS, ids=repr)
def test_the_journal_repeats_a_run(sampler: Any, tmp_path: Path) -> None:
    path, journal = tmp_path / "store", tmp_path / "journal"
    writer = ColumnsWriter.create(path, SPEC)
    replay = penstock.Replay(path, 60, sampler=sampler, seed=3, journal=journal)
    batches = run(replay, writer, range(90))
    again = penstock.Replay(path, 60, sampler=sampler, seed=3, replays=journal)
    assert [again.sample(16)["actions"].tolist() for _ in range(90)] == batches
    with pytest.raises(penstock.errors.StateError, match="repeats a journal"):
        again.write(episode(0, 3))


@pytest.mark.parametrize("sampler", KINDS, ids=repr)
@pytest.mark.parametrize("begin", [1, 44])
def test_a_killed_learner_goes_on_from_its_state(sampler: Any, begin: int, tmp_path: Path) -> None:
    def new(name: str) -> tuple[penstock.Replay, ColumnsWriter]:
        writer = ColumnsWriter.create(tmp_path / name, SPEC)
        return penstock.Replay(tmp_path / name, 60, sampler=sampler, seed=3, journal=tmp_path / f"{name}.log"), writer

    whole = run(*new("whole"), range(90))
    replay, writer = new("store")
    first = run(replay, writer, range(begin))
    state = replay.state_dict()
    replay.sample(16)  # after the state, and lost with the process
    replay.close()
    resumed = penstock.Replay(tmp_path / "store", 60, sampler=sampler, seed=3, journal=tmp_path / "store.log")
    resumed.load_state_dict(state)
    assert first + run(resumed, writer, range(begin, 90)) == whole
    resumed.close()
    again = penstock.Replay(tmp_path / "store", 60, sampler=sampler, seed=3, replays=tmp_path / "store.log")
    if not isinstance(sampler, penstock.replay.PrioritizedSampler):
        assert [again.sample(16)["actions"].tolist() for _ in range(90)] == whole


def test_a_run_in_memory_goes_on_with_the_same_episodes() -> None:
    def new() -> penstock.Replay:
        return filled(penstock.Replay(None, 100, sampler=penstock.replay.PrioritizedSampler()), [30, 30, 30, 30])

    replay = new()
    batch = replay.sample(40)
    replay.update(batch.ticket, np.arange(40))
    state = replay.state_dict()
    wanted = replay.sample(40)["actions"].tolist()
    other = new()
    other.load_state_dict(state)
    assert other.sample(40)["actions"].tolist() == wanted
    with pytest.raises(penstock.errors.StateError, match="expected 4 episodes with the samples 20:120"):
        penstock.Replay(None, 100, sampler=penstock.replay.PrioritizedSampler()).load_state_dict(state)
    with pytest.raises(penstock.errors.StateError, match="with the same capacity, samples, sampler and seed"):
        penstock.Replay(None, 101, sampler=penstock.replay.PrioritizedSampler()).load_state_dict(state)
    with pytest.raises(penstock.errors.StateError, match="expected the state of a Replay"):
        other.load_state_dict({})


def test_a_forked_process_has_a_replay_of_its_own() -> None:
    replay = filled(penstock.Replay(None, 100), [30])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bytes(str(replay.sample(4)["actions"].tolist()), "ascii"))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1000).decode() == str(replay.sample(4)["actions"].tolist())
    os.close(reader)
    os.close(writer)


def test_batches_keep_their_memory() -> None:
    replay = filled(penstock.Replay(None, 60_000), [1000] * 50)
    first = replay.sample(30_000)  # large enough for memory that is used again
    before = first["observations"].copy()
    replay.sample(30_000)
    np.testing.assert_array_equal(first["observations"], before)


@pytest.mark.parametrize("by", ["task", "episode"])
def test_strata_are_equally_likely_while_samples_come_and_go(by: str) -> None:
    replay = penstock.Replay(None, 60, sampler=penstock.replay.StratifiedSampler(by), seed=2)
    rng = np.random.default_rng(0)
    for number in range(60):
        each = episode(number, int(rng.integers(1, 30)))
        each = Episode(SPEC, {**each.columns, "task": np.array([number % 3], "i4")})
        replay.write(each)
        everything = take(replay, np.arange(*run_of(replay).anchors))
        table = replay.why(replay.sample(120).ticket).table
        strata = table["episode"] if by == "episode" else table["episode"] % 3
        present = np.unique(everything["task"]) if by == "task" else np.unique(table["episode"])
        counts = np.array([(strata == value).sum() for value in present])
        assert counts.sum() == 120
        assert np.abs(counts - 120 / len(present)).max() < (2 if 120 % len(present) else 1e-9)
        sizes = {value: (table["probability"][strata == value] * len(present)) for value in present.tolist()}
        assert all(np.allclose(each, each[0]) for each in sizes.values())
    counts = np.bincount(drawn_from(replay, 60_000).anchors - run_of(replay).anchors[0], minlength=60)
    lines = replay.why(replay.sample(6000).ticket).table
    chance = dict(zip(lines["anchor"].tolist(), lines["probability"].tolist(), strict=True))
    np.testing.assert_allclose(counts / 60_000, [chance[a] for a in range(*run_of(replay).anchors)], atol=0.01)


@pytest.mark.parametrize("by", ["nothing", "observations"])
def test_strata_need_a_column_of_whole_numbers(by: str) -> None:
    replay = filled(penstock.Replay(None, 60, sampler=penstock.replay.StratifiedSampler(by)), [4])
    with pytest.raises(penstock.errors.SpecError, match="one whole number a step or episode"):
        replay.sample(1)


def test_a_replay_that_begins_with_an_offline_dataset_has_priorities_over_its_rows() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=PRIORITIES), [50, 50])
    for t in range(20):
        replay.add(
            np.full(3, 9000 + t, "f4"), 9000 + t, np.full(3, 9001 + t, "f4"), 0.0, False, False, extras={"task": 9}
        )
    replay.update(np.arange(120), np.where(np.arange(120) < 100, 3.0, 1.0))
    offline = np.mean(take(replay, drawn_from(replay, 20_000).anchors)["task"] < 9)
    assert offline == pytest.approx(300 / 320, abs=0.01)
