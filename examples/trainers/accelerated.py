"""Accelerate: `prepare` splits batches itself, so it gets a `DataLoader` of all samples.

accelerate launch --cpu --num_processes 2 examples/trainers/accelerated.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from toy import BATCH, Policy, samples


def train(
    epochs: int = 2,
    checkpoint: Path | None = None,
    stop: int | None = None,
    dispatch_batches: bool | None = None,
    split_batches: bool = False,
    episodes: int = 21,
    **options: Any,
) -> tuple[Policy, list[list[int]]]:
    """Train for some epochs, from a checkpoint if there is one, and stop after update `stop` to resume later.

    Options are of `DataLoader`.

    Returns:
        The model, and the numbers of the samples of this process in each batch.
    """
    torch.manual_seed(0)
    ways = DataLoaderConfiguration(dispatch_batches=dispatch_batches, split_batches=split_batches)
    accelerator = Accelerator(cpu=True, dataloader_config=ways)
    model = Policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = samples(episodes).loader(BATCH, output="torch", rank=0, world=1).data_loader(**options)  # penstock
    model, optimizer, loader = accelerator.prepare(model, optimizer, batches)
    seen: list[list[int]] = []
    begin = skipped = 0
    if checkpoint and checkpoint.exists():
        accelerator.load_state(str(checkpoint))
        begin, skipped = divmod(int((checkpoint / "step").read_text()), len(loader))
        if dispatch_batches and not split_batches:
            skipped *= accelerator.num_processes  # the first process reads a batch for each
    for epoch in range(begin, epochs):
        loader.set_epoch(epoch)
        resumed = accelerator.skip_first_batches(loader, skipped) if skipped and epoch == begin else loader
        for batch in resumed:
            loss = model(**batch)["loss"]
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen.append(batch["id"].tolist())
            if checkpoint and len(seen) == stop:
                accelerator.save_state(str(checkpoint))
                (checkpoint / "step").write_text(str(stop))
                return accelerator.unwrap_model(model), seen
    return accelerator.unwrap_model(model), seen


if __name__ == "__main__":
    _, taken = train()
    print(f"{len(taken)} batches, the last one of samples {taken[-1]}")
