"""A simulation of reads from storage, compared with loaders that read: requests, bytes and waiting of 1, 2 and 4 hosts.

    python benchmarks/simulation.py [--all] [--setting 0.05,40] [--megabytes 64] [--seed 1]

Claim: the simulation predicts the bytes of an epoch within 15 %, its requests within 20 %, and the part
of the time that steps wait within 8 points, for windows, packs and mixes, in full shuffles and shuffles by blocks, of
plain values. The last line says whether this held, and the exit code is 1 if it did not. There is no claim for PNG
pictures and video, which cores of this machine decode: their errors are printed.

The server is a process of this machine that waits before each answer and limits its bandwidth. A host is a process
with a cache of its own and one rank. All hosts wait for each other after each step, as ranks do that average gradients,
and a step is a pause. The constants of the storage, and the work of a thread for a sample, are measured first, with the
functions that users call. The simulation does not know the seed of the loaders. Without `--all`, each combination of
samples, order and setting is measured with one number of hosts, else with each of them.

Hosts share the cores of this machine, which the prediction does not have: so PNG and video are decoded by one host,
with two threads. Run it on a quiet machine of at least four cores: other work makes the measured waiting longer.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from figures import record
from remote import ask, serve

import penstock
from penstock_cluster.simulation import StorageConstants, measure_storage, simulate
from penstock_cluster.simulation.orders import Order, in_order, order_name
from penstock_cluster.simulation.work import measure_work

THREADS = 2
LIMIT = 120  # seconds for a step of all hosts, after which a host that died is noticed
CLAIMED = {"bytes": 0.15, "requests": 0.20, "waiting": 0.08}
"""Largest errors: relative ones, and points of the time."""
DECODED = "waiting_decoded"
"""Waiting for samples that are decoded, which nothing is claimed of."""


@dataclass(frozen=True)
class Setting:
    """Seconds before each answer, and MB a second of the server."""

    latency: float
    bandwidth: float


SETTINGS = (Setting(0.05, 40), Setting(0.2, 80))  # limited by bandwidth, and by latency


@dataclass(frozen=True)
class Case:
    """Samples of the datasets of a folder or URL, the batch size, block and pool of a shuffle by blocks, and the step.

    Args:
        samples: Returns the samples.
        batch: Samples of a batch.
        block: Block and pool.
        step: Seconds of a step.
        hosts: Numbers of hosts.
    """

    samples: Callable[[str], penstock.MapDataset]
    batch: int
    block: tuple[int, int]
    step: float = 0.1
    hosts: tuple[int, ...] = (1, 2, 4)


def windows(url: str, name: str, length: int) -> penstock.MapDataset:
    """Windows of one dataset."""
    return penstock.open(f"{url}/{name}").windows(length)


CASES: dict[str, Case] = {
    "windows of pictures": Case(lambda url: windows(url, "pictures", 2), 64, (64, 8)),
    "windows of states": Case(lambda url: windows(url, "states", 8), 2048, (512, 8)),
    "packs of sequences": Case(lambda url: penstock.open(f"{url}/states").sequences().pack(512), 8, (8, 4)),
    "a mix of pictures": Case(
        lambda url: penstock.mix([windows(url, "pictures", 2), windows(url, "others", 2)], [3, 1]), 64, (64, 8)
    ),
    "windows of PNG": Case(lambda url: windows(url, "png", 8), 32, (64, 8), step=0.02, hosts=(1,)),
    "windows of video": Case(lambda url: windows(url, "video", 8), 32, (64, 8), step=0.02, hosts=(1,)),
}


@functools.cache
def samples_of(name: str, place: str) -> penstock.MapDataset:
    """Return the samples of a case, opened once in a process."""
    return CASES[name].samples(place)


@dataclass(frozen=True)
class Epoch:
    """What hosts load: `world` of them, and the seed of the shuffle."""

    url: str
    world: int
    name: str
    order: Order
    seed: int


def host(folder: str, rank: int, barriers: dict[int, Barrier], epochs: Any, out: Any) -> None:
    """Load epochs as one host, until there are no more."""
    os.environ["PENSTOCK_CACHE"] = f"{folder}/host-{rank}"
    from penstock.locations.mirror import MIRRORS

    for epoch in iter(epochs.get, None):
        barrier = barriers[epoch.world]
        case = CASES[epoch.name]
        ordered = in_order(samples_of(epoch.name, epoch.url), epoch.order, epoch.seed)
        loader = ordered.loader(case.batch, rank=rank, world=epoch.world, threads=THREADS)
        ordered[: case.batch]  # imports and compiles what the first batch of a process needs
        MIRRORS.cache().evict(0)
        barrier.wait(LIMIT)
        before = counts(epoch.url) if rank == 0 else (0, 0)
        barrier.wait(LIMIT)
        times = loaded(loader, case.step, barrier)
        after = counts(epoch.url) if rank == 0 else (0, 0)
        out.put((after[0] - before[0], after[1] - before[1], times))


def loaded(loader: penstock.Loader, step: float, barrier: Barrier) -> list[tuple[float, float]]:
    """When this host asked for each batch of an epoch, and when it had it, on the clock of all processes."""
    times: list[tuple[float, float]] = []
    batches = iter(loader)
    asked = time.monotonic()
    while next(batches, None) is not None:
        times.append((asked, time.monotonic()))
        barrier.wait(LIMIT)  # until all have their batch
        time.sleep(step)
        asked = time.monotonic()
    barrier.wait(LIMIT)
    return times


def counts(url: str) -> tuple[int, int]:
    """Requests and bytes that the server has answered."""
    port = urlsplit(url).port or 80
    return int(ask(port, "/requests")), int(ask(port, "/fetched"))


class Hosts:
    """Processes that load epochs."""

    def __init__(self, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        every = sorted({world for case in CASES.values() for world in case.hosts})
        self._barriers = {world: context.Barrier(world) for world in every}
        self._out = context.Queue()
        self._epochs = [context.Queue() for _ in range(every[-1])]
        self._processes = [
            context.Process(target=host, args=(folder, rank, self._barriers, epochs, self._out), daemon=True)
            for rank, epochs in enumerate(self._epochs)
        ]
        for process in self._processes:
            process.start()

    def measured(self, epoch: Epoch) -> tuple[float, float, float]:
        """Return requests, bytes and waiting of an epoch."""
        for epochs in self._epochs[: epoch.world]:
            epochs.put(epoch)
        results: list[Any] = []
        while len(results) < epoch.world:
            try:
                results.append(self._out.get(timeout=1))
            except queue.Empty:
                if any(process.exitcode for process in self._processes):
                    raise SystemExit("a host ended with an error, see above") from None
        requests, nbytes = (sum(each[i] for each in results) for i in (0, 1))
        times = np.array([each[2] for each in results])  # [hosts, batches, asked and had]
        asked, had = times.max(axis=0).T
        # A step waits from the moment when the last host asked for its batch until the last one has it: the time that
        # processes need to wake up does not count. The first batch waits for an empty pipeline.
        waits = np.maximum(had - asked, 0)[1:].sum()
        return requests, nbytes, float(waits / (waits + len(asked) * CASES[epoch.name].step))

    def end(self) -> None:
        """Let the processes end."""
        for epochs in self._epochs:
            epochs.put(None)
        for process in self._processes:
            process.join()


@functools.cache
def work_of(folder: str, name: str, order: Order, world: int) -> float:
    """Seconds that a thread works for a sample, which does not depend on the storage."""
    case = CASES[name]
    return measure_work(in_order(samples_of(name, folder), order, 0), case.batch, world, THREADS)


def predicted(
    url: str, world: int, name: str, order: Order, work: float, storage: StorageConstants
) -> tuple[float, float, float]:
    """The same figures from the plan."""
    case, data = CASES[name], samples_of(name, url)
    result = simulate(
        data,
        [world],
        batch_size=case.batch,
        storage=storage,
        step_seconds=case.step,
        orders=[order],
        threads=THREADS,
        work=work,
    )
    figures = result.figures[0]
    seconds = len(data) / case.batch * case.step / (1 - figures.waiting)
    return figures.requests * seconds, figures.fetched * world, figures.waiting


def write(folder: Path, megabytes: int) -> None:
    """Rows of 28 kB and of 1 kB in column stores, and moving pictures as PNG and as video."""
    rng = np.random.default_rng(0)
    for name, row, part in (("pictures", 28224, 1.0), ("others", 28224, 0.4), ("states", 1000, 1.5)):
        rows = int(megabytes * 1e6 * part / row)
        values = rng.integers(0, 256, (rows, row), np.uint8)
        penstock.convert(dataset(values, rng), folder / name)
    pictures = rng.integers(0, 16, (int(2 * megabytes * 1e6 / 96 / 96 / 3), 96, 96, 3), np.uint8)  # noise of a camera
    scene = rng.integers(0, 240, (12, 12, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    for number in range(len(pictures)):
        pictures[number] += np.roll(scene, (number // 2, number), (0, 1))
    data = dataset(pictures, rng)
    penstock.convert(data, folder / "png", format="lerobot", options={"fps": 10})
    video = {"fps": 10, "cameras": "video", "codec": "libx264", "crf": 1, "g": 10}
    penstock.convert(data, folder / "video", format="lerobot", options=video)


def dataset(values: np.ndarray, rng: np.random.Generator) -> penstock.EpisodeDataset:
    """Return rows as episodes of 100 to 400."""
    lengths: list[int] = []
    while sum(lengths) < len(values):
        lengths.append(min(int(rng.integers(100, 400)), len(values) - sum(lengths)))
    return penstock.from_arrays({"observations/row": values}, lengths, align={"observations/row": "step"})


class Comparison:
    """Prints predictions next to measurements, and keeps the errors."""

    def __init__(self) -> None:
        self.errors: dict[str, list[float]] = {name: [] for name in (*CLAIMED, DECODED)}

    def add(self, title: str, real: tuple[float, float, float], told: tuple[float, float, float], work: float) -> None:
        """Print a line."""
        pairs = ((f"{real[0]:.0f}", f"{told[0]:.0f}"), (f"{real[1] / 1e6:.0f}", f"{told[1] / 1e6:.0f}"))
        pairs = (*pairs, (f"{real[2]:.1%}", f"{told[2]:.1%}"))
        print(f"{title:<64}" + "".join(f"{a:>9}{b:>9}" for a, b in pairs) + f"{1e3 * work:>13.3f} ms", flush=True)
        self.errors["requests"].append(abs(told[0] / real[0] - 1))
        self.errors["bytes"].append(abs(told[1] / real[1] - 1))
        decoded = title.startswith(("windows of PNG", "windows of video"))
        self.errors[DECODED if decoded else "waiting"].append(abs(told[2] - real[2]))

    def finish(self) -> bool:
        """Print and record the largest errors. Return whether they are within the claim."""
        largest = {name: max(each) for name, each in self.errors.items()}
        print(f"\n{len(self.errors['bytes'])} epochs; each figure measured, then predicted. Largest and mean errors:")
        for name, each in self.errors.items():
            unit = " points" if name.startswith("waiting") else " %"
            print(f"{name:<16}{100 * max(each):6.1f}{unit}, mean {100 * float(np.mean(each)):.1f}{unit}")
            record(name, 100 * max(each), "%")
            record(f"{name}_mean", 100 * float(np.mean(each)), "%")
        record("epochs", len(self.errors["bytes"]), "count")
        held = all(largest[name] <= most for name, most in CLAIMED.items())
        claim = ", ".join(f"{name} {100 * most:.0f}" for name, most in CLAIMED.items())
        print(f"claim ({claim}): {'holds' if held else 'DOES NOT HOLD'}")
        return held


def compare(folder: Path, hosts: Hosts, setting: Setting, seed: int, every: bool, result: Comparison) -> None:
    """Measure and predict all cases with one setting of the server."""
    ours, theirs = multiprocessing.Pipe()
    served = str(folder / "served")
    arguments = (served, setting.latency, setting.bandwidth * 1e6, theirs)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    try:
        constants = replace(measure_storage(f"{url}/states", reads=64), total=setting.bandwidth * 1e6)
        where = f"{setting.latency * 1e3:.0f} ms before each answer, {setting.bandwidth:.0f} MB/s"
        print(
            f"\n{where}; measured {constants.latency * 1e3:.1f} ms, {constants.host / 1e6:.0f} MB/s a host", flush=True
        )
        heads = "".join(f"{head:>18}" for head in ("requests", "MB", "waiting"))
        print(f"{'':<64}{heads}{'work a sample':>16}")
        for number, (name, blocks) in enumerate(product(CASES, (False, True))):
            case = CASES[name]
            order = case.block if blocks else None
            one = case.hosts[(number + number // 2 + seed) % len(case.hosts)]
            for world in case.hosts if every else (one,):
                real = hosts.measured(Epoch(url, world, name, order, seed))
                work = work_of(served, name, order, world)
                told = predicted(url, world, name, order, work, constants)
                result.add(f"{name}, {order_name(order)}, {world} host{'s' * (world > 1)}", real, told, work)
    finally:
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--setting", action="append", help="latency in s, MB/s of the server")
    parser.add_argument("--seed", type=int, default=1, help="of the loaders; one more for each setting")
    parser.add_argument("--all", action="store_true", help="all numbers of hosts for each case")
    chosen = parser.parse_args()
    texts: list[str] = chosen.setting or []
    settings = [Setting(*map(float, text.split(","))) for text in texts] or SETTINGS
    result = Comparison()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_CACHE"] = f"{folder}/cache"
        write(Path(folder) / "served", chosen.megabytes)
        hosts = Hosts(folder)
        for number, setting in enumerate(settings):
            compare(Path(folder), hosts, setting, chosen.seed + number, chosen.all, result)
        hosts.end()
    if not result.finish():
        raise SystemExit(1)


if __name__ == "__main__":
    main()
