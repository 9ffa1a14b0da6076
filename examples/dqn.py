"""DQN with prioritized replay that starts from a recorded dataset: find the end of a corridor.

    python examples/dqn.py [--out curve.png]

A random policy hardly ever reaches the end of the corridor. Some of its episodes are recorded first. Then half of each
batch is from this dataset, and half from the agent's own steps, drawn by temporal-difference error.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import penstock

CELLS, STEPS, SLIP = 20, 60, 0.1
GAMMA, N_STEP, BATCH = 0.97, 3, 64


class Corridor(gymnasium.Env[Any, Any]):
    """`CELLS` cells, of which the last has the reward. A move may slip to the other side."""

    observation_space = gymnasium.spaces.Box(0, 1, (CELLS,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start in the first cell."""
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move right for action 1, left for 0."""
        right = bool(action) != (self.np_random.random() < SLIP)
        self.cell = min(max(self.cell + (1 if right else -1), 0), CELLS - 1)
        self.steps += 1
        there = self.cell == CELLS - 1
        return self._seen(), float(there), there, self.steps == STEPS, {}

    def _seen(self) -> Any:
        return np.eye(CELLS, dtype=np.float32)[self.cell]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(CELLS, 64), nn.ReLU(), nn.Linear(64, 2))


def record(path: Path, episodes: int) -> penstock.EpisodeDataset:
    """Episodes of a random policy."""
    with penstock.record(Corridor(), path, seed=0) as env:
        penstock.rollout(env, episodes=episodes, seed=0)
    return penstock.open(path)


def errors_of(online: nn.Module, target: nn.Module, batch: penstock.Columns) -> torch.Tensor:
    """Temporal-difference errors of double DQN, `[n]`."""
    arrays = {name: torch.from_numpy(np.array(array)) for name, array in batch.flat.items()}
    with torch.no_grad():
        best = online(arrays["next_observations"]).argmax(1, keepdim=True)
        later = target(arrays["next_observations"]).gather(1, best)[:, 0]
        wanted = arrays["rewards"].float() + arrays["discounts"] * later
    return online(arrays["observations"]).gather(1, arrays["actions"].long()[:, None])[:, 0] - wanted


def train(folder: Path, episodes: int, seed: int = 0) -> list[float]:
    """Train, and return the steps that each episode took."""
    torch.manual_seed(seed)
    rng, online, target = np.random.default_rng(seed), network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    sampler = penstock.replay.PrioritizedSampler(alpha=0.6, beta=(0.4, 1.0, 100_000))
    samples = penstock.replay.Transitions(n_step=N_STEP, gamma=GAMMA)
    replay = penstock.Replay(None, 20_000, samples=samples, sampler=sampler, seed=seed)
    offline = record(folder / "random", 30).transitions(n_step=N_STEP, gamma=GAMMA).shuffle(seed=seed)
    batches = iter(replay.batches(BATCH, offline=offline, share=0.5))
    taken: list[float] = []
    with penstock.record(Corridor(), replay, seed=seed) as env:
        for episode in range(episodes):
            seen, _ = env.reset(seed=seed if episode == 0 else None)
            ended = False
            while not ended:
                with torch.no_grad():
                    greedy = int(online(torch.from_numpy(seen)).argmax())
                seen, _, terminated, truncated, _ = env.step(greedy if rng.random() > 0.1 else int(rng.integers(2)))
                ended = terminated or truncated
            taken.append(env.unwrapped.steps)
            for _ in range(10):
                batch = next(batches)
                errors = errors_of(online, target, batch)
                loss = (torch.from_numpy(np.array(batch["weights"])) * errors**2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                replay.update(batch.ticket, errors.detach().abs().numpy()[: batch.ticket.count])
            if episode % 5 == 0:
                target.load_state_dict(online.state_dict())
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        taken = train(Path(folder), episodes=300)
    first, last = np.mean(taken[:20]), np.mean(taken[-50:])
    print(f"steps to the end: {first:.0f} at first, {last:.0f} at last; {STEPS} is the limit")
    if out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.plot(taken, lw=0.6, alpha=0.5, label="episode")
        axes.plot(np.arange(19, len(taken)), np.convolve(taken, np.ones(20) / 20, "valid"), label="mean of the last 20")
        axes.set(xlabel="episode", ylabel="steps to the end", ylim=(0, 1.05 * STEPS))
        axes.legend()
        figure.savefig(out)


if __name__ == "__main__":
    main()
