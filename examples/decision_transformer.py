"""Decision Transformer (Chen et al. 2021): act so that a return that you ask for is reached.

    python examples/decision_transformer.py [--out curve.png]

Records CartPole episodes of good and bad players, and trains on windows of returns-to-go, observations and actions.
Then it plays, and is asked for several returns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import penstock

CONTEXT, STEPS, WIDTH = 20, 200, 64  # steps that the network sees; most steps of an episode; numbers of a token


def environment() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", max_episode_steps=STEPS)


def record(path: str, episodes: int) -> None:
    """Record players that act at random in a part of their steps, from never to always."""
    rng = np.random.default_rng(0)
    gains = np.array([0.1, 0.3, 4.0, 1.5])
    with penstock.record(environment(), path, seed=0) as env:
        for noise in np.linspace(0, 1, episodes):

            def player(observation: np.ndarray, noise: float = noise) -> int:
                return int(rng.integers(2)) if rng.random() < noise else int(observation @ gains > 0)

            penstock.rollout(env, player, episodes=1)


def samples(path: str) -> penstock.MapDataset:
    """Windows that end at each step of an episode, padded at its start."""
    data = penstock.open(path).with_column("returns_to_go", penstock.columns.returns_to_go())
    windows = data.windows(CONTEXT, past=CONTEXT - 1, pad="zero").with_row_numbers(episode=None, padding=0)
    return windows.select_columns("returns_to_go", "observations", "actions").shuffle(seed=0)


class DecisionTransformer(nn.Module):
    """Three tokens a step: the return that is still to come, the observation, and the action."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Embedding(STEPS + 1, WIDTH)
        self.returns, self.observations, self.actions = nn.Linear(1, WIDTH), nn.Linear(4, WIDTH), nn.Embedding(2, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the actions, `[n, CONTEXT, 2]`."""
        returns = self.returns(batch["returns_to_go"][..., None] / STEPS)
        tokens = torch.stack((returns, self.observations(batch["observations"]), self.actions(batch["actions"])), 2)
        tokens = (tokens + self.time(batch["timesteps"])[:, :, None]).flatten(1, 2)
        n = tokens.shape[1]
        later = torch.ones(n, n).triu(1).bool()
        padding = ~batch["mask"].repeat_interleave(3, 1)
        hidden = later | padding[:, None] & ~torch.eye(n).bool()  # a padded token sees itself, for it needs something
        states = self.layers(tokens, hidden.repeat_interleave(2, 0))
        return self.head(states[:, 1::3])


def tensors(batch: penstock.Columns) -> dict[str, torch.Tensor]:
    kinds = {"returns_to_go": torch.float32, "observations": torch.float32, "mask": torch.bool}
    return {name: torch.from_numpy(batch[name].copy()).to(kinds.get(name, torch.int64)) for name in batch}


def train(windows: penstock.MapDataset, updates: int) -> tuple[DecisionTransformer, list[float]]:
    torch.manual_seed(0)
    model, losses = DecisionTransformer(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for block in penstock.IterDataset.of(windows, 64, epochs=None):
        batch = tensors(block)
        scores = model(batch)[batch["mask"]]
        loss = nn.functional.cross_entropy(scores, batch["actions"][batch["mask"]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == updates:
            return model.eval(), losses
    raise ValueError("expected samples without end")


def play(model: DecisionTransformer, wanted: float, episodes: int) -> float:
    """Mean return of episodes in which this return is asked for."""
    rng = np.random.default_rng(0)
    played: list[dict[str, Any]] = []

    def player(observation: np.ndarray) -> int:
        played.append({"observations": observation, "actions": 0})
        recent, first = played[-CONTEXT:], max(0, len(played) - CONTEXT)
        steps = {name: np.stack([step[name] for step in recent]) for name in played[0]}
        steps["timesteps"] = np.arange(first, len(played))
        steps["returns_to_go"] = np.maximum(wanted - steps["timesteps"], 0)  # each step has given a reward of 1
        steps["mask"] = np.ones(len(recent), bool)
        with torch.no_grad():
            scores = model(tensors(penstock.Columns({name: rows[None] for name, rows in steps.items()})))[0, -1]
        played[-1]["actions"] = int(rng.random() < torch.softmax(scores, -1)[1].item())
        return played[-1]["actions"]

    total, env = 0.0, environment()
    for seed in range(episodes):
        played.clear()
        total += penstock.rollout(env, player, episodes=1, seed=seed).returns[0]
    return total / episodes


def run(folder: Path, *, recorded: int, updates: int, wanted: Sequence[float], played: int) -> tuple[Any, ...]:
    """Record, train and play. Return the losses, and the mean return for each wanted one."""
    record(str(folder / "cartpole"), recorded)
    model, losses = train(samples(str(folder / "cartpole")), updates)
    return losses, [play(model, each, played) for each in wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file to draw the curves to, such as curve.png")
    out = parser.parse_args().out
    wanted = (20.0, 50.0, 100.0, 200.0)
    with tempfile.TemporaryDirectory() as folder:
        losses, reached = run(Path(folder), recorded=400, updates=800, wanted=wanted, played=10)
    for each, total in zip(wanted, reached, strict=True):
        print(f"asked for a return of {each:5.0f}: {total:5.0f} {'#' * int(total / 5)}")
    if out:
        import matplotlib.pyplot as plt

        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
        left.plot(losses)
        left.set(xlabel="update", ylabel="loss")
        right.plot(wanted, reached, "o-", label="reached")
        right.plot(wanted, wanted, ":", label="asked for")
        right.set(xlabel="return asked for", ylabel="mean return")
        right.legend()
        figure.savefig(out)


if __name__ == "__main__":
    main()
