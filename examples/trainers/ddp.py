"""`DistributedDataParallel`: the loader finds the ranks, and each has its share of every batch.

torchrun --nproc-per-node 2 examples/trainers/ddp.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from toy import BATCH, Policy, samples


def train(epochs: int = 2, checkpoint: Path | None = None, stop: int | None = None) -> tuple[Policy, list[list[int]]]:
    """Train for some epochs, from a checkpoint if there is one, and stop after update `stop` to resume later.

    Returns:
        The model, and the numbers of the samples of this rank in each batch.
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(Policy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = samples().loader(BATCH, output="torch")  # penstock: BATCH samples on all ranks together
    seen: list[list[int]] = []
    updates = 0
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])  # penstock
        updates = saved["updates"]
    for epoch in range(updates // len(loader), epochs):
        loader.set_epoch(epoch)  # as for a DistributedSampler; without it, each loop is the next epoch
        for batch in loader:
            loss = batch.weight * model(**batch)["loss"]  # penstock: exact where ranks have different numbers of rows
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(batch["id"].tolist())
            updates += 1
            if checkpoint and updates == stop:
                if distributed.get_rank() == 0:
                    state = {"model": model.module.state_dict(), "updates": updates}
                    torch.save(state | {"loader": loader.state_dict()}, checkpoint)  # penstock: one state for all ranks
                distributed.barrier()
                return model.module, seen
    return model.module, seen


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    _, batches = train()
    print(f"rank {distributed.get_rank()}: {len(batches)} batches, the last one of samples {batches[-1]}")
    distributed.destroy_process_group()
