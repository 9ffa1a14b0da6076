"""Three workers of Ray Train train one model, one of them is killed, and two workers go on from the last checkpoint.

    python examples/ray_train.py [--out curve.png]

The model predicts how a pendulum moves. The run that lost a worker has the same samples in the same order as a run that
did not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer
from torch import distributed, nn

import penstock
from penstock.load.torch import TorchLoader

BATCH, SAVE = 120, 10  # samples of all workers together; updates from one checkpoint to the next


def record(path: Path, episodes: int) -> None:
    """Record random actions."""
    with penstock.Collector(gymnasium.make("Pendulum-v1"), path, seed=0) as env:
        penstock.rollout(env, episodes=episodes, seed=0)


def samples(path: Path, updates: int) -> penstock.MapDataset:
    """Transitions with the numbers of their episode and step, as one epoch of all updates."""
    data = penstock.open(path)
    return data.samples(next_observations=True).with_row_numbers().shuffle(seed=0).nominal(BATCH * updates)


def train(config: dict[str, Any]) -> None:
    """One worker: train from the last checkpoint on, and save checkpoints."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3))
    model = ray.train.torch.prepare_model(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = penstock.Loader(samples(config["data"], config["updates"]), BATCH)  # finds rank and world by itself
    losses, rows, starts = list[float](), list[torch.Tensor](), list[tuple[int, int]]()
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "run.pt")
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        losses, rows, starts = saved["losses"], saved["rows"], saved["starts"]
    starts.append((len(losses), world))
    for batch in TorchLoader(loader):
        moved = batch["next_observations"] - batch["observations"]
        predicted = model(torch.cat([batch["observations"], batch["actions"]], 1))
        loss = nn.functional.mse_loss(predicted, moved)
        optimizer.zero_grad()
        loss.backward()  # averages the gradients of all workers
        optimizer.step()
        distributed.all_reduce(loss)
        losses.append(loss.item() / world)
        rows.append(gathered(torch.stack([batch["episodes"], batch["timesteps"]], 1), world))
        if rank == world - 1 and len(losses) == config["die_at"]:
            ray.train.get_all_reported_checkpoints()  # waits until Ray knows the last checkpoint
            os.kill(os.getpid(), signal.SIGKILL)
        if len(losses) % SAVE == 0 or len(losses) == config["updates"]:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"loader": loader.state_dict(), "losses": losses, "rows": rows, "starts": starts}
            report(state, rank)


def report(state: dict[str, Any], rank: int) -> None:
    """Save a checkpoint on rank 0. Ray waits until all workers have reported."""
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            torch.save(state, Path(folder) / "run.pt")
        checkpoint = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
        ray.train.report({"loss": state["losses"][-1]}, checkpoint=checkpoint)


def gathered(rows: torch.Tensor, world: int) -> torch.Tensor:
    """The rows of all workers, in the order of the global batch."""
    parts = [torch.empty_like(rows) for _ in range(world)]
    distributed.all_gather(parts, rows)
    return torch.cat(parts)


def launch(workers: int, folder: Path, run: str, updates: int, die_at: int | None = None) -> dict[str, Any]:
    """Train with some workers, and return the last checkpoint. The last worker is killed after update `die_at`.

    A run of the same name and storage goes on from its last checkpoint.

    Raises:
        TrainingFailedError: A worker was killed.
    """
    trainer = TorchTrainer(
        train,
        train_loop_config={"data": folder / "pendulum", "updates": updates, "die_at": die_at},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=workers),
        run_config=ray.train.RunConfig(name=run, storage_path=str(folder)),
    )
    checkpoint = trainer.fit().checkpoint
    if checkpoint is None:
        raise RuntimeError(f"expected a checkpoint of {run}, got none")
    with checkpoint.as_directory() as last:
        return torch.load(Path(last) / "run.pt")


def digest(rows: list[torch.Tensor]) -> str:
    """SHA-256 of episode and step of all samples, in their order."""
    return hashlib.sha256(torch.cat(rows).numpy().tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    args = parser.parse_args()
    ray.init(num_cpus=3, include_dashboard=False, runtime_env={"env_vars": {"GLOO_SOCKET_IFNAME": "lo"}})
    with tempfile.TemporaryDirectory() as name:
        folder, updates = Path(name), args.updates
        record(folder / "pendulum", 50)
        whole = launch(3, folder, "whole", updates)
        with suppress(ray.train.TrainingFailedError):
            launch(3, folder, "killed", updates, die_at=updates // 2 + 3)
        resumed = launch(2, folder, "killed", updates)
    ray.shutdown()
    print(f"not killed: 3 workers, loss {whole['losses'][-1]:.6f}, samples {digest(whole['rows'])}")
    (_, before), (start, after) = resumed["starts"]
    print(f"killed: {before} workers until update {start}, then {after}")
    print(f"resumed: loss {resumed['losses'][-1]:.6f}, samples {digest(resumed['rows'])}")
    print(f"the same samples in the same order: {digest(whole['rows']) == digest(resumed['rows'])}")
    if args.out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.plot(whole["losses"], lw=3, alpha=0.4, label="3 workers, not killed")
        axes.plot(resumed["losses"][:start], lw=0.8, label="3 workers, one killed")
        axes.plot(range(start, updates), resumed["losses"][start:], lw=0.8, label="2 workers, resumed")
        axes.set(xlabel="update", ylabel="squared error", yscale="log")
        axes.legend()
        figure.savefig(args.out)


if __name__ == "__main__":
    main()
