"""Loaders keep the contract that `penstock.testing` has of what training programs assume."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

import penstock
from penstock.testing.loaders import LoaderContract

# Lightning's order of calls, and the rest of what the tests go through, are those of the frameworks themselves: the
# tests of `make trainers` run these.


def samples(n: int) -> penstock.MapDataset:
    lengths = [n // 3, 0, n - n // 3]
    return penstock.from_arrays({"id": np.arange(n), "x": np.ones((n, 2), "f4")}, lengths).steps().shuffle(seed=n)


class TestNumpy(LoaderContract):
    samples = 23

    def loader(self, rank: int = 0, world: int = 1) -> Any:
        return samples(self.samples).loader(7, threads=1, rank=rank, world=world)

    def numbers(self, batch: Any) -> list[int]:
        return batch["id"].tolist()


class TestTorch(TestNumpy):
    samples = 36  # whole batches

    def loader(self, rank: int = 0, world: int = 1) -> Any:
        return samples(self.samples).loader(12, threads=2, output="torch", rank=rank, world=world)

    def test_torch_loads_a_state_as_weights_alone(self) -> None:
        loader, file = self.loader(), io.BytesIO()
        next(iter(loader))
        torch.save(loader.state_dict(), file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == loader.state_dict()


class TestInTheCaller(TestNumpy):
    """Functions of batches, without threads. The last batch has fewer rows than there are ranks."""

    samples = 31

    def loader(self, rank: int = 0, world: int = 1) -> Any:
        return samples(self.samples).loader(6, threads=0, output=lists, rank=rank, world=world)

    def numbers(self, batch: Any) -> list[int]:
        return batch


class TestPlannedBatches(TestNumpy):
    """Batches of some tokens, in epochs of different numbers of batches."""

    samples = 40

    def loader(self, rank: int = 0, world: int = 1) -> Any:
        lengths = np.random.default_rng(1).integers(1, 9, self.samples)
        data = penstock.from_arrays({"id": np.repeat(np.arange(self.samples), lengths)}, lengths).sequences()
        return data.shuffle(seed=2).loader(penstock.transforms.Batches(tokens=40), rank=rank, world=world)

    def numbers(self, batch: Any) -> list[int]:
        return batch["id"][:, 0].tolist()


def lists(batch: Any) -> list[int]:
    """A function of the test, which pickles."""
    return batch["id"].tolist()
