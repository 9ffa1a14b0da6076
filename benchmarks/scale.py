"""Planning 10^8 to 10^10 samples from tables of lengths: time, memory of a rank, size of what is sent, time a position.

    python benchmarks/scale.py [--samples 1e8 1e9 1e10] [--sequences 1e9] [--ranks 4]

Claims: 10^10 windows over 10^7 episodes are planned in less than a second, with less than 1 byte an episode in the
memory of a rank next to the offsets, which the ranks of a machine share as a mapped file; a plan that is sent to
another process has less than 100 kB, and a state less than 1 kB; a position of windows, shuffled windows, shards, mixes
and shuffles by blocks takes less than a microsecond. The packs of 10^10 sequences are 8 bytes a window of 65,536.

Episodes have 515 to 1,515 steps. The offsets are a file, as an index in a cache is. Each row is another process, whose
memory is measured by the system: "private" is what no other process shares.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import figures
import numpy as np
from lengths_only import LengthsOnly

import penstock
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.plan.packing.index import PackIndex
from penstock.plan.packing.rule import Rule

MEAN = 1000  # steps of an episode
BLOCK = 4096  # positions of a call
CALLS = 30


FIELDS = {"state": Field(np.dtype("float32"), (8,)), "action": Field(np.dtype("float32"), (2,))}


def write_offsets(path: Path, episodes: int) -> None:
    """Write the offsets of episodes block by block, so that this process stays small."""
    table = np.lib.format.open_memmap(path, "w+", np.int64, (episodes + 1,))
    rng, end = np.random.default_rng(0), 0
    for first in range(0, episodes, 1 << 20):
        lengths = rng.integers(MEAN // 2 + 15, MEAN * 3 // 2 + 15, min(1 << 20, episodes - first))
        table[first + 1 : first + 1 + len(lengths)] = end + np.cumsum(lengths)
        end += int(lengths.sum())
    table.flush()


def memory() -> dict[str, int]:
    """Private and shared bytes of this process."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    kilobytes = {row[0].rstrip(":"): int(row[1]) for row in rows}
    private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return {"private": 1024 * private, "all": 1024 * kilobytes["Rss"]}


def nanoseconds(plan: penstock.plan.Plan) -> float:
    """Time of a position in calls for random blocks of consecutive positions, the median."""
    rng = np.random.default_rng(1)
    times: list[float] = []
    for _ in range(CALLS):
        first = int(rng.integers(len(plan) - BLOCK))
        begin = time.perf_counter()
        plan.resolve(np.arange(first, first + BLOCK))
        times.append((time.perf_counter() - begin) / BLOCK)
    return 1e9 * float(np.median(times))


def orders(windows: penstock.MapDataset) -> dict[str, penstock.MapDataset]:
    """The plans that are measured."""
    return {
        "windows": windows,
        "shuffle": windows.shuffle(0),
        "shuffle, shard": windows.shuffle(0).shard(3, 64),
        "block shuffle": windows.shuffle(0, block=1024, pool=16),
        "mix": penstock.mix([windows.shuffle(0), windows.shuffle(1)], [3, 1], stop="all_exhausted"),
    }


def rank(path: str, pipe: Connection, barrier: Any) -> None:
    """Plan, and report memory and times. All ranks have their plans when memory is measured."""
    LengthsOnly(FIELDS, path)  # imports come before the measurement
    small = EpisodeDataset(penstock.from_arrays({"x": np.zeros(9)}, [9]).source).windows(2).shuffle(0)
    small.plan.resolve(np.arange(2))
    before = memory()["private"]
    begin = time.perf_counter()
    windows = EpisodeDataset(LengthsOnly(FIELDS, path)).windows(16)
    seconds = time.perf_counter() - begin
    plans = orders(windows)
    report: dict[str, Any] = {"seconds": seconds, "samples": len(windows), "before": before}
    barrier.wait()
    report["memory"] = memory()["private"] - before
    report["sent"] = max(len(pickle.dumps(each.plan)) for each in plans.values())
    report["state"] = len(json.dumps(penstock.Loader(small, 2).state_dict()))
    barrier.wait()
    report["ns"] = {name: nanoseconds(each.plan) for name, each in plans.items()}
    pipe.send(report)


def measured(folder: Path, samples: float, ranks: int) -> list[dict[str, Any]]:
    """Reports of ranks, which plan at the same time."""
    path = folder / f"{samples:.0e}.npy"
    write_offsets(path, int(samples) // MEAN)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(ranks)
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [context.Process(target=rank, args=(str(path), theirs, barrier)) for _, theirs in pipes]
    for process in processes:
        process.start()
    reports = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return reports


def windows(folder: Path, samples: list[float], ranks: int) -> None:
    """Print the table of windows."""
    print(f"{ranks} ranks of a machine, each with windows of 16 over the same mapped offsets\n")
    names = ("windows", "shuffle", "shuffle, shard", "block shuffle", "mix")
    print(
        f"{'samples':>16}{'planned':>10}{'private':>10}{'offsets':>10}{'sent':>9}" + "".join(f"{n:>16}" for n in names)
    )
    for count in samples:
        reports = measured(folder, count, ranks)
        one = max(reports, key=lambda report: report["memory"])
        offsets = 8 * int(count) // MEAN
        line = f"{one['samples']:>16,}{one['seconds']:>8.2f} s{one['memory'] / 1e6:>7.1f} MB{offsets / 1e6:>7.1f} MB"
        spent = {name: float(np.median([report["ns"][name] for report in reports])) for name in names}
        print(line + f"{one['sent'] / 1e3:>6.1f} kB" + "".join(f"{spent[name]:>13.0f} ns" for name in names))
        size = f"1e{round(np.log10(count))}"
        figures.record(f"{size}.seconds", one["seconds"], "s")
        figures.record(f"{size}.private", one["memory"], "B")
        figures.record(f"{size}.offsets", offsets, "B")
        figures.record(f"{size}.sent", one["sent"], "B")
        figures.record(f"{size}.shuffle", spent["shuffle"] * 1e-9, "s")
        figures.record("state", one["state"], "B")
    print(f"\na state has {one['state']} bytes")


def packs(sequences: int) -> None:
    """Plan packs from a function for lengths, on all cores, in the memory of some windows."""
    table = np.random.default_rng(0).lognormal(5.5, 0.9, 1 << 22).clip(1, 2048).astype(np.uint16)
    before = memory()["private"]
    begin = time.perf_counter()
    index = PackIndex(
        lambda item: table[item & (len(table) - 1)], Rule((2048,)), n=sequences, keep="recompute", threads=4
    )
    many = len(index)
    seconds = time.perf_counter() - begin
    more = memory()["private"] - before
    print(f"\n{sequences:,} sequences in {many:,} packs of 2,048: planned in {seconds:.0f} s on 4 threads,")
    print(f"plan {index.nbytes / 1e6:.2f} MB, memory {more / 1e6:.0f} MB")
    figures.record("packs.seconds", seconds, "s")
    figures.record("packs.plan", index.nbytes, "B")
    figures.record("packs.memory", more, "B")
    figures.record("packs.packs", many, "count")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=float, nargs="+", default=[1e8, 1e9, 1e10])
    parser.add_argument("--sequences", type=float, default=1e9)
    parser.add_argument("--ranks", type=int, default=4)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        windows(Path(folder), chosen.samples, chosen.ranks)
    packs(int(chosen.sequences))


if __name__ == "__main__":
    main()
