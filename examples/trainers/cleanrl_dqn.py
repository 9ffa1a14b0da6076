"""DQN as one file in CleanRL's form. Its replay buffer is the only line that differs.

python examples/trainers/cleanrl_dqn.py
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn, optim

from penstock_mirrors.sb3 import ReplayBuffer  # penstock: instead of cleanrl_utils.buffers


@dataclass
class Args:
    """Arguments of the program."""

    seed: int = 1
    env_id: str = "CartPole-v1"
    total_timesteps: int = 10000
    learning_rate: float = 1e-3
    num_envs: int = 1
    buffer_size: int = 10000
    gamma: float = 0.99
    target_network_frequency: int = 200
    batch_size: int = 64
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.4
    learning_starts: int = 500
    train_frequency: int = 2


class QNetwork(nn.Module):
    """The value of each action."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        width = int(np.array(envs.single_observation_space.shape).prod())
        self.network = nn.Sequential(
            nn.Linear(width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, envs.single_action_space.n)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the values."""
        return self.network(x)


def linear_schedule(start_e: float, end_e: float, duration: float, t: int) -> float:
    """Return a value between `start_e` and `end_e`."""
    return max((end_e - start_e) / duration * t + start_e, end_e)


def train(args: Args) -> tuple[QNetwork, list[float]]:
    """Train, and return the network and the returns of the episodes."""
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cpu")
    envs = SyncVectorEnv(
        [lambda: gym.wrappers.RecordEpisodeStatistics(gym.make(args.env_id))] * args.num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    q_network, target_network = QNetwork(envs), QNetwork(envs)
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    target_network.load_state_dict(q_network.state_dict())
    rb = ReplayBuffer(
        args.buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        device,
        n_envs=args.num_envs,
        handle_timeout_termination=False,
    )
    returns: list[float] = []
    envs.action_space.seed(args.seed)
    obs, _ = envs.reset(seed=args.seed)
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(
            args.start_e, args.end_e, args.exploration_fraction * args.total_timesteps, global_step
        )
        if random.random() < epsilon:
            actions = envs.action_space.sample()
        else:
            actions = q_network(torch.Tensor(obs).to(device)).argmax(1).cpu().numpy()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        real_next_obs = next_obs.copy()
        for idx in np.flatnonzero(terminations | truncations):
            real_next_obs[idx] = infos["final_obs"][idx]
            returns.append(float(infos["final_info"]["episode"]["r"][idx]))
        rb.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs
        if global_step > args.learning_starts and global_step % args.train_frequency == 0:
            data: Any = rb.sample(args.batch_size)
            with torch.no_grad():
                target_max, _ = target_network(data.next_observations).max(dim=1)
                td_target = data.rewards.flatten() + args.gamma * target_max * (1 - data.dones.flatten())
            old_val = q_network(data.observations).gather(1, data.actions).squeeze()
            loss = nn.functional.mse_loss(td_target, old_val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if global_step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
    envs.close()
    return q_network, returns


if __name__ == "__main__":
    _, taken = train(Args())
    print(f"{len(taken)} episodes, the last 10 return {np.mean(taken[-10:]):.1f}")
