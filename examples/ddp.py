"""Two processes train one model with DistributedDataParallel, are killed, and one process goes on in their place.

    python examples/ddp.py [--out curve.png]

The model predicts how a pendulum moves. The run that was killed has the same samples in the same order as a run that
was not, and ends with the same loss.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing as mp
import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import penstock

BATCH, SAVE = 128, 10  # samples of all processes together; updates from one checkpoint to the next


def record(path: Path, episodes: int) -> None:
    """Record random actions."""
    with penstock.Collector(gymnasium.make("Pendulum-v1"), path, seed=0) as env:
        penstock.rollout(env, episodes=episodes, seed=0)


def samples(path: Path, updates: int) -> penstock.MapDataset:
    """Transitions with the numbers of their episode and step, as one epoch of all updates."""
    data = penstock.open(path)
    return data.transitions().with_row_numbers().shuffle(seed=0).with_epoch_length(BATCH * updates)


def train(rank: int, world: int, folder: Path, run: str, updates: int, reports: Connection | None = None) -> None:
    """One process: train from the last checkpoint on, and save checkpoints."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # no network but this machine's own
    distributed.init_process_group("gloo", f"file://{folder}/{run}.meeting{world}", rank=rank, world_size=world)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = samples(folder / "pendulum", updates).loader(BATCH, output="torch")  # finds rank and world in torch
    checkpoint, losses, rows = folder / f"{run}.pt", list[float](), list[torch.Tensor]()
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        losses, rows = saved["losses"], saved["rows"]
    for batch in loader:
        moved = batch["next_observations"] - batch["observations"]
        predicted = model(torch.cat([batch["observations"], batch["actions"]], 1))
        loss = nn.functional.mse_loss(predicted, moved)
        optimizer.zero_grad()
        loss.backward()  # averages the gradients of all processes
        optimizer.step()
        distributed.all_reduce(loss)
        losses.append(loss.item() / world)
        rows.append(gathered(torch.stack([batch["episodes"], batch["timesteps"]], 1), world))
        if rank == 0 and (len(losses) % SAVE == 0 or len(losses) == updates):
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"loader": loader.state_dict(), "losses": losses, "rows": rows}
            torch.save(state, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
        if reports is not None:
            reports.send(len(losses))
            reports.recv()  # an answer, or the end of this process
    distributed.destroy_process_group()


def gathered(rows: torch.Tensor, world: int) -> torch.Tensor:
    """The rows of all processes, in the order of the global batch."""
    parts = [torch.empty_like(rows) for _ in range(world)]
    distributed.all_gather(parts, rows)
    return torch.cat(parts)


def launch(world: int, folder: Path, run: str, updates: int, kill_at: int | None = None) -> dict[str, Any]:
    """Train with `world` processes, and return the last checkpoint. Kill them after update `kill_at`."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["gymnasium", "penstock.loading.torch", "torch._dynamo"])  # imported once for all
    here, there = context.Pipe()
    processes = [
        context.Process(target=train, args=(rank, world, folder, run, updates, None if rank or not kill_at else there))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    there.close()
    if kill_at is not None:
        while here.recv() < kill_at:
            here.send("go on")
        for process in processes:
            process.kill()  # as kill -9 does
    for process in processes:
        process.join()
        if kill_at is None and process.exitcode:
            raise RuntimeError(f"expected a process to end, got exit code {process.exitcode}")
    return torch.load(folder / f"{run}.pt")


def digest(rows: list[torch.Tensor]) -> str:
    """SHA-256 of episode and step of all samples, in their order."""
    return hashlib.sha256(torch.cat(rows).numpy().tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, updates = Path(name), args.updates
        record(folder / "pendulum", 50)
        whole = launch(2, folder, "whole", updates)
        killed = launch(2, folder, "killed", updates, kill_at=updates // 2 + 5)
        resumed = launch(1, folder, "killed", updates)
    print(f"not killed: 2 processes, loss {whole['losses'][-1]:.6f}, samples {digest(whole['rows'])}")
    print(f"killed: 2 processes, {len(killed['losses'])} updates in its last checkpoint")
    print(f"resumed: 1 process, loss {resumed['losses'][-1]:.6f}, samples {digest(resumed['rows'])}")
    print(f"the same samples in the same order: {digest(whole['rows']) == digest(resumed['rows'])}")
    if args.out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.plot(whole["losses"], lw=3, alpha=0.4, label="2 processes, not killed")
        axes.plot(killed["losses"], lw=0.8, label="2 processes, killed")
        n = len(killed["losses"])
        axes.plot(range(n, updates), resumed["losses"][n:], lw=0.8, label="1 process, resumed")
        axes.set(xlabel="update", ylabel="squared error", yscale="log")
        axes.legend()
        figure.savefig(args.out)


if __name__ == "__main__":
    main()
