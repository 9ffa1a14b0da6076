"""Shuffled batches of tiny dict records, and of windows over more than a cache: penstock and its peers in one run.

    python benchmarks/tiny_batches.py [--small | --megabytes 2000] [--peer /path/to/python/with/grain/and/torch]

Records are float32[8], int32 and float32[2]; windows are 16 steps of three small columns over 2 GB (--small: 512 MB).
The yardstick is NumPy: a permutation and a fancy index. Peers run in a process of their own, from the same arrays.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import figures
import numpy as np

RECORDS = 200_000
BATCH = 256
STEPS = 16
EPISODE = 1000
SEED = 3


def records(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    return {
        "observation": rng.random((count, 8), np.float32),
        "action": rng.integers(0, 18, count, np.int32),
        "goal": rng.random((count, 2), np.float32),
    }


def rate(batches: Callable[[], Iterable[Any]], of: int, repeats: int = 3) -> float:
    """Batches a second of the best of a few rounds, each over the first `of` batches of a fresh start."""
    times: list[float] = []
    for _ in range(repeats + 1):  # the first compiles and warms
        begin = time.perf_counter()
        taken = sum(1 for _ in islice(batches(), of))
        times.append((time.perf_counter() - begin) / taken)
    return 1 / min(times[1:])


def numpy_records(columns: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    order = np.random.default_rng(SEED).permutation(len(columns["action"]))
    for at in range(0, len(order) - BATCH + 1, BATCH):
        picks = order[at : at + BATCH]
        yield {name: column[picks] for name, column in columns.items()}


def numpy_windows(columns: dict[str, np.ndarray], batches: int) -> Iterator[dict[str, np.ndarray]]:
    """Starts drawn at random, not permuted: a permutation of all of them would be most of the time."""
    rng, last = np.random.default_rng(SEED), EPISODE - STEPS + 1
    episodes = len(columns["action"]) // EPISODE
    for _ in range(batches):
        start = rng.integers(0, episodes, BATCH) * EPISODE + rng.integers(0, last, BATCH)
        rows = start[:, None] + np.arange(STEPS)
        yield {name: column[rows] for name, column in columns.items()}


class Records:
    """A map-style source for those who ask for one record at a time."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["action"])

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {name: column[i] for name, column in self.columns.items()}


class Windows(Records):
    def __len__(self) -> int:
        return len(self.columns["action"]) // EPISODE * (EPISODE - STEPS + 1)

    def __getitem__(self, i: int) -> dict[str, Any]:
        episode, at = divmod(int(i), EPISODE - STEPS + 1)
        start = episode * EPISODE + at
        return {name: column[start : start + STEPS] for name, column in self.columns.items()}


def grain_batches(source: Records, threads: int | None) -> Iterable[Any]:
    import grain.python as grain  # pyright: ignore[reportMissingImports]

    options = grain.ReadOptions() if threads is None else grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return grain.MapDataset.source(source).shuffle(seed=SEED).batch(BATCH).to_iter_dataset(options)


def torch_batches(source: Records, workers: int) -> Iterable[Any]:
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    return DataLoader(source, batch_size=BATCH, shuffle=True, num_workers=workers)  # type: ignore[arg-type]


def peers(count: int, windows: bool) -> dict[str, float]:
    """Samples a second; what a peer gives in 60 batches, or in 300 where that hides the start of its workers."""
    source = Windows(records(count)) if windows else Records(records(count))
    found = {
        "Grain, 0 threads": rate(partial(grain_batches, source, 0), 60, 2),
        "Grain, default threads": rate(partial(grain_batches, source, None), 60, 2),
        "torch DataLoader, 0 workers": rate(partial(torch_batches, source, 0), 60, 2),
        "torch DataLoader, 2 workers": rate(partial(torch_batches, source, 2), 300, 1),
    }
    return {name: value * BATCH for name, value in found.items()}


def dataset(columns: dict[str, np.ndarray], windows: bool) -> Any:
    import penstock

    count = len(columns["action"])
    if windows:
        return penstock.from_arrays(columns, lengths=[EPISODE] * (count // EPISODE)).windows(STEPS).shuffle(SEED)
    return penstock.from_arrays(columns, lengths=[count]).steps().shuffle(SEED)


def ours(data: Any) -> Iterable[Any]:

    return data.loader(batch_size=BATCH, threads=1)


def case(name: str, count: int, windows: bool, of: int, peer: str | None) -> None:
    """Compare those who draw `of` batches."""
    columns = records(count)
    size = sum(column.nbytes for column in columns.values()) / 1e6
    base = numpy_windows if windows else numpy_records
    yardstick = rate(partial(base, columns, of) if windows else partial(base, columns), of) * BATCH
    mine = rate(partial(ours, dataset(columns, windows)), of) * BATCH
    rows = {"NumPy, fancy index": yardstick, "penstock, 1 thread": mine}
    del columns
    if peer is not None:
        command = [peer, __file__, "--as-peer", str(count), *(["--windows"] if windows else [])]
        rows |= json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    print(f"{name}, {size:,.0f} MB, batches of {BATCH}")
    for who, samples in rows.items():
        kind = "windows" if windows else "records"
        figures.record(f"{kind}.{'_'.join(re.findall('[A-Za-z0-9]+', who))}", samples, "/s")
        figures.record(f"{kind}.{'_'.join(re.findall('[A-Za-z0-9]+', who))}.ratio", mine / samples, "x")
        print(f"  {who:<30}{samples:>14,.0f} samples/s{mine / samples:>9.2f} x as fast is penstock")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_const", const=512, dest="megabytes")
    parser.add_argument("--megabytes", type=int, default=2000, help="of windows")
    parser.add_argument("--batches", type=int, default=2000, help="of windows; a third as many of records")
    parser.add_argument("--peer", help="a Python that has grain and torch")
    parser.add_argument("--as-peer", type=int, metavar="RECORDS", help=argparse.SUPPRESS)
    parser.add_argument("--windows", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_peer is not None:
        json.dump(peers(given.as_peer, given.windows), sys.stdout)
        return
    steps = given.megabytes * 1_000_000 // 44 // EPISODE * EPISODE
    case("single records", RECORDS, False, given.batches * 7 // 20, given.peer)
    case(f"windows of {STEPS} steps", steps, True, given.batches, given.peer)


if __name__ == "__main__":
    main()
