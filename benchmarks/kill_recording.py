"""Recording that is killed at random moments: nothing that was saved is lost, and every dataset opens.

Claim: after `kill -9`, every episode whose `write` had returned is in the dataset, equal to the bit, in the column
store and in Minari HDF5; the dataset opens without repair, and the next writer goes on from there.

    python benchmarks/kill_recording.py [--kills 200] [--formats columns minari]

A child process records episodes of 0 to 39 steps and reports each number through a pipe once `write` has returned. It
is killed with SIGKILL after a random number of reports and a random delay, which also falls into the opening of the
dataset. Then the dataset is opened, all episodes that are new are compared with what must be in them, and the next
child appends to the same dataset; a fresh one begins every 10 kills. Exit code 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import figures
import numpy as np

from penstock.formats.base.format import Format, named
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import FLAT, Example, random_episode
from penstock.testing.writers import killed_after

KILLS_A_DATASET = 10
LONGEST_DELAY = 0.02  # seconds; about as long as opening a dataset and writing some episodes takes


@dataclass
class Tally:
    """What happened to the datasets of one format."""

    format: str
    kills: int = 0
    reported: int = 0  # episodes whose `write` had returned
    unreported: int = 0  # complete, but the child died before it could say so
    lost: int = 0
    unequal: int = 0
    unopened: int = 0
    seconds: float = 0.0  # opening after a kill, together

    @property
    def sound(self) -> bool:
        return not (self.lost or self.unequal or self.unopened)


def expected(e: int, example: Example):
    return random_episode(np.random.default_rng(e), example.spec, 1 + e % 39, e)


def record(entry: Format, path: Path, first: int, example: Example) -> Iterator[int]:
    """In the child: append for ever."""
    writer = entry.append(path)
    e = first
    while True:
        writer.write(expected(e, example))
        yield e
        e += 1


def kill_once(tally: Tally, entry: Format, path: Path, known: int, rng: np.random.Generator, example: Example) -> int:
    """Record, kill, open, compare; the number of episodes there are now."""
    reports, delay = int(rng.integers(12)), float(rng.random() * LONGEST_DELAY)
    saved = len(killed_after(reports, partial(record, entry, path, known, example), delay))
    tally.kills += 1
    tally.reported += saved
    start = time.perf_counter()
    try:
        source = entry.open(path)
    except (ValueError, OSError) as error:
        print(f"{path} does not open: {error}", file=sys.stderr)
        tally.unopened += 1
        tally.lost += saved
        return -1
    tally.seconds += time.perf_counter() - start
    with source:
        tally.lost += max(known + saved - len(source), 0)
        tally.unreported += max(len(source) - known - saved, 0)
        for e in range(known, len(source)):
            try:
                assert_same_episode(source.episode(e), expected(e, example))
            except AssertionError:
                tally.unequal += 1
        return len(source)


def run(name: str, folder: Path, kills: int, seed: int = 0, example: Example = FLAT) -> Tally:
    """Kill so many recordings into datasets of one format."""
    entry, tally, rng = named(name), Tally(name), np.random.default_rng(seed)
    known, path = -1, folder
    for kill in range(kills):
        if kill % KILLS_A_DATASET == 0 or known < 0:
            path, known = folder / f"{name}-{kill}-v0", 0
            with entry.create(path, example.spec, {}) as writer:
                writer.write(expected(0, example))  # some formats learn from the first what they hold
                known = 1
        known = kill_once(tally, entry, path, known, rng, example)
    return tally


def show(tallies: list[Tally]) -> None:
    head = ("format", "kills", "saved", "found", "lost", "unequal", "do not open", "whole, unreported", "open, ms")
    print(" | ".join(f"{name:>12}" for name in head))
    for t in tallies:
        found = t.reported - t.lost
        cells = (t.format, t.kills, t.reported, found, t.lost, t.unequal, t.unopened, t.unreported)
        for name, value in (("kills", t.kills), ("saved", t.reported), ("lost", t.lost + t.unequal)):
            figures.record(f"{t.format}.{name}", value, "count")
        print(" | ".join(f"{cell:>12}" for cell in (*cells, f"{t.seconds / max(t.kills, 1) * 1e3:.1f}")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how many a format")
    parser.add_argument("--formats", nargs="+", default=["columns", "minari"])
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_CACHE"] = folder
        tallies = [run(name, Path(folder), chosen.kills, chosen.seed) for name in chosen.formats]
    show(tallies)
    return 0 if all(tally.sound for tally in tallies) else 1


if __name__ == "__main__":
    sys.exit(main())
