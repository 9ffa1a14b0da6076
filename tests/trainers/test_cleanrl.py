"""A single file in CleanRL's form: the buffer that replaces its own has the same samples."""

from __future__ import annotations

import cleanrl_dqn
import gymnasium
import pytest
import torch
from cleanrl_dqn import Args
from stable_baselines3.common.buffers import ReplayBuffer


@pytest.mark.parametrize("num_envs", [1, 3])
def test_one_line_trains_as_the_buffer_that_it_replaces(monkeypatch: pytest.MonkeyPatch, num_envs: int) -> None:
    """Time limits end episodes too; CleanRL adds terminations alone. The buffer is full, and goes round."""
    gymnasium.register(
        "ShortPole-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=30, disable_env_checker=True
    )
    args = Args(env_id="ShortPole-v0", total_timesteps=900, learning_starts=50, buffer_size=240, num_envs=num_envs)
    ours, returns = cleanrl_dqn.train(args)
    monkeypatch.setattr(cleanrl_dqn, "ReplayBuffer", ReplayBuffer)
    theirs, wanted = cleanrl_dqn.train(args)
    assert returns == wanted
    assert 30.0 in returns
    assert min(returns) < 30
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
