"""What all programs in this folder train: a small policy that imitates recorded actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import penstock

BATCH = 16


def samples(episodes: int = 21) -> penstock.MapDataset:
    """Recorded steps in random order, which differs in each epoch. `id` says which sample a row is."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 20, episodes)
    steps = int(lengths.sum())
    observations = rng.normal(size=(steps, 4)).astype(np.float32)
    actions = np.tanh(observations[:, :2] - observations[:, 2:])
    columns = {"id": np.arange(steps), "observations": observations, "actions": actions}
    return penstock.from_arrays(columns, lengths).steps().shuffle(seed=0)


class Policy(nn.Module):
    """A network whose output is the loss of a batch, as models of Transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, observations: torch.Tensor, actions: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        """Return the loss."""
        return {"loss": nn.functional.mse_loss(self.net(observations), actions)}
