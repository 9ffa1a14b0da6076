"""`Trainer` of Transformers: it splits batches and counts them itself, so it gets a `DataLoader` of all samples.

    torchrun --nproc-per-node 2 examples/trainers/hf_trainer.py

`Trainer(train_dataset=samples())` works too: then the order is the sampler's of `Trainer`, and not the dataset's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from toy import BATCH, Policy, samples
from transformers import Trainer, TrainingArguments


class Recorded(Trainer):
    """Notes the samples of each batch."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """Note the samples, and return the loss."""
        self.__dict__.setdefault("seen", []).append(inputs["id"].tolist())
        return super().compute_loss(model, inputs, *args, **options)


class Imitation(Recorded):
    """Trains in the order of the dataset."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches, which Accelerate splits."""
        batches = samples().loader(BATCH, output="torch", rank=0, world=1).data_loader()  # penstock
        return self.accelerator.prepare(batches)  # penstock


def train(folder: Path, epochs: int = 2, resume: bool = False, **options: Any) -> tuple[Policy, list[list[int]]]:
    """Train, with checkpoints in a folder, from the last of which a run may resume."""
    torch.manual_seed(0)
    model = Policy()
    plain = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
    }
    arguments = TrainingArguments(
        str(folder),
        **{"num_train_epochs": epochs, "learning_rate": 0.1, "max_grad_norm": 0.0, "save_strategy": "steps"}
        | plain
        | options,
    )
    trainer = Imitation(model, arguments, train_dataset=samples())
    trainer.train(resume_from_checkpoint=resume)
    return model, trainer.seen


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        _, taken = train(Path(name))
    print(f"{len(taken)} batches, the last one of samples {taken[-1]}")
