"""Random transitions by one thread beside NumPy over flat memory maps: the same rows, interleaved, in CPU time.

    python benchmarks/transitions.py [--episodes 200] [--rounds 15]

Rows are like those of HalfCheetah: 17 float64, 6 float32, reward and two ends, in episodes of 1,000 steps, and a
transition has the next observation as well. NumPy draws a permutation for each epoch and indexes an array for each
column. Both read all transitions of an epoch in batches of one size, one after the other in each round, with all files
in the page cache. The table has the least CPU time of a transition in all rounds, and its ratio to NumPy's.

Claim: one thread is 1.2 to 1.7 times as fast as NumPy, in batches of any of these sizes. A job plans and reads
thousands of transitions by a few calls, and cuts them into batches without a copy; NumPy has some thirty calls for each
batch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import numpy as np

import penstock

STEPS = 1000
BATCHES = (64, 256, 1024, 4096)


def write(folder: Path, episodes: int) -> dict[str, Any]:
    """Write the data in three ways; return the flat maps."""
    rng, steps = np.random.default_rng(0), episodes * STEPS
    columns = {
        "observations": rng.normal(size=(steps + episodes, 17)),
        "actions": rng.random((steps, 6), np.float32),
        "rewards": rng.normal(size=steps),
        "terminations": np.zeros(steps, np.bool_),
        "truncations": np.arange(steps) % STEPS == STEPS - 1,
    }
    data = penstock.from_arrays(columns, lengths=[STEPS] * episodes)
    penstock.convert(data, folder / "store", certificate=False)
    penstock.convert(data, folder / "minari-v0", format="minari", certificate=False)
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in columns}


def by_numpy(maps: dict[str, Any], size: int) -> None:
    steps = len(maps["rewards"])
    order = np.random.default_rng().permutation(steps)
    for first in range(0, steps, size):
        rows = order[first : first + size]
        boundary = rows + rows // STEPS  # each episode has one more observation
        batch = {name: column[boundary if name == "observations" else rows] for name, column in maps.items()}
        batch["next"] = maps["observations"][boundary + 1]


def by_penstock(data: Any, size: int) -> None:
    for _ in data.loader(batch_size=size, threads=1):
        pass


def cpu(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    steps = options.episodes * STEPS
    print(f"{'CPU ns a transition':<22} {'NumPy':>7} {'store':>7} {'HDF5':>7}  NumPy / store, NumPy / HDF5")
    with tempfile.TemporaryDirectory() as folder:
        maps = write(Path(folder), options.episodes)
        opened = {name: penstock.open(Path(folder) / name) for name in ("store", "minari-v0")}
        shuffled = {name: data.transitions().shuffle(seed=0) for name, data in opened.items()}
        for size in BATCHES:
            works: dict[str, Callable[[], None]] = {"numpy": lambda size=size: by_numpy(maps, size)}
            for name, data in shuffled.items():
                works[name] = lambda data=data, size=size: by_penstock(data, size)
            rounds = [{name: cpu(work) for name, work in works.items()} for _ in range(options.rounds)]
            numpy, store, hdf5 = (1e9 * min(each[name] for each in rounds) / steps for name in works)
            row = f"batches of {size:<11} {numpy:7.0f} {store:7.0f} {hdf5:7.0f}"
            print(f"{row}  {numpy / store:13.2f} {numpy / hdf5:13.2f}", flush=True)
            figures.record(f"{size}.store", numpy / store, "x")
            figures.record(f"{size}.hdf5", numpy / hdf5, "x")


if __name__ == "__main__":
    main()
