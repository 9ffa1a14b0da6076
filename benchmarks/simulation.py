"""A simulation of reads from storage, compared with loaders that read: requests, bytes and waiting of 1, 2 and 4 hosts.

    python benchmarks/simulation.py [--megabytes 128] [--latency 0.02] [--bandwidth 200] [--step 0.05]

Claim: `penstock.simulation.simulate` predicts the bytes of an epoch within 5 % and the requests within 15 %, for full
shuffles and shuffles by blocks, and a lower bound of the part of the time that steps wait.

The server is a process of this machine that waits before each answer and limits its bandwidth. A host is a process
with a cache of its own and one rank. All hosts wait for each other after each step, as ranks do that average gradients,
and a step is a pause. A second epoch from the cache of the host says how long batches are waited for without the
storage; this time is taken off. The constants of the storage are measured first, with the function that users call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from figures import record
from remote import ROW, STEPS, ask, serve

import penstock
from penstock.simulation import StorageConstants, measure_storage, simulate
from penstock.simulation.simulate import Order, order_name

BATCH, WINDOW = 64, 2
ORDERS: tuple[Order, ...] = (None, (64, 8))
HOSTS = (1, 2, 4)


def in_order(data: Any, order: Order) -> Any:
    """Windows in one order."""
    return data.shuffle(1) if order is None else data.shuffle(1, block=order[0], pool=order[1])


def host(folder: str, url: str, rank: int, world: int, order: Order, step: float, barrier: Barrier, out: Any) -> None:
    """Load an epoch as one host: wait for a batch, for the other hosts, then for the step."""
    os.environ["PENSTOCK_CACHE"] = f"{folder}/host-{rank}-{world}-{time.time_ns()}"
    from penstock.locations.mirror import MIRRORS

    with penstock.open(url) as data:
        loader = penstock.Loader(in_order(data.windows(WINDOW), order), BATCH, rank=rank, world=world, threads=2)
        MIRRORS.cache().evict(0)
        barrier.wait()
        if rank == 0:
            out.put(counts(url))
        barrier.wait()
        cold, steps = waited(loader, step, barrier)
        if rank == 0:
            out.put(counts(url))
        loader = penstock.Loader(in_order(data.windows(WINDOW), order), BATCH, rank=rank, world=world, threads=2)
        warm, _ = waited(loader, step, barrier)
        if rank == 0:
            out.put((cold, warm, steps * step))


def waited(loader: penstock.Loader, step: float, barrier: Barrier) -> tuple[float, int]:
    """Seconds that steps wait in an epoch, and the number of steps. The first batch waits for an empty pipeline."""
    seconds, number = 0.0, 0
    batches = iter(loader)
    begin = time.perf_counter()
    while next(batches, None) is not None:
        barrier.wait()  # until all have their batch
        seconds += time.perf_counter() - begin if number else 0.0
        number += 1
        time.sleep(step)
        begin = time.perf_counter()
    barrier.wait()
    return seconds, number


def counts(url: str) -> tuple[int, int]:
    """Requests and bytes that the server has answered."""
    port = urlsplit(url).port or 80
    return int(ask(port, "/requests")), int(ask(port, "/fetched"))


def measured(folder: str, url: str, world: int, order: Order, step: float) -> tuple[float, float, float]:
    """Requests, bytes and waiting of an epoch."""
    context = multiprocessing.get_context("spawn")
    barrier, out = context.Barrier(world), context.Queue()
    hosts = [
        context.Process(target=host, args=(folder, url, rank, world, order, step, barrier, out))
        for rank in range(world)
    ]
    for process in hosts:
        process.start()
    before, after, (cold, warm, steps) = (out.get(timeout=300) for _ in range(3))
    for process in hosts:
        process.join()
    storage = max(cold - warm, 0.0)
    return after[0] - before[0], after[1] - before[1], storage / (storage + steps)


def predicted(url: str, world: int, order: Order, step: float, storage: StorageConstants) -> tuple[float, float, float]:
    """The same figures from the plan."""
    with penstock.open(url) as data:
        windows = data.windows(WINDOW)
        options = {"batch_size": BATCH, "storage": storage, "step_seconds": step, "orders": [order]}
        figures = simulate(windows, [world], **options).figures[0]
        seconds = len(windows) / BATCH * step / (1 - figures.waiting)
    return figures.requests * seconds, figures.fetched * world, figures.waiting


def write(folder: Path, megabytes: int) -> None:
    """Rows in a column store."""
    episodes = max(megabytes * 1_000_000 // (ROW * STEPS), 2)
    rows = np.random.default_rng(0).integers(0, 256, (episodes * STEPS, ROW), np.uint8)
    data = penstock.from_arrays({"observations/row": rows}, [STEPS] * episodes, align={"observations/row": "step"})
    penstock.convert(data, folder / "columns")


def compare(folder: Path, megabytes: int, latency: float, bandwidth: float, step: float) -> None:
    """Measure and predict, and print the table."""
    write(folder / "served", megabytes)
    ours, theirs = multiprocessing.Pipe()
    arguments = (str(folder / "served"), latency, bandwidth * 1e6, theirs)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/columns"
    try:
        constants = replace(measure_storage(url, reads=128), total=bandwidth * 1e6)
        print(f"{megabytes} MB, {latency * 1e3:.0f} ms before each answer, {bandwidth:.0f} MB/s, steps of {step} s")
        print(f"measured: latency {constants.latency * 1e3:.1f} ms, {constants.host / 1e6:.0f} MB/s a host\n")
        heads = ("requests", "bytes", "waiting")
        print(f"{'order':<28}{'hosts':>6}" + "".join(f"{head:>12}{'predicted':>12}" for head in heads))
        errors: dict[str, list[float]] = {"requests": [], "bytes": [], "waiting": []}
        for order in ORDERS:
            for world in HOSTS:
                real = measured(str(folder), url, world, order, step)
                told = predicted(url, world, order, step, constants)
                pairs = ((f"{real[0]:.0f}", f"{told[0]:.0f}"), (f"{real[1] / 1e6:.0f} MB", f"{told[1] / 1e6:.0f} MB"))
                pairs = (*pairs, (f"{real[2]:.1%}", f"{told[2]:.1%}"))
                print(f"{order_name(order):<28}{world:>6}" + "".join(f"{a:>12}{b:>12}" for a, b in pairs))
                errors["requests"].append(abs(told[0] / real[0] - 1))
                errors["bytes"].append(abs(told[1] / real[1] - 1))
                errors["waiting"].append(abs(told[2] - real[2]))
        print("\nlargest error: " + ", ".join(f"{name} {max(each):.1%}" for name, each in errors.items()))
        for name, each in errors.items():
            record(name, 100 * max(each), "%")
    finally:
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--bandwidth", type=float, default=200, help="MB/s of the server")
    parser.add_argument("--step", type=float, default=0.05, help="seconds of a step")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_CACHE"] = f"{folder}/cache"
        compare(Path(folder), chosen.megabytes, chosen.latency, chosen.bandwidth, chosen.step)


if __name__ == "__main__":
    main()
