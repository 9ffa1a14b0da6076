"""Three workers of Ray Train train one model, one of them is killed, and two workers go on from the last checkpoint.

    python examples/ray_train.py [--elastic] [--out curve.png]

The model predicts how a pendulum moves. The run that lost a worker has the same samples in the same order as a run that
did not. With `--elastic`, Ray itself changes the number of workers of one run: there are two, then one when a node
dies, and two again when another node joins. This takes about a minute, because Ray looks for nodes every 20 seconds.
"""

# pyright: basic

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import ray
import ray.train
import torch
from ray.cluster_utils import Cluster
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import distributed, nn

import penstock

BATCH, SAVE = 120, 10  # samples of all workers together; updates from one checkpoint to the next
LOOK_SECONDS = 1.0  # how often a healthy run is compared with the nodes of the cluster; a minute by default
ENVIRONMENT = {"env_vars": {"GLOO_SOCKET_IFNAME": "lo"}}  # all nodes are on this machine
START_SECONDS = 5  # how long Ray waits for workers on nodes that it believes to be there; a minute by default


def record(path: Path, episodes: int) -> None:
    """Record random actions."""
    with penstock.Collector(gymnasium.make("Pendulum-v1"), path, seed=0) as env:
        penstock.rollout(env, episodes=episodes, seed=0)


def samples(path: Path, updates: int) -> penstock.MapDataset:
    """Transitions with the numbers of their episode and step, as one epoch of all updates."""
    data = penstock.open(path)
    return data.transitions().with_row_numbers().shuffle(seed=0).with_epoch_length(BATCH * updates)


def train(config: dict[str, Any]) -> None:
    """One worker: train from the last checkpoint on, and save checkpoints."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3))
    model = prepare_model(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = samples(config["data"], config["updates"]).loader(BATCH, output="torch")  # finds rank and world by itself
    losses, rows, starts = list[float](), list[torch.Tensor](), list[tuple[int, int]]()
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "run.pt")
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        losses, rows, starts = saved["losses"], saved["rows"], saved["starts"]
    starts.append((len(losses), world))
    for batch in loader:
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
        if (len(starts), len(losses)) in config["pauses"]:
            ray.train.get_all_reported_checkpoints()
            (config["data"].parent / f"start {len(starts)} pauses on {rank}").touch()
            threading.Event().wait()  # until Ray ends this worker
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


def launch(
    workers: int | tuple[int, int],
    folder: Path,
    run: str,
    updates: int,
    *,
    die_at: int | None = None,
    pauses: tuple[tuple[int, int], ...] = (),
) -> dict[str, Any]:
    """Train with some workers, and return the last checkpoint.

    A run of the same name and storage goes on from its last checkpoint.

    Args:
        workers: Number of workers, or the least and the most: then Ray goes on with as many as the cluster holds.
        folder: The folder of the data and the checkpoints.
        run: Name of the run.
        updates: Number of updates.
        die_at: The update after which the last worker is killed.
        pauses: Numbers of a start, from 1, and of the update after which its workers wait until Ray ends them.

    Raises:
        TrainingFailedError: A worker was killed, and the number of workers is fixed.
    """
    elastic = not isinstance(workers, int)
    trainer = TorchTrainer(
        train,
        train_loop_config={"data": folder / "pendulum", "updates": updates, "die_at": die_at, "pauses": pauses},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=workers, elastic_resize_monitor_interval_s=LOOK_SECONDS),
        run_config=ray.train.RunConfig(
            name=run,
            storage_path=str(folder),
            failure_config=ray.train.FailureConfig(max_failures=-1 if elastic else 0),
        ),
    )
    checkpoint = trainer.fit().checkpoint
    if checkpoint is None:
        raise RuntimeError(f"expected a checkpoint of {run}, got none")
    with checkpoint.as_directory() as last:
        return torch.load(Path(last) / "run.pt")


def lose_and_add(folder: Path, updates: int, lose: Callable[[], object], add: Callable[[], object]) -> dict[str, Any]:
    """Train with one or two workers. Two start, `lose` ends the node of one of them, and `add` adds a node.

    The workers wait for both, so that neither comes after the end of a run that is this short.

    Returns:
        The last checkpoint.
    """
    pauses = (1, updates // 3), (2, 2 * updates // 3)
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(launch, (1, 2), folder, "elastic", updates, pauses=pauses)
        try:
            for (start, _), workers, change in zip(pauses, (2, 1), (lose, add), strict=True):
                while not run.done() and len(list(folder.glob(f"start {start} pauses on *"))) < workers:
                    time.sleep(0.1)
                change()
            return run.result()
        except BaseException:
            ray.shutdown()  # ends the run, for which the end of the block waits
            raise


def digest(rows: list[torch.Tensor]) -> str:
    """SHA-256 of episode and step of all samples, in their order."""
    return hashlib.sha256(torch.cat(rows).numpy().tobytes()).hexdigest()


def kill_worker(folder: Path, updates: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the last checkpoints of a run of three workers, and of one that was killed and resumed with two."""
    ray.init(num_cpus=3, include_dashboard=False, runtime_env=ENVIRONMENT)
    whole = launch(3, folder, "whole", updates)
    with suppress(ray.train.TrainingFailedError):
        launch(3, folder, "killed", updates, die_at=updates // 2 + 3)
    return whole, launch(2, folder, "killed", updates)


def kill_node(folder: Path, updates: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the last checkpoints of a run of two workers, and of an elastic one that lost a node and got another."""
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(START_SECONDS)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, runtime_env=ENVIRONMENT)
    try:
        whole = launch(2, folder, "whole", updates)
        lose = partial(cluster.remove_node, node, allow_graceful=False)
        return whole, lose_and_add(folder, updates, lose, partial(cluster.add_node, num_cpus=1))
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--elastic", action="store_true", help="lose a node, and add one, during one run")
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        record(Path(name) / "pendulum", 50)
        whole, resumed = (kill_node if args.elastic else kill_worker)(Path(name), args.updates)
        ray.shutdown()
    workers = whole["starts"][0][1]
    print(f"not killed: {workers} workers, loss {whole['losses'][-1]:.6f}, samples {digest(whole['rows'])}")
    for start, workers in resumed["starts"]:
        print(f"killed: {workers} workers from update {start} on")
    print(f"killed: loss {resumed['losses'][-1]:.6f}, samples {digest(resumed['rows'])}")
    print(f"the same samples in the same order: {digest(whole['rows']) == digest(resumed['rows'])}")
    if args.out:
        draw(whole, resumed, args.out)


def draw(whole: dict[str, Any], resumed: dict[str, Any], path: str) -> None:
    """Draw the loss of a run that was not killed, and of each start of one that was."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    axes.plot(whole["losses"], lw=3, alpha=0.4, label=f"{whole['starts'][0][1]} workers, not killed")
    ends = [*(start for start, _ in resumed["starts"][1:]), len(resumed["losses"])]
    for (start, workers), end in zip(resumed["starts"], ends, strict=True):
        axes.plot(range(start, end), resumed["losses"][start:end], lw=0.8, label=f"{workers} workers, from {start} on")
    axes.set(xlabel="update", ylabel="squared error", yscale="log")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
