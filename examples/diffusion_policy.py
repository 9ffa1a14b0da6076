"""Diffusion policy (Chi et al. 2023): imitate players that pass an obstacle on the left or on the right.

    python examples/diffusion_policy.py [--out paths.png]

The mean of both ways leads into the obstacle. So a network that predicts the mean of the actions mostly hits it, and a
network that draws chunks of actions by diffusion passes.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

import penstock

SEEN, CHUNK, TAKEN = 2, 8, 4  # observations of an input; actions of a chunk, and those that are taken before the next
START, GOAL, RADIUS = np.array([0.0, -1.0]), np.array([0.0, 1.0]), 0.35  # the obstacle is at 0, 0
SPEED, STEPS = 0.08, 40  # length of a step; most steps of an episode


def arrived(places: np.ndarray) -> np.ndarray:
    """Whether each place is at the goal."""
    return np.linalg.norm(places - GOAL, axis=-1) < 0.15


def record(path: Path, episodes: int) -> penstock.EpisodeDataset:
    """Record players that choose a side, and then walk around the obstacle with an unsteady hand."""
    rng = np.random.default_rng(0)
    box = penstock.spaces.Box(np.full(2, -2), np.full(2, 2), np.dtype(np.float32))
    with penstock.Recorder(path, observation_space=box, action_space=box) as recorder:
        for _ in range(episodes):
            side, place = rng.choice([-0.7, 0.7]), START
            recorder.begin(place.astype(np.float32))
            while not arrived(place):
                ahead = min(place[1] + 0.2, 1)
                way = np.array([side * np.cos(ahead * np.pi / 2), ahead]) - place
                action = (SPEED * way / np.linalg.norm(way) + rng.normal(0, 0.02, 2)).astype(np.float32)
                place = place + action
                recorder.step(action, place.astype(np.float32), terminated=bool(arrived(place)))
    return penstock.open(path)


class Policy(nn.Module):
    """Draws chunks of actions, scaled to -1 and 1, by denoising diffusion (Ho et al. 2020).

    With one level of noise it predicts the mean of all chunks: plain regression.
    """

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels, size = nn.Embedding(levels + 1, 32), 2 * SEEN + 2 * CHUNK + 32
        self.layers = nn.Sequential(
            nn.Linear(size, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 2 * CHUNK)
        )
        self.kept = torch.cos(torch.linspace(0.0, 0.98, levels + 1) * torch.pi / 2) ** 2  # of the chunk, at each level

    def forward(self, seen: torch.Tensor, noisy: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """`[n, CHUNK, 2]` chunks without their noise."""
        return self.layers(torch.cat([seen.flatten(1), noisy.flatten(1), self.levels(level)], 1)).reshape(noisy.shape)

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Squared error of the actions before the end of the episode."""
        chunk = batch["actions"]
        level = torch.randint(1, len(self.kept), (len(chunk),))
        kept = self.kept[level, None, None]
        noisy = kept.sqrt() * chunk + (1 - kept).sqrt() * torch.randn_like(chunk)
        return ((self(batch["observations"], noisy, level) - chunk)[batch["actions_mask"]] ** 2).mean()

    def act(self, seen: torch.Tensor) -> torch.Tensor:
        """`[n, CHUNK, 2]` chunks: begin with noise, and remove it level by level."""
        chunk = torch.randn(len(seen), CHUNK, 2)
        for level in range(len(self.kept) - 1, 0, -1):
            kept, before = self.kept[level], self.kept[level - 1]
            clean, step = self(seen, chunk, torch.full((len(seen),), level)), kept / before
            mean = before.sqrt() * (1 - step) * clean + step.sqrt() * (1 - before) * chunk
            deviation = ((1 - step) * (1 - before) / (1 - kept)).sqrt()
            chunk = mean / (1 - kept) + deviation * torch.randn_like(chunk)
        return chunk


def chunks(data: penstock.EpisodeDataset) -> penstock.MapDataset:
    """At each step, the last observations and the next actions. Beyond the ends is the nearest row."""
    ranges = {"observations": (1 - SEEN, 1), "actions": (0, CHUNK)}
    return data.windows(1, pad="repeat", columns=ranges).select_columns("observations", "actions")


def train(policy: Policy, windows: penstock.MapDataset, updates: int) -> list[float]:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the fastest for networks this small
    optimizer, losses = torch.optim.Adam(policy.parameters(), lr=1e-3), list[float]()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for batch in islice(windows.shuffle(seed=0).repeat().loader(batch_size=256, output="torch"), updates):
        loss = policy.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def play(policy: Policy, stats: penstock.columns.Statistics, players: int) -> tuple[np.ndarray, np.ndarray]:
    """Paths `[STEPS + 1, players, 2]`, and which of them end at the goal without a collision."""
    see, act = (penstock.normalize(stats, [name], "min_max") for name in ("observations", "actions"))
    torch.manual_seed(1)
    places = [np.tile(START, (players, 1))] * SEEN
    while len(places) < STEPS + SEEN:
        seen = torch.from_numpy(np.stack(places[-SEEN:], 1)).float()
        with torch.no_grad():
            chunk = policy.act(see({"observations": seen})["observations"])
        actions = act.inverse({"actions": chunk})["actions"].numpy()
        for step in range(TAKEN):
            stays = arrived(places[-1]) | (np.linalg.norm(places[-1], axis=1) < RADIUS)
            places.append(places[-1] + np.where(stays[:, None], 0, actions[:, step]))
    return np.stack(places[SEEN - 1 :]), arrived(places[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the paths to, such as paths.png")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        data = record(Path(folder) / "detour", 200)
        stats = penstock.statistics(data)
        windows = chunks(data).map(penstock.normalize(stats, ["observations", "actions"], "min_max"))
        paths = {"recorded": [episode.observations for episode in data][:50]}
        for name, levels in (("regression", 1), ("diffusion", 40)):
            policy = Policy(levels)
            losses = train(policy, windows, updates=5000)
            walked, reached = play(policy, stats, 50)
            paths[f"{name}: {reached.mean():.0%} arrive"] = list(walked.swapaxes(0, 1))
            right = (walked.mean(0)[reached, 0] > 0).sum()
            print(f"{name}: loss {losses[-1]:.3f}, {reached.sum()} of 50 arrive, {right} of them on the right")
    if out:
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(1, 3, figsize=(9, 3.5), layout="constrained", sharey=True)
        for axes, (name, walks) in zip(panels, paths.items(), strict=True):
            for walk in walks:
                axes.plot(*walk.T, lw=0.6, alpha=0.7)
            axes.add_patch(plt.Circle((0, 0), RADIUS, color="gray"))
            axes.set(title=name, aspect="equal", xlim=(-1, 1), ylim=(-1.2, 1.2))
        figure.savefig(out)


if __name__ == "__main__":
    main()
