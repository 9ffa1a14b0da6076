"""Lightning: `fit` takes the loader as it is, with validation in mid-epoch and `ckpt_path`.

python examples/trainers/lightning_fit.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from toy import BATCH, Policy, samples


class Module(lightning.LightningModule):
    """The policy, and the numbers of the samples of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy()
        self.seen: list[list[int]] = []
        self.validated: list[list[int]] = []

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        """Return the loss."""
        self.seen.append(batch["id"].tolist())
        return batch.weight * self.policy(**batch)["loss"]  # penstock

    def validation_step(self, batch: Any, number: int) -> None:
        """Note the samples."""
        self.validated.append(batch["id"].tolist())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(epochs: int = 2, checkpoint: Path | None = None, **options: Any) -> tuple[lightning.Trainer, Module]:
    """Train with further options of `Trainer`, from a checkpoint if one is named."""
    torch.manual_seed(0)
    module = Module()
    plain = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(**{"max_epochs": epochs, "accelerator": "cpu", "devices": 1} | plain | options)
    loader = samples().loader(BATCH, output="torch")  # penstock
    held_out = samples(4).loader(BATCH, output="torch")  # penstock
    trainer.fit(module, loader, held_out, ckpt_path=checkpoint)
    return trainer, module


if __name__ == "__main__":
    _, trained = train()
    print(f"{len(trained.seen)} batches, the last one of samples {trained.seen[-1]}")
