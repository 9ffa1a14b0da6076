"""A small encoder of pictures. It learns from pairs of pictures how the player's actions change them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from examples.demo.shards import pairs
from examples.demo.training import digest
from penstock.core.arrays import ByteArray, Float32Array, FloatArray
from penstock.core.columns import Columns

BATCH_SIZE = 128
LEARNING_RATE = 2e-3
WIDTH = 32


class Encoder(nn.Module):
    """Encode `[n, 3, 32, 32]` bytes to `[n, WIDTH]`; classify which of `actions` leads from one picture to another."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        convolutions = nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU()
        self.see = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 64, WIDTH))
        self.tell = nn.Sequential(nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, actions))

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the codes of pictures."""
        return self.see(pictures.float() / 255)

    def actions(self, before: Tensor, after: Tensor) -> Tensor:
        """Return `[n, actions]` scores of the action between two pictures."""
        first, second = self(torch.cat([before, after])).chunk(2)
        return self.tell(torch.cat([first, second - first], 1))


@dataclass(frozen=True)
class Learned:
    """Results of a part of training: loss, accuracy of actions and digest for every batch; samples a second."""

    losses: list[float]
    right: list[float]
    digests: list[str]
    rate: float


class Lessons:
    """An encoder, its optimiser and the loader of its pairs, saved and loaded together."""

    def __init__(self, paths: dict[str, Path], actions: int, threads: int = 1) -> None:
        torch.default_generator.manual_seed(0)
        torch.set_num_threads(1)
        self.encoder = Encoder(actions)
        self.optimiser: torch.optim.Optimizer = torch.optim.Adam(self.encoder.parameters(), LEARNING_RATE)
        self.loader = pairs(paths).loader(BATCH_SIZE, drop_last=True, threads=threads)

    def learn(self, batches: int) -> Learned:
        """Train on this number of further batches, over several epochs if needed."""
        losses: list[float] = []
        right: list[float] = []
        digests: list[str] = []
        self.loader.load_state_dict(self.loader.state_dict())  # a new loop would begin the next epoch
        while len(losses) < batches:
            with closing(iter(self.loader)) as epoch:
                for batch in epoch:
                    loss, share = self._step(batch)
                    losses.append(loss)
                    right.append(share)
                    digests.append(digest(batch))
                    if len(losses) == batches:
                        break
        return Learned(losses, right, digests, self.loader.stats.rate)

    def _step(self, batch: Columns) -> tuple[float, float]:
        before, after, done = (torch.as_tensor(batch[name]) for name in ("context", "extra_context", "target"))
        scores = self.encoder.actions(before, after)
        loss = nn.functional.cross_entropy(scores, done[:, 0])
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        return loss.item(), (scores.argmax(1) == done[:, 0]).float().mean().item()

    def save(self, file: Path) -> None:
        """Save the state that resuming needs."""
        parts = {"encoder": self.encoder, "optimiser": self.optimiser, "loader": self.loader}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)

    def load(self, file: Path) -> None:
        """Load the state that `save` wrote."""
        saved = torch.load(file, weights_only=True)
        self.encoder.load_state_dict(saved["encoder"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.loader.load_state_dict(saved["loader"])


def interrupted(paths: dict[str, Path], actions: int, saved: Path, batches: int) -> list[str]:
    """Return the digests of the same lessons, stopped within an epoch and resumed with one more thread."""
    first = Lessons(paths, actions)
    head = first.learn(batches // 2 + 1)
    first.save(saved)
    second = Lessons(paths, actions, threads=2)
    second.load(saved)
    return head.digests + second.learn(batches - len(head.digests)).digests


@dataclass(frozen=True)
class Probe:
    """Places `[n, 2]` that a linear map predicts from codes of unseen pictures; the true places; R^2."""

    guess: FloatArray
    truth: FloatArray

    @property
    def r2(self) -> float:
        """R^2: 1 is perfect, 0 no better than the mean."""
        return float(1 - ((self.guess - self.truth) ** 2).sum() / ((self.truth - self.truth.mean(0)) ** 2).sum())


def probe(encoder: Encoder, pictures: ByteArray, places: Float32Array) -> Probe:
    """Fit a linear map from codes to places on one half of the pictures, and predict the other half's places."""
    with torch.no_grad():
        codes = encoder(torch.as_tensor(pictures)).numpy().astype(np.float64)
    inputs = np.concatenate([codes, np.ones((len(codes), 1))], 1)
    order = np.random.default_rng(0).permutation(len(inputs))
    fitted, asked = np.array_split(order, 2)
    ridge = 1e-3 * np.eye(inputs.shape[1])
    a, b = inputs[fitted].T @ inputs[fitted] + ridge, inputs[fitted].T @ places[fitted]
    return Probe(inputs[asked] @ np.linalg.solve(a, b), places[asked].astype(np.float64))
