"""A loop in the form of torchtitan's trainer: an endless stream of `(inputs, labels)`, saved with the model.

torchrun --nproc-per-node 2 examples/trainers/titan.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import distributed, nn

import penstock

VOCABULARY, LENGTH, BATCH = 32, 16, 8


def tokens() -> penstock.MapDataset:
    """Rows of `LENGTH + 1` tokens of documents, cut one after another."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(40, 90, 30)
    columns = {"tokens": rng.integers(0, VOCABULARY, lengths.sum()), "id": np.arange(lengths.sum())}
    return penstock.from_arrays(columns, lengths).windows(LENGTH + 1, stride=LENGTH).shuffle(seed=0)


def pairs(batch: penstock.Columns) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Inputs, and labels that are one token ahead. `id` is the first token's place in the data."""
    rows = torch.from_numpy(batch["tokens"])
    inputs = {"input": rows[:, :-1], "id": torch.from_numpy(batch["id"][:, 0])}
    return inputs, rows[:, 1:].contiguous()


class Trainer:
    """The parts of torchtitan's `Trainer` that meet a dataloader."""

    def __init__(self, steps: int, accumulate: int = 2) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.dataloader = tokens().loader(BATCH, drop_last=True, output=pairs)  # penstock
        self.steps, self.accumulate, self.step = steps, accumulate, 0
        self.seen: list[list[int]] = []

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the trainer."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of the trainer."""
        self.step = state["step"]

    def states(self) -> dict[str, Any]:
        """Return the states that a checkpoint has."""
        return {"model": self.model.state_dict(), "dataloader": self.dataloader, "train_state": self}

    def batch_generator(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of one epoch after another."""
        while True:
            yield from batches

    def train(self, checkpoint: Path | None = None, stop: int | None = None) -> None:
        """Train to the last step, or to `stop`, which saves a checkpoint."""
        if checkpoint and checkpoint.exists():
            states = self.states()
            dcp.load(states, checkpoint_id=checkpoint)
            self.model.load_state_dict(states["model"])
        iterator = self.batch_generator(self.dataloader)
        while self.step < self.steps:
            self.step += 1
            self.optimizer.zero_grad()
            for _ in range(self.accumulate):
                inputs, labels = next(iterator)
                self.seen.append(inputs["id"].tolist())
                logits = self.model(inputs["input"])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) / self.accumulate
                loss.backward()
            for parameter in self.model.parameters():
                distributed.all_reduce(parameter.grad, op=distributed.ReduceOp.SUM)
                parameter.grad /= distributed.get_world_size()
            self.optimizer.step()
            if checkpoint and self.step == stop:
                dcp.save(self.states(), checkpoint_id=checkpoint)
                return


def train(steps: int = 12, checkpoint: Path | None = None, stop: int | None = None) -> tuple[Any, list[list[int]]]:
    """Train, and return the model and the numbers of the rows of this rank in each batch."""
    trainer = Trainer(steps)
    trainer.train(checkpoint, stop)
    return trainer.model, trainer.seen


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    _, batches = train()
    print(f"rank {distributed.get_rank()}: {len(batches)} batches, the last one of rows {batches[-1]}")
    distributed.destroy_process_group()
