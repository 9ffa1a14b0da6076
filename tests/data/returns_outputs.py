"""Write `tests/golden/returns/returns.npz`: what published code computes of returns and advantages.

    python tests/data/returns_outputs.py <dt.py of CORL> tests/golden/returns/returns.npz

Needs Stable-Baselines3. Only `discounted_cumsum` of CORL's file is run.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, RolloutBuffer

GAMMA, LAM, N = 0.97, 0.9, 4
SPACE = spaces.Box(-np.inf, np.inf, (1,))


def made() -> dict[str, np.ndarray]:
    """Episodes of 1 to 40 steps. Most terminate; the others are truncated."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 41, 30)
    ends = np.cumsum(lengths) - 1
    terminations = np.zeros(lengths.sum(), np.bool_)
    terminations[ends[rng.random(30) < 0.6]] = True
    rewards = rng.normal(size=lengths.sum()).astype("f4")
    values = rng.normal(size=lengths.sum() + 30).astype("f4")
    return {"lengths": lengths, "rewards": rewards, "terminations": terminations, "values": values}


def parts(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value of the observation before each step and after it, and the last steps of episodes."""
    ends, steps = np.cumsum(data["lengths"]) - 1, np.arange(len(data["rewards"]))
    episode = np.searchsorted(ends, steps)
    return data["values"][steps + episode], data["values"][steps + episode + 1], ends


def sb3_advantages(data: dict[str, np.ndarray]) -> RolloutBuffer:
    """One rollout of all episodes. As `collect_rollouts` does, the value after a truncation is added to the reward."""
    before, after, ends = parts(data)
    n = len(before)
    truncated = np.isin(np.arange(n), ends) & ~data["terminations"]
    rewards = data["rewards"] + GAMMA * after * truncated
    starts = np.isin(np.arange(n) - 1, ends)
    buffer = RolloutBuffer(n, SPACE, SPACE, gae_lambda=LAM, gamma=GAMMA)
    one = np.zeros((1, 1), "f4")
    for t in range(n):
        value = torch.tensor([before[t]])
        buffer.add(one, one, rewards[t : t + 1], starts[t : t + 1] | (t == 0), value, torch.zeros(1))
    buffer.compute_returns_and_advantage(torch.zeros(1), np.ones(1))
    return buffer


def sb3_n_step(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sums of `N` rewards, and the same with the discounted value of the observation after them."""
    _, after, ends = parts(data)
    n = len(after)
    buffer = NStepReplayBuffer(n + 1, SPACE, SPACE, n_steps=N, gamma=GAMMA)
    for t in range(n):
        last = t in ends
        truncated = bool(last and not data["terminations"][t])
        infos = [{"TimeLimit.truncated": truncated}]
        following, done = after[t].reshape(1, 1), np.array([last])
        buffer.add(following * 0, following, following * 0, data["rewards"][t : t + 1], done, infos)
    found: Any = buffer._get_samples(np.arange(n))
    discounted = found.discounts * (1 - found.dones) * found.next_observations
    return found.rewards.numpy()[:, 0], (found.rewards + discounted).numpy()[:, 0]


def corl(path: str) -> Any:
    """The function `discounted_cumsum` of a file of CORL."""
    tree = ast.parse(Path(path).read_text())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "discounted_cumsum"]
    names: dict[str, Any] = {"np": np}
    exec(compile(tree, path, "exec"), names)  # noqa: S102  published code that this script is for
    return names["discounted_cumsum"]


def main() -> None:
    data, cumsum = made(), corl(sys.argv[1])
    rollout, (n_step, n_step_values) = sb3_advantages(data), sb3_n_step(data)
    cuts = np.cumsum(data["lengths"])[:-1]
    returns = {
        f"corl_returns{name}": np.concatenate([cumsum(part, gamma) for part in np.split(data["rewards"], cuts)])
        for name, gamma in (("", GAMMA), ("_1", 1.0))
    }
    sb3 = {"sb3_advantages": rollout.advantages[:, 0], "sb3_returns": rollout.returns[:, 0]}
    sb3 |= {"sb3_n_step": n_step, "sb3_n_step_values": n_step_values}
    parameters = {"gamma": np.array(GAMMA), "lam": np.array(LAM), "n": np.array(N)}
    np.savez_compressed(sys.argv[2], allow_pickle=False, **data, **parameters, **sb3, **returns)


if __name__ == "__main__":
    main()
