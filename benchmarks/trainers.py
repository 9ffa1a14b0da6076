"""Time that training programs wait for data: a dataset of PyTorch in a `DataLoader`, and penstock in its place.

    make trainers
    .build/trainers/bin/python benchmarks/trainers.py [--repeats 3] [--batches 200] [--workers 2]

Windows of recorded steps, normalized, in random order. Both forms of a program run in turn, and the best of each
counts. Waiting is the time inside `next` of the batches, of all epochs. Programs of DDP, FSDP2, Ray Train, torchtitan
and nanoGPT have the loader of the plain loop on every rank.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from transformers import Trainer, TrainingArguments

import penstock
from penstock.loading import LoaderIterator

STEPS, WIDTH, LENGTH, BATCH = 40_000, 64, 16, 256
waited = {"seconds": 0.0, "batches": 0}


class Windows(Dataset[Any]):
    """What a program without penstock has: windows of episodes by number."""

    def __init__(self, observations: Any, actions: Any, lengths: Any) -> None:
        self.observations, self.actions = observations, actions
        self.mean, self.std = observations.mean(0), observations.std(0)
        ends = np.cumsum(lengths)
        self.starts = np.concatenate(
            [np.arange(end - n, end - LENGTH + 1) for n, end in zip(lengths, ends, strict=True)]
        )

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> dict[str, Any]:
        rows = slice(self.starts[number], self.starts[number] + LENGTH)
        return {"observations": (self.observations[rows] - self.mean) / self.std, "actions": self.actions[rows]}


class Model(nn.Module):
    """A network whose output is the loss, with work that takes about as long as a batch takes to load."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 128), nn.Tanh(), nn.Linear(128, 4))

    def forward(self, observations: torch.Tensor, actions: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.net(observations), actions)}


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        return self.model(**batch)["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def measured(iterator: type[Any]) -> None:
    """Let the iterators of a class count the time inside `next`."""
    inner = iterator.__next__

    def timed(self: Any) -> Any:
        begun = time.perf_counter()
        try:
            return inner(self)
        finally:
            waited["seconds"] += time.perf_counter() - begun
            waited["batches"] += 1

    iterator.__next__ = timed


def plain(batches: Any, most: int) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < most:
        for batch in batches:
            loss = model(batch["observations"], batch["actions"])["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == most:
                return


def with_lightning(batches: Any, most: int) -> None:
    lightning.Trainer(
        max_steps=most, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(Module(), batches)  # fmt: skip


def with_accelerate(batches: Any, most: int) -> None:
    accelerator = Accelerator(cpu=True)
    model = Model()
    prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), batches)
    done = 0
    while done < most:
        for batch in prepared[2]:
            loss = prepared[0](batch["observations"], batch["actions"])["loss"]
            prepared[1].zero_grad()
            accelerator.backward(loss)
            prepared[1].step()
            done += 1
            if done == most:
                return


def with_trainer(batches: Any, most: int) -> None:
    class Given(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(batches)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=most, optim="sgd", use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
            logging_strategy="no",
        )  # fmt: skip
        Given(Model(), arguments, train_dataset=[0]).train()


# The program, and whether it needs a DataLoader.
PROGRAMS: dict[str, tuple[Callable[[Any, int], None], bool]] = {
    "plain loop": (plain, False),
    "Lightning": (with_lightning, False),
    "Accelerate": (with_accelerate, True),
    "Transformers": (with_trainer, True),
}


def waiting(program: Callable[[Any, int], None], batches: Any, most: int) -> float:
    """Milliseconds that a program waits for a batch."""
    waited.update(seconds=0.0, batches=0)
    program(batches, most)
    return 1000 * waited["seconds"] / waited["batches"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2, help="worker processes of the DataLoader that is replaced")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for iterator in (_BaseDataLoaderIter, LoaderIterator):
        measured(iterator)
    rng = np.random.default_rng(0)
    lengths = [STEPS // 200] * 200
    observations = rng.normal(size=(STEPS, WIDTH)).astype(np.float32)
    actions = rng.normal(size=(STEPS, 4)).astype(np.float32)
    data = penstock.from_arrays({"observations": observations, "actions": actions}, lengths)
    normalize = penstock.normalize(penstock.statistics(data, ["observations"]), ["observations"])
    samples = data.windows(LENGTH).shuffle(seed=0).map(normalize)
    before = Windows(observations, actions, lengths)
    print(f"before: {options.workers} worker processes; {len(samples)} windows, batches of {BATCH}")
    print("| program | before, ms a batch | after | before / after |\n|---|---|---|---|")
    for name, (program, needs_data_loader) in PROGRAMS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.repeats):
            usual = DataLoader(before, BATCH, shuffle=True, num_workers=options.workers)
            ours: Any = samples.loader(BATCH, output="torch")
            ours = ours.data_loader() if needs_data_loader else ours
            for found, batches in zip(times, (usual, ours), strict=True):
                found.append(waiting(program, batches, options.batches))
        first, second = (min(found) for found in times)
        print(f"| {name} | {first:.1f} | {second:.1f} | {first / second:.1f} |", flush=True)


if __name__ == "__main__":
    main()
