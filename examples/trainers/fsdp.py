"""FSDP2 (`fully_shard`) with distributed checkpoints. It has no `Join`: all ranks need the same number of batches.

torchrun --nproc-per-node 2 examples/trainers/fsdp.py
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import distributed
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toy import BATCH, Policy, samples


class Model:
    """The shards of a model, as distributed checkpoints save and load them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the shards of this rank."""
        return get_model_state_dict(self.model)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Load shards."""
        set_model_state_dict(self.model, state)


def train(
    epochs: int = 2, checkpoint: Path | None = None, stop: int | None = None
) -> tuple[dict[str, torch.Tensor], list[list[int]]]:
    """Train for some epochs, from a checkpoint if there is one, and stop after update `stop` to resume later.

    Returns:
        The whole parameters, and the numbers of the samples of this rank in each batch.
    """
    torch.manual_seed(0)
    model = Policy()
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = samples().loader(BATCH, output="torch")  # penstock
    state = {"model": Model(model), "loader": loader}  # penstock: a loader is saved and loaded as a model is
    seen: list[list[int]] = []
    if checkpoint and checkpoint.exists():
        dcp.load(state, checkpoint_id=checkpoint)
    begin = loader.state_dict()["position"] // len(samples())
    for _ in range(begin, epochs):
        for batch in loader:
            loss = batch.weight * model(**batch)["loss"]  # penstock
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(batch["id"].tolist())
            if checkpoint and len(seen) == stop:
                dcp.save(state, checkpoint_id=checkpoint)
                return _whole(model), seen
    return _whole(model), seen


def _whole(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    _, batches = train()
    print(f"rank {distributed.get_rank()}: {len(batches)} batches, the last one of samples {batches[-1]}")
    distributed.destroy_process_group()
