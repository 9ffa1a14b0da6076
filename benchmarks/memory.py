"""Memory of a whole shuffled epoch over data that are 20 times larger than `memory=`, of every format that is written.

    python benchmarks/memory.py [--megabytes 320] [--limit 16] [--formats NAME ...]

Each dataset has episodes of 200 steps with 64 x 64 pictures of noise and a vector. A process of its own opens it, takes
a batch of an earlier epoch, and then a whole epoch of shuffled windows, with `loader(memory=)` of the limit. Memory is
anonymous memory, sampled: pages of mapped files belong to the system, which takes them back. "steady" is what the
process has after the first batch, "more" is how much more the epoch had at most. Claim: at most the limit and 32 MB,
which decoders of pictures may keep; the exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np
from rich.console import Console
from rich.table import Table

import penstock
from penstock.formats.base.format import named

STEPS, SIDE = 200, 64
DECODERS = 32  # MB beyond the limit
FORMATS: dict[str, dict[str, Any]] = {
    "columns": {},
    "minari": {},
    "webdataset": {},
    "zarr": {},
    "rlds": {},
    "lerobot": {"fps": 10},
}


def episodes(megabytes: float) -> Iterator[penstock.Episode]:
    spec: penstock.Spec | None = None
    rng = np.random.default_rng(0)
    for e in range(max(int(megabytes * 1e6 / (STEPS * SIDE * SIDE * 3)), 1)):
        last = np.arange(STEPS) == STEPS - 1
        columns = {
            "observations": rng.integers(0, 256, (STEPS + 1, SIDE, SIDE, 3), np.uint8),
            "actions": rng.random((STEPS, 6), np.float32),
            "rewards": rng.random(STEPS),
            "terminations": last,
            "truncations": last & False,
        }
        made = penstock.from_arrays(columns, lengths=[STEPS])
        spec = spec or made.spec
        yield penstock.Episode(spec, made[0].columns, e)


def write(folder: Path, megabytes: float) -> Path:
    """Write our store, which the other formats are converted from."""
    made = iter(episodes(megabytes))
    first = next(made)
    with named("columns").create(folder / "columns", first.spec) as writer:
        writer.write(first)
        writer.write_all(made)
    return folder / "columns"


def anonymous() -> float:
    """Anonymous memory of this process in MB."""
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1000


def measured(path: Path, limit: int) -> dict[str, float]:
    """Run an epoch; return samples a second, and the memory before it and its growth in MB."""
    peak, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.005):
            peak = max(peak, anonymous())

    with penstock.open(path) as data:
        loader = data.windows(2).shuffle(seed=0).loader(batch_size=32, threads=2, memory=limit << 20)
        iterator = iter(loader)
        next(iterator)
        iterator.close()
        steady = anonymous()
        watcher = threading.Thread(target=watch)
        watcher.start()
        begin, samples = time.perf_counter(), 0
        for batch in loader:
            samples += batch.n
        seconds = time.perf_counter() - begin
        over.set()
        watcher.join()
    return {"rate": samples / seconds, "steady": steady, "more": max(peak - steady, 0.0)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=320, help="of pictures in each dataset")
    parser.add_argument("--limit", type=int, default=16, help="memory= of the loader in MB")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), metavar="NAME")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.limit)))
        return 0
    table = Table("format", "samples/s", "steady, MB", "more, MB")
    worst = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        store = write(Path(temporary), options.megabytes)
        for name in options.formats:
            path = store if name == "columns" else Path(temporary) / f"{name}-v0"
            if path != store:
                penstock.convert(store, path, format=name, options=FORMATS[name])
            words = [sys.executable, __file__, "--measure", str(path), "--limit", str(options.limit)]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
            found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
            table.add_row(name, f"{found['rate']:,.0f}", f"{found['steady']:.0f}", f"{found['more']:.0f}")
            worst = max(worst, found["more"])
            figures.record(f"{name}.more", found["more"] * 1e6, "B")
    Console().print(table)
    return int(worst > options.limit + DECODERS)


if __name__ == "__main__":
    raise SystemExit(main())
