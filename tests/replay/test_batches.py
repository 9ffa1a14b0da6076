"""Batches of a replay in a loop and in a `Loader`, alone and mixed with an offline dataset."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.map_dataset import planned_samples
from penstock.formats.columns.writer import ColumnsWriter
from penstock.loading.ticket import Ticket
from penstock.replay.batches import ReplayBatches
from penstock.replay.replay import run_of
from tests.replay.runs import SPEC, episode, episodes, filled

PRIORITIES = penstock.replay.PrioritizedSampler(1.0)


def offline(n: int = 40) -> penstock.MapDataset:
    source = penstock.formats.MemorySource.from_episodes(episodes([n], first=500))
    return penstock.EpisodeDataset(source).apply(penstock.transforms.Steps(next_observations=True)).shuffle(seed=4)


def test_a_loader_gives_the_batches_of_a_loop() -> None:
    one, other = (filled(penstock.Replay(None, 100, sampler=PRIORITIES), [9, 9]) for _ in range(2))
    loop, loader = iter(one.batches(6)), iter(other.batches(6).loader())
    for _ in range(5):
        wanted, batch = next(loop), next(loader)
        assert batch["actions"].tolist() == wanted["actions"].tolist()
        assert batch.ticket == wanted.ticket
        for replay in (one, other):
            replay.update(wanted.ticket, wanted["rewards"])


def test_a_loader_goes_on_from_its_state(tmp_path: Path) -> None:
    def loader(name: str) -> tuple[penstock.Replay, penstock.Loader]:
        replay = penstock.Replay(tmp_path / name, 40, sampler=PRIORITIES)
        return replay, replay.batches(6, offline=offline()).loader(output=lambda batch: batch)

    def run(replay: penstock.Replay, batches: Any, turns: range) -> list[list[int]]:
        found: list[list[int]] = []
        with ColumnsWriter(tmp_path / "store") as writer:
            for turn in turns:
                writer.write(episode(turn, 4 + turn % 3))
                batch = next(batches)
                found.append(batch["actions"].tolist())
                replay.update(batch.ticket, batch["rewards"][: batch.ticket.count] % 5)
        return found

    ColumnsWriter.create(tmp_path / "store", SPEC).close()
    replay, first = loader("store")
    batches = iter(first)
    before = run(replay, batches, range(30))
    state = first.state_dict()
    assert len(state["pipeline"]["pending"]) == 1
    after = run(replay, batches, range(30, 40))
    again, second = loader("store")
    second.load_state_dict(state)
    resumed = iter(second)
    assert next(resumed)["actions"].tolist() == after[0]
    assert len(before) == 30
    assert run_of(again).contents.episodes >= 30


@pytest.mark.parametrize(("size", "share"), [(8, 0.5), (7, 0.5), (10, 0.3), (1, 0.25), (4, 1.0), (4, 0.0)])
def test_shares_are_exact_at_every_prefix(size: int, share: float) -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=PRIORITIES), [30])
    data = offline()
    batches = iter(replay.batches(size, offline=data, share=share))
    online, other = 0, 0
    for turn in range(1, 40):
        batch = next(batches)
        own = int((batch["source"] == 0).sum())
        assert batch.n == size
        assert sorted(batch["source"].tolist()) == batch["source"].tolist()
        assert (batch["task"][:own] == 0).all()
        rows = planned_samples(data).at(np.arange(other, other + size - own))
        assert batch["actions"][own:].tolist() == rows["actions"].tolist()
        assert (batch["weights"][own:] == 1).all()
        online, other = online + own, other + size - own
        assert abs(online - share * size * turn) < 1
        if own:
            assert batch.ticket.count == own
            replay.update(batch.ticket, np.ones(own))


def test_an_offline_dataset_needs_the_same_outputs() -> None:
    replay = filled(penstock.Replay(None, 1000), [30])
    data = penstock.from_arrays({"rewards": np.ones(3)}, lengths=[3]).steps()
    with pytest.raises(
        penstock.errors.PlanError, match=r"expected the outputs .* of the replay in the offline dataset"
    ):
        next(iter(replay.batches(4, offline=data)))


@pytest.mark.parametrize("size", [1, 4])  # alone in a batch, and together
@pytest.mark.parametrize(("rewards", "got"), [(np.ones(3, "f4"), "float32"), (np.ones((3, 2), "i4"), r"\(2,\)")])
def test_an_offline_dataset_needs_the_dtypes_and_shapes_of_the_replay(size: int, rewards: Any, got: str) -> None:
    replay = penstock.Replay(None, 100)
    replay.write(penstock.from_arrays({"rewards": np.arange(4, dtype="i4")}, [4])[0])
    batches = iter(replay.batches(size, offline=penstock.from_arrays({"rewards": rewards}, [3]).steps(), share=0.25))
    with pytest.raises(penstock.errors.PlanError, match=rf"expected int32 rows of shape \(\) for 'rewards' .*{got}"):
        _ = [next(batches) for _ in range(4)]


@pytest.mark.parametrize("wrong", [{"share": 1.5}, {"share": -0.5}])
def test_impossible_batches_are_refused(wrong: Any) -> None:
    replay = filled(penstock.Replay(None, 1000), [30])
    with pytest.raises(penstock.errors.PlanError, match="within 0 to 1"):
        replay.batches(4, offline=offline(), **wrong)
    with pytest.raises(penstock.errors.PlanError, match="at least 1 sample"):
        replay.batches(0)


def test_a_batch_whose_samples_left_comes_again(tmp_path: Path) -> None:
    def batches() -> ReplayBatches:
        return penstock.Replay(tmp_path / "store", 20).batches(8)

    filled(penstock.Replay(tmp_path / "store", 20), [5] * 4).close()
    first = batches()
    wanted = first.take()
    with ColumnsWriter(tmp_path / "store") as writer:
        writer.write_all(episodes([5] * 4, 4))
    following = first.take()
    state = first.state_dict()
    again = batches()
    again.load_state_dict(state)
    for each in (wanted, following, first.take()):
        batch = again.take()
        assert batch.ticket == each.ticket
        for name, rows in each.arrays.items():
            np.testing.assert_array_equal(batch.arrays[name], rows)
    with pytest.raises(penstock.errors.StateError, match="with the same replay, size and offline dataset"):
        penstock.Replay(tmp_path / "store", 20).batches(9).load_state_dict(state)


def test_metrics_count_batches() -> None:
    loader = filled(penstock.Replay(None, 20), [5]).batches(8).loader()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    assert loader.stats.snapshot["stages"]["replay"]["counts"]["samples"] >= 16


def test_why_names_rows_and_chances_of_a_batch() -> None:
    replay = filled(
        penstock.Replay(None, 1000, samples=penstock.transforms.Windows(3), sampler=PRIORITIES, seed=2), [9, 2, 30]
    )
    replay.update(np.arange(*run_of(replay).anchors), np.arange(35.0) % 7)
    data = penstock.EpisodeDataset(penstock.formats.MemorySource.from_episodes(episodes([40], first=500)))
    loader = replay.batches(20, offline=data.windows(3), share=0.6).loader()
    batches = iter(loader)
    next(batches)
    batch = next(batches)
    replay.update(batch.ticket, np.full(12, 50.0))  # `why` has the priorities of the draw
    found = loader.why(batch.ticket)
    table = found.table
    assert found.sources == ("episodes in memory", "MemorySource")
    assert table["source"].tolist() == [0] * 12 + [1] * 8
    assert table["rows"].tolist() == [3] * 20
    firsts = [1000 * e + s for e, s in zip(table["episode"], table["step"], strict=True)][:12]
    assert batch["actions"][:12, 0].tolist() == firsts
    priorities = table["anchor"][:12] % 7
    np.testing.assert_allclose(table["priority"][:12], priorities, atol=1e-5)
    np.testing.assert_allclose(table["probability"][:12], (priorities + 1e-6) / (105 + 35e-6), rtol=1e-6)
    np.testing.assert_array_equal(table["weight"], batch["weights"])
    assert table["position"][12:].tolist() == list(range(8, 16))
    assert "probability" in str(found)
    assert replay.why(batch.ticket, "observations").table["first_row"].tolist() == [
        9 + 1 + 2 + 1 + s if e == 2 else s for e, s in zip(table["episode"][:12], table["step"][:12], strict=True)
    ]
    with pytest.raises(penstock.errors.PlanError, match="expected an output among"):
        loader.why(batch.ticket, "nothing")
    with pytest.raises(penstock.errors.StateError, match="one of the last 1,048,576 samples"):
        loader.why(Ticket(7, 12, batch.ticket.digest))


@pytest.mark.parametrize("sampler", [penstock.replay.UniformSampler(), penstock.replay.RecentSampler(6.0)])
def test_probabilities_of_draws_add_up(sampler: Any) -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=sampler), [9, 20])
    table = replay.why(replay.sample(5000).ticket).table
    chances = dict(zip(table["anchor"].tolist(), table["probability"].tolist(), strict=True))
    assert len(chances) == 29
    np.testing.assert_allclose(sum(chances.values()), 1)
    counts = np.bincount(table["anchor"], minlength=29) / 5000
    np.testing.assert_allclose(counts, [chances[a] for a in range(29)], atol=0.02)


def test_ranks_tell_their_priorities() -> None:
    replay = filled(penstock.Replay(None, 1000, sampler=penstock.replay.PrioritizedSampler(1.0, kind="rank")), [4])
    replay.update(np.arange(4), [4.0, 1.0, 3.0, 2.0])
    replay.sample(4)
    replay.update(np.arange(4), [4.0, 1.0, 3.0, 2.0])
    table = replay.why(replay.sample(64).ticket).table
    assert dict(zip(table["anchor"].tolist(), table["priority"].tolist(), strict=True)) == {0: 4, 1: 1, 2: 3, 3: 2}


def test_why_looks_up_what_has_left_memory(tmp_path: Path) -> None:
    for path, place in ((tmp_path / "store", [0, 1, 2, 3]), (None, [-1])):
        replay = filled(penstock.Replay(path, 20, samples=penstock.replay.Transitions(n_step=2)), [5] * 4)
        batch = replay.sample(50)
        before = replay.why(batch.ticket).table
        filled(replay, [5] * 4, 4)
        replay.sample(1)
        after = replay.why(batch.ticket).table
        assert sorted(set(after["episode"].tolist())) == place
        if path is not None:
            assert {name: after[name].tolist() for name in after} == {name: before[name].tolist() for name in before}
        assert before["rows"].tolist() == np.minimum(2, 5 - before["step"]).tolist()


def test_a_loader_explains_a_replay() -> None:
    loader = filled(penstock.Replay(None, 1000), [30]).batches(8, offline=offline()).loader()
    explanation = loader.why(batches=8)
    assert [stage.name for stage in explanation.stages] == ["draw", "offline"]
    assert next(iter(loader)).ticket.position == 0


def test_batches_that_are_pickled_name_the_right_call() -> None:
    batches = penstock.Replay(None, 10).batches(4)
    with pytest.raises(TypeError, match=r"pickle the Replay, and call batches\(\) on the copy"):
        pickle.dumps(batches)
