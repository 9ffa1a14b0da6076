"""A loop in the form of nanoGPT's `train.py`: `get_batch` is asked for the next batch, without epochs.

python examples/trainers/nanogpt.py
torchrun --nproc-per-node 2 examples/trainers/nanogpt.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from titan import BATCH, VOCABULARY, pairs, tokens
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

GRADIENT_ACCUMULATION_STEPS = 2


def train(max_iters: int = 12, checkpoint: Path | None = None, stop: int | None = None) -> tuple[Any, list[list[int]]]:
    """Train, from a checkpoint if there is one, and stop after iteration `stop` to resume later.

    Returns:
        The model, and the numbers of the rows of this rank in each batch.
    """
    ddp = "RANK" in os.environ
    torch.manual_seed(0)
    model = raw_model = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY))
    if ddp:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = tokens().repeat().loader(BATCH, output=pairs)  # penstock: without end, and not a memmap for each batch
    iter_num, seen = 0, list[list[int]]()
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint)
        raw_model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])  # penstock
        iter_num = saved["iter_num"]
    batches = iter(loader)  # penstock

    def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = next(batches)  # penstock
        seen.append(x["id"].tolist())
        return x["input"], y

    while iter_num < max_iters:
        for micro_step in range(GRADIENT_ACCUMULATION_STEPS):
            x, y = get_batch()
            if ddp:
                model.require_backward_grad_sync = micro_step == GRADIENT_ACCUMULATION_STEPS - 1
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / GRADIENT_ACCUMULATION_STEPS
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
        if checkpoint and iter_num == stop:
            if not ddp or distributed.get_rank() == 0:
                saved = {
                    "model": raw_model.state_dict(),
                    "iter_num": iter_num,
                    "loader": loader.state_dict(),
                }  # penstock
                torch.save(saved, checkpoint)
            if ddp:
                distributed.barrier()
            return raw_model, seen
    return raw_model, seen


if __name__ == "__main__":
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    _, taken = train()
    print(f"{len(taken)} batches, the last one of rows {taken[-1]}")
    if distributed.is_initialized():
        distributed.destroy_process_group()
