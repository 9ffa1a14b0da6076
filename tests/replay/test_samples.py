"""What a sample of a replay is: the same rows as a planned dataset over the episodes that are in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock.plan.transform import SampleTransform
from penstock.replay.replay import run_of
from tests.replay.runs import SPEC, episode, episodes, filled, lengths_of, take

NEXT: Any = {"next_observations": ("observations", 1, 5)}
TRANSFORMS: list[Any] = [
    penstock.transforms.Steps(),
    penstock.transforms.Steps(next_observations=True),
    penstock.transforms.Windows(4),
    penstock.transforms.Windows(4, past=1, stride=3, columns=NEXT),
    penstock.transforms.Windows(5, past=2, pad="zero"),
    penstock.transforms.Windows(5, past=2, stride=2, pad="repeat", columns={"ahead": ("observations", 0, 7)}),
    penstock.transforms.Windows(3, pad="zero", columns={"actions": (-9, -4)}),
    penstock.transforms.Windows(8, past=3, pad="zero", pad_before=2, pad_after=1),
    penstock.transforms.Windows(4, past=1, frame_skip=2, columns={"ahead": ("observations", 0, 7, 3)}),
    penstock.transforms.Pairs(3),
]


def assert_equal(one: Columns, other: Columns) -> None:
    assert sorted(one) == sorted(other)
    for name in one:
        assert one[name].dtype == other[name].dtype
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("capacity", [40, 10_000])
def test_samples_are_those_of_a_planned_dataset(transform: SampleTransform, capacity: int) -> None:
    lengths = lengths_of(3, 60)
    replay = filled(penstock.Replay(None, capacity, samples=transform), lengths)
    source = penstock.formats.MemorySource.from_episodes(episodes(lengths))
    wanted = penstock.EpisodeDataset(source).apply(transform)
    lo, hi = run_of(replay).anchors
    assert hi == len(wanted)
    assert (lo > 0) == (capacity == 40)
    assert_equal(take(replay, np.arange(lo, hi)), wanted[lo:hi])


@pytest.mark.parametrize("options", [{"pad_before": 1}, {"past": 2, "pad_after": 3}, {"frame_skip": 2}])
def test_windows_that_a_replay_cannot_gather_are_refused(options: dict[str, int]) -> None:
    replay = penstock.Replay(None, 100, samples=penstock.transforms.Windows(4, pad="zero", **options))
    with pytest.raises(penstock.errors.ArgumentError, match="past of pad_before"):
        replay.write(episode(0, 9))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("stack", [1, 4])
def test_n_steps_and_stacks_equal_a_plain_loop(n: int, stack: int) -> None:
    lengths = [1, 2, 3, 4, 7, 9]
    replay = filled(penstock.Replay(None, 1000, samples=penstock.replay.Transitions(n, 0.5, stack)), lengths)
    batch = take(replay, np.arange(*run_of(replay).anchors))
    i = 0
    for number, steps in enumerate(lengths):
        columns = episode(number, steps).columns
        for t in range(steps):
            end = min(t + n, steps)
            rewards = sum(0.5**k * columns["rewards"][t + k] for k in range(end - t))
            assert batch["rewards"][i] == pytest.approx(rewards)
            assert batch["terminations"][i] == columns["terminations"][end - 1]
            assert batch["truncations"][i] == columns["truncations"][end - 1]
            for name, row in (("observations", t), ("next_observations", end)):
                frames = np.asarray(columns["observations"])[np.maximum(np.arange(row - stack + 1, row + 1), 0)]
                np.testing.assert_array_equal(batch[name][i], frames if stack > 1 else frames[0], err_msg=name)
            assert batch["actions"][i] == columns["actions"][t]
            assert batch["task"][i] == number
            if n > 1:
                alive = not columns["terminations"][end - 1]
                assert batch["discounts"][i] == pytest.approx(0.5 ** (end - t) * alive)
            i += 1
    assert i == batch.n
    assert "__real__" not in batch


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize(
    ("stored", "summed"),
    [("?", "f4"), ("i1", "f4"), ("u1", "f4"), ("f2", "f4"), ("f4", "f4"), ("i8", "f8"), ("f8", "f8")],
)
def test_sums_are_floats_and_end_at_a_termination_inside_an_episode(n: int, stored: str, summed: str) -> None:
    """`n_step_returns` computes the same sums by another loop; vectors are summed axis by axis."""
    rng = np.random.default_rng(n)
    lengths = [1, 4, 7, 9]
    steps = sum(lengths)
    rewards = rng.choice([0, 1, 100], steps).astype(stored)
    columns = {
        "rewards": rewards,
        "terminations": rng.random(steps) < 0.3,
        "truncations": rng.random(steps) < 0.3,
    }
    data = penstock.from_arrays(columns, lengths)
    vectors = penstock.from_arrays({**columns, "rewards": np.stack([rewards, rewards[::-1]], 1)}, lengths)
    sums = data.with_column("sums", penstock.columns.n_step_returns(n, 0.5)).steps()[:]["sums"]
    batches = []
    for each in (data, vectors):
        replay = penstock.Replay(None, 100, samples=penstock.replay.Transitions(n, 0.5))
        replay.write_all(each)
        batches.append(take(replay, np.arange(steps)))
    for batch, own in zip(batches, (batches[0]["rewards"], batches[1]["rewards"][:, 0]), strict=True):
        assert own.dtype == summed
        np.testing.assert_allclose(own, sums, rtol=1e-6)
        np.testing.assert_array_equal(batch["discounts"], batches[0]["discounts"])
    first = 0
    for length in lengths:
        for t in range(first, first + length):
            inside = range(t, min(t + n, first + length))
            last = next((k for k in inside if columns["terminations"][k]), inside[-1])
            batch = batches[0]
            for name in ("terminations", "truncations"):
                assert batch[name][t] == columns[name][last]
            assert batch["discounts"][t] == (0 if columns["terminations"][last] else 0.5 ** (last + 1 - t))
        first += length


def test_the_last_observation_of_a_truncated_episode_is_its_own() -> None:
    replay = filled(penstock.Replay(None, 100), [2, 2])
    batch = take(replay, [1])
    assert batch["next_observations"][0, 0] == 2.0
    assert batch["terminations"][0]
    assert not batch["truncations"][0]
    batch = take(replay, [3])
    assert batch["next_observations"][0, 0] == 1002.0
    assert batch["truncations"][0]
    assert not batch["terminations"][0]


def test_ragged_columns_are_refused_by_name() -> None:
    data = penstock.from_arrays(
        {"rewards": np.ones(2), "text": penstock.columns.Ragged.from_strings(["a", "b"])}, lengths=[2]
    )
    with pytest.raises(penstock.errors.SpecError, match=r"rows of different lengths in \['text'\]"):
        penstock.Replay(None, 100).write(data[0])


def test_other_samples_are_refused() -> None:
    with pytest.raises(penstock.errors.ArgumentError, match="expected Transitions, Windows, Steps or Pairs"):
        penstock.Replay(None, 100, samples=penstock.transforms.Sequences()).write(episode(0, 3))


def test_n_steps_need_rewards_and_ends() -> None:
    data = penstock.from_arrays({"observations": np.ones(3), "rewards": np.ones(2)}, lengths=[2])
    with pytest.raises(penstock.errors.PlanError, match=r"no \['terminations', 'truncations'\]"):
        penstock.Replay(None, 100, samples=penstock.replay.Transitions(n_step=2)).write(data[0])
    flags = {"rewards": np.ones(2), "terminations": np.zeros((2, 3), bool), "truncations": np.zeros(2, bool)}
    with pytest.raises(penstock.errors.SpecError, match=r"one flag a step .* rows of \{'terminations': \(3,\)\}"):
        penstock.Replay(None, 100, samples=penstock.replay.Transitions(n_step=2)).write(
            penstock.from_arrays(flags, lengths=[2])[0]
        )


@pytest.mark.parametrize("wrong", [{"n_step": 0}, {"stack": 0}, {"gamma": 1.5}, {"gamma": float("nan")}])
def test_impossible_numbers_are_refused(wrong: Any) -> None:
    with pytest.raises(penstock.errors.PlanError):
        penstock.replay.Transitions(**wrong)


def test_other_columns_are_refused() -> None:
    replay = filled(penstock.Replay(None, 100), [3])
    other = penstock.from_arrays({"rewards": np.ones(2)}, lengths=[2])[0]
    with pytest.raises(penstock.errors.SpecError, match="expected the columns"):
        replay.write(other)
    assert replay.spec == SPEC


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_termination_inside_an_episode_counts_for_nothing_by_choice(n: int) -> None:
    """A lost life: the sums are those of the same episodes without it."""
    rng = np.random.default_rng(n)
    lengths = [1, 4, 9]
    steps = sum(lengths)
    ends = np.isin(np.arange(steps), np.cumsum(lengths) - 1)
    columns = {"rewards": rng.random(steps), "truncations": ends & (np.arange(steps) > 5)}
    lives = {**columns, "terminations": (rng.random(steps) < 0.5) | (ends & ~columns["truncations"])}
    lives["terminations"] &= ~columns["truncations"]
    whole = {**columns, "terminations": ends & ~columns["truncations"]}
    batches: list[Columns] = []
    for data, cut in ((lives, False), (whole, False), (whole, True)):
        replay = penstock.Replay(None, 100, samples=penstock.replay.Transitions(n, 0.5, cut_at_terminations=cut))
        replay.write_all(penstock.from_arrays(data, lengths))
        batches.append(take(replay, np.arange(steps)))
    assert_equal(batches[0], batches[1])
    for name in batches[2]:
        np.testing.assert_allclose(batches[0][name], batches[2][name])
    assert batches[0]["discounts"].shape == (steps,)


@pytest.mark.parametrize("cut", [True, False])
def test_shared_frames_are_the_same_samples_in_fewer_bytes(cut: bool) -> None:
    rules = [
        penstock.replay.Transitions(stack=3, cut_at_terminations=cut, shared_frames=shared) for shared in (False, True)
    ]
    replays = [filled(penstock.Replay(None, 60, samples=rule), lengths_of(7, 12)) for rule in rules]
    one, other = (replay.sample(50) for replay in replays)
    assert list(one) == list(other)
    for name in one:
        assert other[name].dtype == one[name].dtype
        np.testing.assert_array_equal(other[name], one[name], err_msg=name)
    assert np.shares_memory(other["observations"], other["next_observations"])
    assert not np.shares_memory(one["observations"], one["next_observations"])
    replays[1].load_state_dict(replays[0].state_dict())  # the samples are the same, so states are
    for wrong in ({"stack": 1}, {"stack": 3, "n_step": 2}):
        with pytest.raises(penstock.errors.PlanError, match="leave it out"):
            penstock.replay.Transitions(**wrong, shared_frames=True)
