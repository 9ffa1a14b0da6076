"""Layouts of torchrl, d3rlpy and tianshou against what each library makes of the same steps."""

from __future__ import annotations

import copy
from dataclasses import fields
from pathlib import Path
from typing import Any

import d3rlpy
import gymnasium
import numpy as np
import pytest
import tianshou
import torch
from d3rlpy.dataset import MDPDataset, TransitionMiniBatch
from tensordict import TensorDict
from torchrl.envs import GymWrapper
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss

import penstock


class Short(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose resets are numbered, with episodes that end in both ways."""

    def __init__(self, seed: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=12))
        self.count = seed

    def reset(self, **_: Any) -> Any:
        self.count += 1
        return self.env.reset(seed=self.count)


def played(folder: Path, seed: int) -> tuple[penstock.EpisodeDataset, list[int]]:
    """A recording of whole episodes of some 80 steps, and their actions: a pole falls if all are equal."""
    rng = np.random.default_rng(seed)
    actions = [*np.repeat(rng.integers(0, 2, 5), 8).tolist(), *rng.permutation([0, 1] * 24).tolist()]
    with penstock.record(Short(seed), folder) as env:
        env.reset()
        for step, action in enumerate(actions):
            if any(env.step(action)[2:4]):
                if step >= 75:
                    break
                env.reset()
    data = penstock.open(folder)
    ends = data.steps()[:]
    assert ends["terminations"].any()
    assert ends["truncations"].any()
    return data, actions[: data.total_steps]


def batch_of(data: penstock.EpisodeDataset, layout: str, **options: Any) -> Any:
    return next(iter(data.transitions().loader(1000, layout=layout, **options)))


@pytest.mark.parametrize("seed", range(3))
def test_torchrl_is_what_its_environments_give(tmp_path: Path, seed: int) -> None:
    data, actions = played(tmp_path / "data", seed)
    env = GymWrapper(Short(seed), categorical_action_encoding=True)
    steps, now = [], env.reset()
    for action in actions:
        after = env.step(now.set("action", torch.tensor(action)))
        steps.append(after.clone())
        now = env.reset() if after["next", "done"].item() else after["next"].select(*now.keys(), strict=False)
    theirs = torch.stack(steps)
    ours = TensorDict(batch_of(data, "torchrl", output="torch"), batch_size=[data.total_steps])
    for key in theirs.keys(include_nested=True, leaves_only=True):
        assert (ours[key].dtype, ours[key].shape) == (theirs[key].dtype, theirs[key].shape), key
        assert torch.equal(ours[key], theirs[key]), key
    network = QValueActor(torch.nn.Linear(4, 2), in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(network, action_space="categorical", delay_value=True)
    loss.make_value_estimator(gamma=0.9)
    assert torch.equal(loss(ours)["loss"], loss(theirs)["loss"])


@pytest.mark.parametrize("seed", range(3))
def test_d3rlpy_is_what_its_dataset_gives(tmp_path: Path, seed: int) -> None:
    data, _ = played(tmp_path / "data", seed)
    data = data.with_column("next_actions", lambda episode: np.append(episode.actions[1:], 0))
    steps = data.steps()[:]
    timeouts = steps["truncations"] & ~steps["terminations"]
    flags = steps["terminations"], timeouts
    theirs = MDPDataset(
        steps["observations"], steps["actions"], steps["rewards"], *(flag.astype("f4") for flag in flags)
    )
    picked = [
        theirs.transition_picker(episode, step)
        for episode in theirs.episodes
        for step in range(episode.transition_count)
    ]
    wanted = TransitionMiniBatch.from_transitions(picked)
    batch = batch_of(data, "d3rlpy")
    known = np.flatnonzero(~timeouts)  # it has no last step of an episode that was cut
    ours = TransitionMiniBatch(**{name: array[known] for name, array in batch.items()}, transitions=picked)
    for field in fields(wanted)[:-1]:
        mine, his = (getattr(each, field.name) for each in (ours, wanted))
        assert (mine.dtype, mine.shape) == (his.dtype, his.shape), field.name
        np.testing.assert_array_equal(mine, his, err_msg=field.name)
    assert batch["next_observations"][steps["terminations"]].any() == np.False_
    learners = []
    for each in (ours, wanted):
        d3rlpy.seed(seed)
        learner = d3rlpy.algos.DQNConfig().create()
        learner.create_impl((4,), 2)
        learners.append(learner.update(copy.copy(each)))
    assert learners[0] == learners[1]


@pytest.mark.parametrize("seed", range(3))
def test_tianshou_is_what_its_buffer_gives(tmp_path: Path, seed: int) -> None:
    data, actions = played(tmp_path / "data", seed)
    buffer, env = tianshou.data.ReplayBuffer(100), Short(seed)
    observation, _ = env.reset()
    for action in actions:
        after, reward, terminated, truncated, _ = env.step(action)
        step = {"obs": observation, "act": action, "rew": reward, "terminated": terminated, "truncated": truncated}
        buffer.add(tianshou.data.Batch(**step, obs_next=after, info={}))
        observation = env.reset()[0] if terminated or truncated else after
    wanted = buffer[np.arange(data.total_steps)]
    batch = batch_of(data, "tianshou")
    for name in ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next"):
        mine, his = batch[name], wanted[name]
        assert (mine.dtype, mine.shape) == (his.dtype, his.shape), name
        np.testing.assert_array_equal(mine, his, err_msg=name)
    assert tianshou.data.Batch(batch).rew.sum() == wanted.rew.sum()
