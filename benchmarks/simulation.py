"""A simulation of reads from storage, compared with loaders that read: requests, bytes and waiting of 1, 2 and 4 hosts.

    python benchmarks/simulation.py [--all] [--setting 0.05,50,0.1] [--megabytes 96] [--seed 1]

Claim: `penstock.simulation.simulate` predicts the bytes of an epoch within 15 %, its requests within 20 %, and the part
of the time that steps wait within 8 points, for windows, packs and mixes, in full shuffles and shuffles by blocks. The
last line says whether this held, and the exit code is 1 if it did not.

The server is a process of this machine that waits before each answer and limits its bandwidth. A host is a process
with a cache of its own and one rank. All hosts wait for each other after each step, as ranks do that average gradients,
and a step is a pause. The constants of the storage are measured first, with the function that users call. The
simulation does not know the seed of the loaders. Without `--all`, each combination of samples, order and setting is
measured with one number of hosts, else with each of them.

A loader also needs processor time, which the prediction does not have: settings with large samples, or a machine that
is busy with other work, make the measured waiting longer.
"""

from __future__ import annotations

import argparse
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
from penstock.simulation import StorageConstants, measure_storage, simulate
from penstock.simulation.orders import Order, in_order, order_name

HOSTS = (1, 2, 4)
THREADS = 2
LIMIT = 120  # seconds for a step of all hosts, after which a host that died is noticed
CLAIMED = {"bytes": 0.15, "requests": 0.20, "waiting": 0.08}
"""Largest errors: relative ones, and points of the time."""


@dataclass(frozen=True)
class Setting:
    """Seconds before each answer, MB a second of the server, and seconds of a step."""

    latency: float
    bandwidth: float
    step: float


SETTINGS = (Setting(0.05, 50, 0.1), Setting(0.1, 20, 0.1), Setting(0.2, 40, 0.1))


@dataclass(frozen=True)
class Case:
    """Samples of a served folder, the batch size, and block and pool of a shuffle by blocks."""

    samples: Callable[[str], penstock.MapDataset]
    batch: int
    block: tuple[int, int]


def windows(url: str, name: str, length: int) -> penstock.MapDataset:
    """Windows of one dataset."""
    return penstock.open(f"{url}/{name}").windows(length)


CASES: dict[str, Case] = {
    "windows of pictures": Case(lambda url: windows(url, "pictures", 2), 64, (64, 8)),
    "windows of states": Case(lambda url: windows(url, "states", 8), 512, (512, 8)),
    "packs of sequences": Case(lambda url: penstock.open(f"{url}/states").sequences().pack(512), 8, (8, 4)),
    "a mix of pictures": Case(
        lambda url: penstock.mix([windows(url, "pictures", 2), windows(url, "others", 2)], [3, 1]), 64, (64, 8)
    ),
}


def host(
    folder: str,
    url: str,
    rank: int,
    world: int,
    name: str,
    order: Order,
    seed: int,
    step: float,
    barrier: Barrier,
    out: Any,
) -> None:
    """Load an epoch as one host: wait for a batch, for the other hosts, then for the step."""
    os.environ["PENSTOCK_CACHE"] = f"{folder}/host-{rank}-{time.time_ns()}"
    from penstock.locations.mirror import MIRRORS

    case = CASES[name]
    ordered = in_order(case.samples(url), order, seed)
    loader = penstock.Loader(ordered, case.batch, rank=rank, world=world, threads=THREADS)
    MIRRORS.cache().evict(0)
    barrier.wait(LIMIT)
    before = counts(url) if rank == 0 else (0, 0)
    barrier.wait(LIMIT)
    times = loaded(loader, step, barrier)
    after = counts(url) if rank == 0 else (0, 0)
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


def measured(
    folder: str, url: str, world: int, name: str, order: Order, seed: int, step: float
) -> tuple[float, float, float]:
    """Requests, bytes and waiting of an epoch."""
    context = multiprocessing.get_context("spawn")
    barrier, out = context.Barrier(world), context.Queue()
    hosts = [
        context.Process(target=host, args=(folder, url, rank, world, name, order, seed, step, barrier, out))
        for rank in range(world)
    ]
    for process in hosts:
        process.start()
    results = []
    while len(results) < world:
        try:
            results.append(out.get(timeout=1))
        except queue.Empty:
            if any(process.exitcode for process in hosts):
                raise SystemExit("a host ended with an error, see above") from None
    for process in hosts:
        process.join()
    requests, nbytes = (sum(each[i] for each in results) for i in (0, 1))
    times = np.array([each[2] for each in results])  # [hosts, batches, asked and had]
    asked, had = times.max(axis=0).T
    # A step waits from the moment when the last host asked for its batch until the last one has it: the time that
    # processes need to wake up does not count. The first batch waits for an empty pipeline.
    waits = np.maximum(had - asked, 0)[1:].sum()
    return requests, nbytes, float(waits / (waits + len(asked) * step))


def predicted(
    url: str, world: int, name: str, order: Order, step: float, storage: StorageConstants
) -> tuple[float, float, float]:
    """The same figures from the plan."""
    case = CASES[name]
    data = case.samples(url)
    options = {"batch_size": case.batch, "storage": storage, "step_seconds": step, "orders": [order]}
    figures = simulate(data, [world], **options, threads=THREADS).figures[0]
    seconds = len(data) / case.batch * step / (1 - figures.waiting)
    return figures.requests * seconds, figures.fetched * world, figures.waiting


def write(folder: Path, megabytes: int) -> None:
    """Rows of 28 kB and of 1 kB in column stores."""
    rng = np.random.default_rng(0)
    for name, row, part in (("pictures", 28224, 1.0), ("others", 28224, 0.4), ("states", 1000, 1.0)):
        rows = int(megabytes * 1e6 * part / row)
        lengths: list[int] = []
        while sum(lengths) < rows:
            lengths.append(min(int(rng.integers(100, 400)), rows - sum(lengths)))
        values = rng.integers(0, 256, (rows, row), np.uint8)
        data = penstock.from_arrays({"observations/row": values}, lengths, align={"observations/row": "step"})
        penstock.convert(data, folder / name)


class Comparison:
    """Prints predictions next to measurements, and keeps the errors."""

    def __init__(self) -> None:
        self.errors: dict[str, list[float]] = {name: [] for name in CLAIMED}

    def add(self, title: str, real: tuple[float, float, float], told: tuple[float, float, float]) -> None:
        """Print a line."""
        pairs = ((f"{real[0]:.0f}", f"{told[0]:.0f}"), (f"{real[1] / 1e6:.0f}", f"{told[1] / 1e6:.0f}"))
        pairs = (*pairs, (f"{real[2]:.1%}", f"{told[2]:.1%}"))
        print(f"{title:<64}" + "".join(f"{a:>9}{b:>9}" for a, b in pairs), flush=True)
        self.errors["requests"].append(abs(told[0] / real[0] - 1))
        self.errors["bytes"].append(abs(told[1] / real[1] - 1))
        self.errors["waiting"].append(abs(told[2] - real[2]))

    def finish(self) -> bool:
        """Print and record the largest errors. Return whether they are within the claim."""
        largest = {name: max(each) for name, each in self.errors.items()}
        print(f"\n{len(self.errors['bytes'])} epochs; each figure measured, then predicted. Largest and mean errors:")
        for name, each in self.errors.items():
            unit = " points" if name == "waiting" else " %"
            print(f"{name:<9}{100 * max(each):6.1f}{unit}, mean {100 * float(np.mean(each)):.1f}{unit}")
            record(name, 100 * max(each), "%")
            record(f"{name}_mean", 100 * float(np.mean(each)), "%")
        record("epochs", len(self.errors["bytes"]), "count")
        held = all(largest[name] <= most for name, most in CLAIMED.items())
        claim = ", ".join(f"{name} {100 * most:.0f}" for name, most in CLAIMED.items())
        print(f"claim ({claim}): {'holds' if held else 'DOES NOT HOLD'}")
        return held


def compare(
    folder: Path, setting: Setting, seed: int, hosts: Callable[[int], tuple[int, ...]], result: Comparison
) -> None:
    """Measure and predict all cases with one setting of the server."""
    ours, theirs = multiprocessing.Pipe()
    arguments = (str(folder / "served"), setting.latency, setting.bandwidth * 1e6, theirs)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    try:
        constants = replace(measure_storage(f"{url}/states", reads=128), total=setting.bandwidth * 1e6)
        where = (
            f"{setting.latency * 1e3:.0f} ms before each answer, {setting.bandwidth:.0f} MB/s, {setting.step} s a step"
        )
        print(
            f"\n{where}; measured {constants.latency * 1e3:.1f} ms, {constants.host / 1e6:.0f} MB/s a host", flush=True
        )
        heads = "".join(f"{head:>18}" for head in ("requests", "MB", "waiting"))
        print(f"{'':<64}{heads}")
        for number, (name, blocks) in enumerate(product(CASES, (False, True))):
            order = CASES[name].block if blocks else None
            for world in hosts(number):
                real = measured(str(folder), url, world, name, order, seed, setting.step)
                told = predicted(url, world, name, order, setting.step, constants)
                result.add(f"{name}, {order_name(order)}, {world} host{'s' * (world > 1)}", real, told)
    finally:
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=96)
    parser.add_argument("--setting", action="append", help="latency in s, MB/s of the server, seconds of a step")
    parser.add_argument("--seed", type=int, default=1, help="of the loaders; one more for each setting")
    parser.add_argument("--all", action="store_true", help="all numbers of hosts for each case")
    chosen = parser.parse_args()
    settings = [Setting(*map(float, text.split(","))) for text in chosen.setting or []] or SETTINGS
    result = Comparison()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_CACHE"] = f"{folder}/cache"
        write(Path(folder) / "served", chosen.megabytes)
        for number, setting in enumerate(settings):

            def hosts(case: int, first: int = number) -> tuple[int, ...]:
                return HOSTS if chosen.all else (HOSTS[(case + case // 2 + first) % len(HOSTS)],)

            compare(Path(folder), setting, chosen.seed + number, hosts, result)
    if not result.finish():
        raise SystemExit(1)


if __name__ == "__main__":
    main()
