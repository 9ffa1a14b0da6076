"""Implicit Q-learning (Kostrikov et al. 2021): learn more from recordings than the players knew.

    python examples/iql.py [--out curve.png]

Records players of a pendulum that act at random in most of their steps. Behaviour cloning copies what they do on
average. Implicit Q-learning computes which actions were better than expected, and copies these.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

import penstock

TASK, GAMMA, EXPECTILE, SHARPNESS, REWARD = "Pendulum-v1", 0.97, 0.8, 5.0, 0.1  # the last scales rewards
EVERY = 400  # updates between two plays


def record(path: Path, episodes: int) -> penstock.EpisodeDataset:
    """Record players that can swing the pendulum up, but act at random in 60 % to all of their steps."""
    rng = np.random.default_rng(0)
    with penstock.Collector(gymnasium.make(TASK), path, seed=0) as env:
        for noise in np.linspace(0.6, 1, episodes):

            def player(seen: np.ndarray, noise: float = noise) -> np.ndarray:
                cos, sin, speed = seen
                missing = 5 * (1 - cos) - speed**2 / 6  # energy, compared to rest at the top
                torque = -10 * sin - 2 * speed if cos > 0.9 else missing * speed
                return np.array([rng.uniform(-2, 2) if rng.random() < noise else np.clip(torque, -2, 2)], np.float32)

            penstock.rollout(env, player, episodes=1)
    return penstock.open(path)


def network(inputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0)
    )


class Learner(nn.Module):
    """Values of actions (two networks, and their slow copies), values of states, and two policies."""

    def __init__(self) -> None:
        super().__init__()
        self.critics = nn.ModuleList([network(4), network(4)])
        self.slow = copy.deepcopy(self.critics).requires_grad_(False)
        self.value, self.policy, self.clone = network(3), network(3), network(3)

    def losses(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The loss of each network. Actions of the policy are never tried, so no critic is asked about them."""
        seen, actions = batch["observations"], batch["actions"]
        both = torch.cat([seen, actions], 1)
        with torch.no_grad():
            later = self.value(batch["next_observations"]) * ~batch["terminations"]
            wanted = REWARD * batch["rewards"].float() + GAMMA * later
            least = torch.minimum(*(critic(both) for critic in self.slow))
        advantages = least - self.value(seen)  # below 0 in most steps, for values are those of good actions
        weights = torch.exp(SHARPNESS * advantages.detach()).clamp(max=100)
        return {
            "value": (torch.where(advantages > 0, EXPECTILE, 1 - EXPECTILE) * advantages**2).mean(),
            "critics": torch.stack([(critic(both) - wanted) ** 2 for critic in self.critics]).sum(0).mean(),
            "policy": (weights * (self.policy(seen) - actions[:, 0]) ** 2).mean(),
            "clone": ((self.clone(seen) - actions[:, 0]) ** 2).mean(),
        }

    def follow(self, share: float = 0.01) -> None:
        """Move the slow copies towards the critics."""
        with torch.no_grad():
            for slow, critic in zip(self.slow.parameters(), self.critics.parameters(), strict=True):
                slow.lerp_(critic, share)


def play(policy: nn.Module, stats: penstock.Statistics, episodes: int) -> float:
    """Mean return."""
    see, act = penstock.normalize(stats, ["observations"]), penstock.normalize(stats, ["actions"]).inverse

    def player(seen: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            scaled = policy(see({"observations": torch.from_numpy(seen)[None]})["observations"])
        return act({"actions": scaled})["actions"].clamp(-2, 2).numpy()

    return float(np.mean(penstock.rollout(gymnasium.make(TASK), player, episodes=episodes, seed=1).returns))


def train(
    data: penstock.EpisodeDataset, updates: int, every: int, played: int
) -> tuple[list[dict[str, float]], list[tuple[float, float]]]:
    """Train, and play from time to time. Return all losses, and the mean returns of policy and clone."""
    stats = penstock.statistics(data, ["observations", "actions"])
    both = {"observations": "observations", "next_observations": "observations"}
    scale = penstock.normalize(stats, {**both, "actions": "actions"})
    samples = data.transitions().map(scale).shuffle(seed=0).with_epoch_length(256 * updates)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the fastest for networks this small
    learner = Learner()
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    losses, returns = list[dict[str, float]](), list[tuple[float, float]]()
    for batch in samples.loader(batch_size=256, output="torch"):
        parts = learner.losses(batch)
        optimizer.zero_grad()
        sum(parts.values()).backward()
        optimizer.step()
        learner.follow()
        losses.append({name: loss.item() for name, loss in parts.items()})
        if len(losses) % every == 0:
            returns.append((play(learner.policy, stats, played), play(learner.clone, stats, played)))
            print(f"update {len(losses)}: returns {returns[-1][0]:.0f}, clone {returns[-1][1]:.0f}")
    return losses, returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        data = record(Path(folder) / "pendulum", 200)
        recorded = np.array([episode.rewards.sum() for episode in data])
        _, returns = train(data, updates=4000, every=EVERY, played=5)
    print(f"mean return of the recorded episodes: {recorded.mean():.0f}, of the best: {recorded.max():.0f}")
    if out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        updates = EVERY * np.arange(1, len(returns) + 1)
        for name, curve in zip(("implicit Q-learning", "behaviour cloning"), zip(*returns, strict=True), strict=True):
            axes.plot(updates, curve, label=name)
        axes.axhline(recorded.mean(), color="gray", ls=":", label="recorded, mean")
        axes.axhline(recorded.max(), color="gray", ls="--", label="recorded, best")
        axes.set(xlabel="update", ylabel="mean return")
        axes.legend()
        figure.savefig(out)


if __name__ == "__main__":
    main()
