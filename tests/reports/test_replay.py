"""Reports about replay buffers: n steps, ends of episodes, full buffers, priorities, completions of language models."""

# pyright: basic

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from tests.replay.runs import take
from tests.reports.reported import report


def numbered(lengths: list[int], truncated: bool = False) -> Any:
    """Episodes whose observations, actions and rewards say their episode and step: 1000 * episode + step."""
    starts = 1000 * np.arange(len(lengths))
    steps = np.concatenate([s + np.arange(n) for s, n in zip(starts, lengths, strict=True)])
    last = np.concatenate([np.arange(n) == n - 1 for n in lengths])
    columns = {
        "observations": np.concatenate([s + np.arange(n + 1.0) for s, n in zip(starts, lengths, strict=True)]),
        "actions": steps,
        "rewards": steps.astype(float),
        "terminations": last & (not truncated),
        "truncations": last & truncated,
    }
    return penstock.from_arrays(columns, lengths)


def filled(data: Any, capacity: int, samples: Any = None, **options: Any) -> Any:
    replay = penstock.Replay(None, capacity, samples=samples, **options)
    replay.write_all(data)
    return replay


LENGTHS = np.random.default_rng(0).integers(1, 12, 60).tolist()


@report("younggyoseo/FastTD3#6", "n steps of a full buffer do not reach over the place of the next write")
@report("instadeepai/flashbax#51", "sequences of a full buffer are contiguous")
@report("pytorch/rl#1969", "a buffer at its capacity still gives sequences")
@report("pytorch/rl#2208", "prioritized sequences do not cross the end of an episode")
@pytest.mark.parametrize("capacity", [40, 41, 55])
@pytest.mark.parametrize("sampler", [penstock.replay.UniformSampler(), penstock.replay.PrioritizedSampler()])
def test_samples_of_a_full_buffer_are_of_one_episode(capacity: int, sampler: Any) -> None:
    windows = filled(numbered(LENGTHS), capacity, penstock.transforms.Windows(4), sampler=sampler)
    steps = windows.sample(2000)["actions"]
    assert (np.diff(steps, axis=1) == 1).all()
    several = filled(numbered(LENGTHS), capacity, penstock.replay.Transitions(n_step=3, gamma=1.0), sampler=sampler)
    batch = several.sample(2000)
    first, after = batch["observations"], batch["next_observations"]
    assert (first // 1000 == after // 1000).all()
    summed = np.array([sum(range(int(a), int(b))) for a, b in zip(first, after, strict=True)])
    np.testing.assert_array_equal(batch["rewards"], summed)


@report(
    "DLR-RM/stable-baselines3#934",
    "the next observation of a time limit is the last one of its episode, and bootstraps",
)
@report("vwxyzjn/cleanrl#460", "the same where each observation is stored once")
@report("tensorflow/agents#939", "rewards and discounts of n steps do not spill over a time limit")
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_time_limits_end_sums_and_bootstrap(n: int) -> None:
    lengths = [5, 2, 7]
    batch = take(
        filled(numbered(lengths, truncated=True), 100, penstock.replay.Transitions(n_step=n, gamma=0.5)), range(14)
    )
    i = 0
    for episode, length in enumerate(lengths):
        for t in range(length):
            end = min(t + n, length)
            assert batch["next_observations"][i] == 1000 * episode + end
            assert batch["rewards"][i] == sum(0.5**k * (1000 * episode + t + k) for k in range(end - t))
            assert not batch["terminations"][i]
            assert batch["truncations"][i] == (end == length)
            if n > 1:
                assert batch["discounts"][i] == 0.5 ** (end - t)
            i += 1


@report(
    "thu-ml/tianshou#135",
    "the reward of the step that terminates counts, and no step after it, in a buffer that is not full",
)
@report("Kaixhin/Rainbow#11", "a termination within n steps ends the return, for any n")
@report("astooke/rlpyt#182", "`done` within n steps is the `done` of the sum")
@report("ray-project/ray#18358", "observations of n steps are not shifted")
@pytest.mark.parametrize("n", [2, 3, 10])
def test_terminations_within_n_steps(n: int) -> None:
    batch = take(filled(numbered([5, 4]), 10_000, penstock.replay.Transitions(n_step=n, gamma=0.9)), range(9))
    for i, (episode, t, length) in enumerate([(0, t, 5) for t in range(5)] + [(1, t, 4) for t in range(4)]):
        end = min(t + n, length)
        assert batch["observations"][i] == batch["actions"][i] == 1000 * episode + t
        assert batch["next_observations"][i] == 1000 * episode + end
        rewards = sum(0.9**k * (1000 * episode + t + k) for k in range(end - t))
        assert batch["rewards"][i] == pytest.approx(rewards)
        assert batch["terminations"][i] == (end == length)
        assert batch["discounts"][i] == pytest.approx(0 if end == length else 0.9**n)


@report("hill-a/stable-baselines#941", "the newest sample of a prioritized buffer is drawn too")
def test_every_sample_of_a_prioritized_buffer_is_drawn() -> None:
    replay = filled(
        numbered([4, 3]), 100, penstock.replay.Transitions(), sampler=penstock.replay.PrioritizedSampler(), seed=1
    )
    drawn = np.concatenate([replay.why(replay.sample(50).ticket).table["anchor"] for _ in range(4)])
    assert set(drawn.tolist()) == set(range(7))


def completions(**options: Any) -> tuple[Any, Any]:
    replay = penstock.Replay(
        None, 1000, samples=penstock.replay.Completions(16), sampler=penstock.replay.GroupSampler(2)
    )
    return replay, penstock.replay.CompletionRecorder(replay, num_generations=2, **options)


def answer(recorder: Any, key: int, tokens: list[int], reward: float) -> None:
    recorder.extend(key, tokens, log_probs=[-0.5] * len(tokens), version=0)
    recorder.finish(key, reward=reward)


@report("huggingface/trl#4974", "tokens of users and tools are read by the model and are not in the loss")
@report("huggingface/trl#4975", "the same for every loss that uses the mask")
@report("huggingface/trl#5144", "masks are as long as the tokens")
@report("verl-project/verl#4814", "tokens of tools are in the response with a mask of 0")
@report(
    "verl-project/verl#2368",
    "several turns have one log-probability a token, and a mask that selects those of the model",
)
@pytest.mark.parametrize("pack", [False, True])
def test_tokens_of_tools(pack: bool) -> None:
    replay = penstock.Replay(
        None, 1000, samples=penstock.replay.Completions(16, pack=pack), sampler=penstock.replay.GroupSampler(2)
    )
    recorder = penstock.replay.CompletionRecorder(replay, num_generations=2)
    for key, reward in zip(recorder.add_prompt([5]), (1.0, 0.0), strict=True):
        recorder.extend(key, [1, 2], log_probs=[-0.1, -0.2], version=0)
        recorder.extend(key, [90, 91, 92], sampled=False)
        answer(recorder, key, [3], reward)
    batch = replay.sample(2)
    assert batch["tokens"].shape == batch["completion_mask"].shape == batch["log_probs"].shape == batch["mask"].shape
    real = batch["mask"]
    assert batch["tokens"][real].reshape(2, -1).tolist() == [[5, 1, 2, 90, 91, 92, 3]] * 2
    assert batch["completion_mask"][real].reshape(2, -1).astype(int).tolist() == [[0, 1, 1, 0, 0, 0, 1]] * 2
    assert not batch["completion_mask"][~real].any()


@report(
    "unslothai/unsloth-zoo#832",
    "a completion that ends at once, whose end token the server left out, does not block its prompt",
)
@report("NVIDIA-NeMo/labs-molt#111", "a completion that cannot be used does not cost its healthy siblings")
@report("verl-project/verl#6452", "a rejected completion does not change the advantages of its siblings")
@report("huggingface/trl#7176", "a rollout that failed for good can be given up with its group")
def test_completions_that_cannot_be_used() -> None:
    replay, recorder = completions()
    first, second, third = recorder.add_prompt([5]), recorder.add_prompt([6]), recorder.add_prompt([7])
    for good, _ in (first, second, third):
        answer(recorder, good, [1, 9], 1.0)
    for _, empty in (first, second, third):
        with pytest.raises(penstock.errors.ArgumentError, match="at least one sampled token"):
            recorder.finish(empty, reward=100.0)
    answer(recorder, first[1], [9], 0.0)  # the end token alone
    recorder.resample(second[1])
    answer(recorder, second[1], [2, 9], 0.0)
    assert recorder.discard(third[1]) == third
    assert not recorder.pending
    batch = replay.sample(4)
    assert batch["returns"].tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(batch["advantages"], [0.7071, -0.7071] * 2, rtol=1e-3)
    assert not replay.refresh().may_sample(2)


@report("NVIDIA-NeMo/RL#4013", "a group is the completions of one prompt that was given, not of equal tokens")
@report("dllm-reasoning/d1#19", "advantages are relative to the completions of the same prompt, not to the batch")
def test_equal_prompts_are_separate_groups() -> None:
    replay, recorder = completions()
    for rewards in ((1.0, 0.0), (0.5, 0.5)):
        for key, reward in zip(recorder.add_prompt([5, 6]), rewards, strict=True):
            answer(recorder, key, [1], reward)
    batch = replay.sample(4)
    assert len(set(batch["group"].tolist())) == 2
    np.testing.assert_allclose(batch["advantages"], [0.7071, -0.7071, 0, 0], rtol=1e-3)
