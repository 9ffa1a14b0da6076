"""Ray Train: the training function makes the loader, which finds the ranks of the workers.

    python examples/trainers/ray_training.py

`prepare_data_loader` is for samplers of PyTorch; a loader has its share of every batch and its device already.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, get_device, prepare_model
from toy import BATCH, Policy, samples


def train_on_worker(config: dict[str, Any]) -> None:
    """One worker: train from the last checkpoint on, and save checkpoints."""
    torch.manual_seed(0)
    model = prepare_model(Policy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = samples().loader(BATCH, output="torch", device=get_device())  # penstock
    rank, seen = ray.train.get_context().get_world_rank(), list[list[int]]()
    begin = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "run.pt")
        model.module.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])  # penstock
        begin = saved["epoch"]
    for epoch in range(begin, config["epochs"]):
        loader.sampler.set_epoch(epoch)  # as Ray's examples do
        for batch in loader:
            loss = batch.weight * model(**batch)["loss"]  # penstock
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(batch["id"].tolist())
            if len(seen) == config["stop"]:
                break
        state = {"model": model.module.state_dict(), "epoch": epoch, "loader": loader.state_dict()}  # penstock
        report(state, seen, rank, Path(config["folder"]))
        if len(seen) == config["stop"]:
            return


def report(state: dict[str, Any], seen: list[list[int]], rank: int, folder: Path) -> None:
    """Save a checkpoint on rank 0, and the samples of every rank."""
    torch.save(seen, folder / f"seen of rank {rank}.pt")
    with tempfile.TemporaryDirectory() as name:
        if rank == 0:
            torch.save(state, Path(name) / "run.pt")
        checkpoint = ray.train.Checkpoint.from_directory(name) if rank == 0 else None
        ray.train.report({"epoch": state["epoch"]}, checkpoint=checkpoint)


def train(folder: Path, epochs: int = 2, stop: int | None = None) -> tuple[dict[str, Any], list[list[list[int]]]]:
    """Train on two workers, from the last checkpoint of the folder on, and stop after update `stop` to resume later.

    Returns:
        The last checkpoint, and the numbers of the samples of each rank in each batch.
    """
    trainer = TorchTrainer(
        train_on_worker,
        train_loop_config={"epochs": epochs, "stop": stop, "folder": str(folder)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(name="run", storage_path=str(folder)),
    )
    checkpoint = trainer.fit().checkpoint
    if checkpoint is None:
        raise RuntimeError("expected a checkpoint, got none")
    with checkpoint.as_directory() as last:
        return torch.load(Path(last) / "run.pt"), [torch.load(folder / f"seen of rank {rank}.pt") for rank in range(2)]


def start() -> None:
    """Start Ray on this machine, with this folder on the path of its workers."""
    variables = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).parent)}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})


if __name__ == "__main__":
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    start()
    with tempfile.TemporaryDirectory() as name:
        _, ranks = train(Path(name))
    print(f"{len(ranks[0])} batches, the last one of samples {ranks[0][-1]} and {ranks[1][-1]}")
    ray.shutdown()
