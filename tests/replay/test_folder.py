"""A replay over a folder: collectors in this and in other processes, episodes that are saved, and ratios."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import penstock
from penstock import Replay
from penstock.errors import PlanError, StateError
from penstock.formats.columns.writer import ColumnsWriter
from penstock.replay.journal import MAGIC, JournalEntry, ReplayJournal, read_entries
from penstock.replay.replay import run_of
from tests.forking import forked
from tests.replay.runs import SPEC, episode, episodes, filled, lengths_of, take


def test_episodes_of_a_folder_arrive_between_draws(tmp_path: Path) -> None:
    replay = penstock.Replay(tmp_path / "store", 1000)
    assert not replay.refresh().may_sample(1)
    with ColumnsWriter.create(tmp_path / "store", SPEC) as writer:
        for number, each in enumerate(episodes([3, 4, 5])):
            writer.write(each)
            assert replay.refresh().samples == sum([3, 4, 5][: number + 1])
    batch = replay.sample(200)
    assert sorted(set(batch["task"].tolist())) == [0, 1, 2]


def test_a_replay_that_writes_keeps_every_episode_on_disk(tmp_path: Path) -> None:
    lengths = lengths_of(2, 40)
    replay = filled(penstock.Replay(tmp_path / "store", 50), lengths)
    assert replay.sample(8).n == 8
    replay.update_metadata({"task": "reach"})
    replay.close()
    data = penstock.open(tmp_path / "store")
    assert [len(each) for each in data] == lengths
    assert data.metadata["task"] == "reach"
    assert run_of(replay).contents.extent == (run_of(replay).contents.extent[0], sum(lengths))
    again = penstock.Replay(tmp_path / "store", 50)
    again.refresh()
    assert (run_of(again).contents.extent, run_of(again).anchors, run_of(again).contents.episodes) == (
        run_of(replay).contents.extent,
        run_of(replay).anchors,
        run_of(replay).contents.episodes,
    )
    memory = filled(penstock.Replay(None, 50), lengths)
    assert again.sample(8)["actions"].tolist() == memory.sample(8)["actions"].tolist()


def test_an_episode_longer_than_the_capacity_leaves_its_last_steps(tmp_path: Path) -> None:
    replay = filled(penstock.Replay(tmp_path / "store", 10), [4, 0, 12, 25])
    memory = filled(penstock.Replay(None, 10), [4, 0, 12, 25])
    for each in (replay, memory):
        assert (each.refresh().samples, each.refresh().episodes) == (10, 4)
        batch = each.sample(200)
        assert sorted(set(batch["actions"].tolist())) == list(range(3015, 3025))
        np.testing.assert_array_equal(batch["next_observations"][:, 0], batch["actions"] + 1)
    again = penstock.Replay(tmp_path / "store", 10)
    again.load_state_dict(replay.state_dict())
    assert again.sample(8)["actions"].tolist() == replay.sample(8)["actions"].tolist()


def collect(path: Path, first: int, count: int) -> None:
    with ColumnsWriter(path) as writer:
        for each in episodes([10] * count, first):
            writer.write(each)


def test_other_processes_collect(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ColumnsWriter.create(path, SPEC).close()
    replay = penstock.Replay(path, 100_000)
    workers = [forked(collect, path, 1000 * k, 20) for k in (1, 2)]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert replay.refresh().samples == 400
    everything = take(replay, np.arange(*run_of(replay).anchors))
    assert sorted(set(everything["task"].tolist())) == [*range(1000, 1020), *range(2000, 2020)]
    np.testing.assert_array_equal(everything["observations"][:, 0], everything["actions"].astype("f4"))


def test_compressed_stores_are_read(tmp_path: Path) -> None:
    lengths = lengths_of(4, 30)
    replay = penstock.Replay(tmp_path / "store", 80)
    with ColumnsWriter.create(tmp_path / "store", SPEC, compression=1, block_steps=4) as writer:
        for number, each in enumerate(episodes(lengths)):
            writer.write(each)
            if number % 4 == 3:
                replay.refresh()
    memory = filled(penstock.Replay(None, 80), lengths)
    assert replay.sample(64)["observations"].tolist() == memory.sample(64)["observations"].tolist()


def test_a_replaced_store_is_an_error(tmp_path: Path) -> None:
    replay = filled(penstock.Replay(tmp_path / "store", 100), [3, 4])
    replay.sample(1)
    replay.close()
    shutil.rmtree(tmp_path / "store")
    with ColumnsWriter.create(tmp_path / "store", SPEC) as writer:
        writer.write_all(episodes([9, 9, 9], 5))
    with pytest.raises(penstock.errors.FormatError, match="replaced or rolled back"):
        replay.sample(1)


def test_the_journal_of_a_killed_run_ends_with_its_last_whole_entry(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = ReplayJournal(path)
    update = JournalEntry(1, 8, 0, np.zeros(0, np.int64), np.arange(4, dtype="f4"))
    named = JournalEntry(2, 9, 0, np.arange(3), np.arange(3, dtype="f4"))
    for entry in (JournalEntry.arrival(0, 2), update, named):
        journal.write(entry)
    with pytest.raises(penstock.errors.LockedError):
        ReplayJournal(path)
    journal.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut] if cut >= len(MAGIC) else MAGIC)
        kept = [entry.drawn for entry in read_entries(path)]
        assert kept == [0, 8, 9][: len(kept)]
        assert len(kept) == sum(cut >= end for end in (58, 58 + 48, 58 + 48 + 68))
    path.write_bytes(whole[:-1])
    again = ReplayJournal(path)
    again.write(named)
    again.close()
    assert path.read_bytes() == whole
    damaged = bytearray(whole)
    damaged[70] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(penstock.errors.FormatError, match="with its checksum - at byte 58"):
        read_entries(path)
    path.write_bytes(b"something else")
    with pytest.raises(penstock.errors.FormatError, match="expected a journal of a replay"):
        read_entries(path)


def test_a_journal_that_is_too_short_is_refused(tmp_path: Path) -> None:
    replay = filled(penstock.Replay(tmp_path / "store", 100, journal=tmp_path / "a"), [5])
    replay.sample(1)
    state = replay.state_dict()
    replay.close()
    other = penstock.Replay(tmp_path / "store", 100, journal=tmp_path / "b")
    with pytest.raises(penstock.errors.StateError, match="expected the journal of the run that saved the state"):
        other.load_state_dict(state)


def test_nothing_is_drawn_before_enough_steps() -> None:
    ratio = penstock.replay.SampleRatio(1.0, min_size=10, wait="report")
    replay = filled(penstock.Replay(None, 100, ratio=ratio), [9])
    assert not replay.refresh().may_sample(1)
    with pytest.raises(penstock.errors.PlanError, match="at least min_size=10 steps to draw from, got 9"):
        replay.sample(1)
    filled(replay, [1], first=1)
    assert replay.sample(5).n == 5
    assert replay.refresh().may_sample(5)
    assert not replay.refresh().may_sample(6)


def test_one_thread_follows_the_ratio() -> None:
    ratio = penstock.replay.SampleRatio(4.0, min_size=50, tolerance=100, wait="report")
    replay = penstock.Replay(None, 10_000, ratio=ratio)
    number = 0
    for _ in range(400):
        while not replay.refresh().may_sample(32):
            assert replay.refresh().may_insert
            replay.write(episode(number, 5))
            number += 1
        replay.sample(32)
        assert abs(ratio.ahead(run_of(replay).contents.extent[1], replay.refresh().drawn)) <= 100
    assert replay.refresh().drawn == 400 * 32


def test_a_learner_and_a_collector_wait_for_each_other() -> None:
    ratio = penstock.replay.SampleRatio(2.0, min_size=20, tolerance=64, timeout=60)
    replay = penstock.Replay(None, 10_000, ratio=ratio)
    failures: list[BaseException] = []

    def collector() -> None:
        try:
            for each in episodes([5] * 200):
                replay.write(each)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    thread = threading.Thread(target=collector)
    thread.start()
    for _ in range(59):  # as many as the last episode needs, and no more than the ratio allows
        replay.sample(32)
        assert ratio.ahead(run_of(replay).contents.extent[1], replay.refresh().drawn) <= 64
    thread.join()
    assert failures == []
    assert run_of(replay).contents.extent[1] == 1000


def test_waiting_ends_with_the_timeout(tmp_path: Path) -> None:
    ratio = penstock.replay.SampleRatio(1.0, min_size=10, tolerance=5, timeout=0.0)
    replay = penstock.Replay(tmp_path / "store", 100, ratio=ratio)
    with pytest.raises(
        penstock.errors.PlanError, match=r"expected the other side to go on within 0.0 s before drawing 4"
    ):
        replay.sample(4)
    memory = filled(penstock.Replay(None, 100, ratio=ratio), [10, 6])
    with pytest.raises(penstock.errors.PlanError, match="before adding steps, with 16 steps and 0 samples so far"):
        memory.write(episode(2, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples_per_insert": 0},
        {"samples_per_insert": float("nan")},
        {"samples_per_insert": 1, "min_size": 0},
        {"samples_per_insert": 8, "tolerance": 7},
        {"samples_per_insert": 1, "wait": "sleep"},
    ],
)
def test_impossible_ratios_are_refused(wrong: Any) -> None:
    with pytest.raises(penstock.errors.PlanError):
        penstock.replay.SampleRatio(**wrong)


def test_environments_record_into_a_replay(tmp_path: Path) -> None:
    replay = penstock.Replay(tmp_path / "store", 10_000, samples=penstock.replay.Transitions(n_step=3))
    with penstock.record(gymnasium.make_vec("CartPole-v1", 4), replay, seed=0) as envs:
        penstock.recording.rollout_vector(envs, episodes=12, seed=1)
    batch = replay.sample(256)
    assert batch["observations"].shape == batch["next_observations"].shape == (256, 4)
    assert set(np.round(batch["rewards"], 4).tolist()) <= {1.0, 1.99, 2.9701}
    assert (batch["discounts"][batch["terminations"]] == 0).all()


def test_each_rank_has_its_part_of_the_episodes(tmp_path: Path) -> None:
    def rank(number: int, **options: Any) -> Replay:
        return Replay(tmp_path / "run", 60, index=number, count=2, seed=3, **options)

    learners = [rank(0), rank(1)]
    seen: list[set[int]] = [set(), set()]
    state: dict[str, Any] = {}
    with Replay(tmp_path / "run", 1000) as writer:
        for number in range(25):
            writer.write(episode(number, 5 + number % 3))
            for i, learner in enumerate(learners):
                if number >= 1:
                    seen[i] |= set((learner.sample(16)["task"]).tolist())
            if number == 20:
                state = learners[1].state_dict()
                following = learners[1].sample(8)
                shutil.copytree(tmp_path / "run", tmp_path / "then")
    assert seen[0] <= set(range(0, 25, 2))
    assert seen[1] == set(range(1, 25, 2))
    assert learners[0].sample(8)["actions"].tolist() != learners[1].sample(8)["actions"].tolist()
    late = rank(0)
    late.refresh()
    assert (run_of(late).anchors, run_of(late).contents.extent) == (
        run_of(learners[0]).anchors,
        run_of(learners[0]).contents.extent,
    )
    assert set(late.why(late.sample(64).ticket).table["episode"].tolist()) <= set(range(0, 25, 2))
    resumed = Replay(tmp_path / "then", 60, index=1, count=2, seed=3)
    resumed.load_state_dict(state)
    np.testing.assert_array_equal(resumed.sample(8)["actions"], following["actions"])
    with pytest.raises(StateError):
        late.load_state_dict(state)


def test_ranks_that_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="below count=2"):
        Replay(tmp_path / "run", 60, index=2, count=2)
    with pytest.raises(PlanError, match="expected a path"):
        Replay(None, 60, count=2)
    replay = Replay(None, 60)
    replay.write(episode(0, 5))
    with pytest.raises(PlanError, match=r"Replay\(path, ..., index=1, count=2\)"):
        replay.batches(2).loader(rank=1, world=2)
    with pytest.raises(penstock.errors.ArgumentError, match=r"replay.batches\(256\) has batches, offline="):
        penstock.mix({"a": replay})  # type: ignore[dict-item]


def test_files_of_old_episodes_are_removed(tmp_path: Path) -> None:
    lengths = lengths_of(6, 120)
    bounded = Replay(tmp_path / "bounded", 100, keep_steps=150, sampler=penstock.replay.PrioritizedSampler(1.0), seed=1)
    whole = Replay(tmp_path / "whole", 100, sampler=penstock.replay.PrioritizedSampler(1.0), seed=1)
    states: dict[int, Any] = {}
    sizes: list[int] = []
    for number, steps in enumerate(lengths):
        for replay in (bounded, whole):
            replay.write(episode(number, steps))
        batch, wanted = bounded.sample(8), whole.sample(8)
        assert batch["observations"].tolist() == wanted["observations"].tolist()
        for replay in (bounded, whole):
            replay.update(batch.ticket, batch["rewards"] % 7)
        if number in (80, 119):
            states[number] = bounded.state_dict()
        if number % 10 == 9:
            sizes.append(sum(file.stat().st_size for file in (tmp_path / "bounded" / "segments").rglob("*.values")))
    row = sum(each.row_bytes for each in SPEC.values())
    assert max(sizes) < 3 * 150 * row
    data = penstock.open(tmp_path / "bounded")
    assert 150 <= data.total_steps < 150 + 12
    assert [len(each) for each in data] == lengths[-len(data) :]
    again = Replay(tmp_path / "bounded", 100, sampler=penstock.replay.PrioritizedSampler(1.0), seed=1)
    again.load_state_dict(states[119])
    following = whole.sample(8)
    assert again.sample(8)["actions"].tolist() == following["actions"].tolist()
    assert (run_of(again).contents.extent, run_of(again).anchors, run_of(again).contents.episodes) == (
        run_of(whole).contents.extent,
        run_of(whole).anchors,
        run_of(whole).contents.episodes,
    )
    with pytest.raises(StateError, match="raise keep_steps, or save states more often"):
        again.load_state_dict(states[80])
    assert again.why(again.sample(8).ticket).table["episode"].min() > 90


def test_a_learner_that_falls_behind_goes_on_behind_what_left(tmp_path: Path) -> None:
    lengths = lengths_of(7, 120)
    sampler = penstock.replay.PrioritizedSampler(1.0)
    with Replay(tmp_path / "store", 60, keep_steps=60) as writer:
        writer.write(episode(0, lengths[0]))
        slow = Replay(tmp_path / "store", 60, sampler=sampler, seed=5)
        slow.sample(4)
        for number in range(1, 120):
            writer.write(episode(number, lengths[number]))
    with pytest.raises(StateError, match="keeps episodes from number"):
        Replay(tmp_path / "store", 60, replays=_journal_of(tmp_path, 5)).sample(1)
    batch = slow.sample(32)
    memory = filled(Replay(None, 60, sampler=sampler, seed=5), lengths[:1])
    memory.sample(4)
    filled(memory, lengths[1:], 1)
    assert batch["observations"].tolist() == memory.sample(32)["observations"].tolist()
    assert (run_of(slow).contents.extent, run_of(slow).anchors) == (
        run_of(memory).contents.extent,
        run_of(memory).anchors,
    )


def _journal_of(folder: Path, episodes: int) -> Path:
    journal = ReplayJournal(folder / "journal")
    journal.write(JournalEntry.arrival(0, episodes))
    journal.close()
    return folder / "journal"


@pytest.mark.parametrize(("keep", "message"), [(99, "at least 100, the capacity of all learners"), (0, "at least 1")])
def test_a_folder_keeps_what_fits_in_memory(tmp_path: Path, keep: int, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Replay(tmp_path / "store", 50, keep_steps=keep, count=2)
    with pytest.raises(PlanError, match="memory has no files"):
        Replay(None, 50, keep_steps=100)
