"""Imitate the episodes of a dataset; stop at any batch and resume exactly there, also in another process."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

import penstock
from examples.demo.learner import Clone
from examples.demo.tasks import TASKS, Task
from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns

BATCH_SIZE = 128
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Progress:
    """Results of a part of training: loss and digest for every batch, and a digest of the weights at its end."""

    losses: list[float]
    digests: list[str]
    weights: str
    rate: float
    waiting_share: float


def samples(task: Task, data: penstock.EpisodeDataset) -> penstock.MapDataset:
    """One sample a step of the episodes worth imitating: the last `h` observations and the action, `[n, h, ...]` and
    `[n, 1, ...]`. The first steps of an episode see its first observation repeated.
    """
    recent = {"observations": (1 - task.history, 1)}
    windows = data.filter(task.worth).windows(1, pad="repeat", columns=recent)
    return windows.select_columns("observations", "actions").shuffle(seed=0)


class Training:
    """A clone, its optimiser and its loader, saved and loaded together."""

    def __init__(self, task: Task, path: Path) -> None:
        torch.default_generator.manual_seed(0)
        torch.set_num_threads(1)  # the network is small: a second thread would cost more than it does
        data = penstock.open(path)
        self.loader = samples(task, data).loader(BATCH_SIZE, drop_last=True, threads=1)
        self.clone = Clone(data.spec, task.history)
        self.optimiser: torch.optim.Optimizer = torch.optim.Adam(self.clone.parameters(), LEARNING_RATE)
        self._losses: list[float] = []
        self._digests: list[str] = []

    def run(self, batches: int) -> Progress:
        """Train on this number of further batches, over several epochs if needed."""
        end = len(self._losses) + batches
        self.loader.load_state_dict(self.loader.state_dict())  # a new loop would begin the next epoch
        while len(self._losses) < end:
            with closing(iter(self.loader)) as epoch:
                for batch in epoch:
                    self._learn(batch)
                    if len(self._losses) == end:
                        break
        stats = self.loader.stats
        return Progress(self._losses, self._digests, digest(self.weights()), stats.rate, stats.waiting_share)

    @property
    def batches(self) -> int:
        """The number of batches so far."""
        return len(self._losses)

    def weights(self) -> dict[str, AnyArray]:
        """The weights of the clone."""
        return {name: weight.numpy() for name, weight in self.clone.state_dict().items()}

    def save(self, file: Path) -> None:
        """Save the state that resuming needs: weights, optimiser and the loader's position."""
        parts = {"clone": self.clone, "optimiser": self.optimiser, "loader": self.loader}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)

    def load(self, file: Path) -> None:
        """Load the state that `save` wrote."""
        saved = torch.load(file, weights_only=True)
        self.clone.load_state_dict(saved["clone"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.loader.load_state_dict(saved["loader"])

    def _learn(self, batch: Columns) -> None:
        loss = self.clone.loss(*(torch.as_tensor(batch[name]) for name in ("observations", "actions")))
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        self._losses.append(loss.item())
        self._digests.append(digest(batch))


def resume(task: Task, path: Path, saved: Path, batches: int) -> Progress:
    """Resume from `saved` for this number of batches in a new process, which gets only these arguments."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_resume, task.name, path, saved, batches).result()


def _resume(name: str, path: Path, saved: Path, batches: int) -> Progress:
    task = next(task for task in TASKS if task.name == name)
    training = Training(task, path)
    training.load(saved)
    return training.run(batches)


def digest(arrays: Mapping[str, AnyArray]) -> str:
    """Names and bytes of some arrays, in 16 hexadecimal digits."""
    total = hashlib.sha256()
    for name, array in arrays.items():
        total.update(name.encode() + array.tobytes())
    return total.hexdigest()[:16]
