"""Check 100,000 episodes in both depths: seconds, and the memory that a check adds.

    python benchmarks/check.py [--episodes N] [--formats NAME ...]

The dataset has episodes of 10 to 50 steps of a robot: 7 joints and 3 of an object in float32, 4 actions, a reward, two
flags and a timestamp. It is written in each format, then a process of its own checks it: once without `--deep`, once
with. Memory is the largest resident set of that process, less that of a process that opened the dataset.

Claims: a check takes at most 60 s, also a deep one, and at most 700 MB more than an open dataset, pages
of mapped files included; clean data have no finding.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np

import penstock
from penstock.formats.base.format import named

CLAIM_SECONDS, CLAIM_BYTES = 60.0, 700e6
SHORTEST, LONGEST = 10, 50
FORMATS: dict[str, dict[str, Any]] = {
    "columns": {},
    "minari": {},
    "webdataset": {"shard_episodes": 10_000},
    "zarr": {},
    "rlds": {},
}
FLAG = penstock.Field(np.dtype("?"))
SPEC = penstock.Spec(
    {
        "observations": penstock.Field(np.dtype("f4"), (10,), "boundary"),
        "actions": penstock.Field(np.dtype("f4"), (4,)),
        "rewards": penstock.Field(np.dtype("f8")),
        "terminations": FLAG,
        "truncations": FLAG,
        "timestamps": penstock.Field(np.dtype("f8")),
    }
)


def episodes(count: int) -> Iterator[penstock.Episode]:
    """Random walks."""
    rng = np.random.default_rng(0)
    for e in range(count):
        n = int(rng.integers(SHORTEST, LONGEST + 1))
        last = np.arange(n) == n - 1
        columns = {
            "observations": np.cumsum(rng.normal(size=(n + 1, 10)), 0, dtype=np.float32),
            "actions": np.cumsum(rng.normal(size=(n, 4)), 0, dtype=np.float32),
            "rewards": rng.normal(size=n),
            "terminations": last & bool(e % 2),
            "truncations": last & (not e % 2),
            "timestamps": np.arange(n) * 0.1,
        }
        yield penstock.Episode(SPEC, columns, e)


def write(folder: Path, format: str, count: int) -> Path:
    path = folder / "data-v0"
    with named(format).create(path, SPEC, **FORMATS[format]) as writer:
        writer.write_all(episodes(count))
    return path


def measured(path: Path, mode: str) -> dict[str, Any]:
    """Seconds, peak of memory in bytes, and findings of one process that opens or checks a dataset."""
    begin = time.perf_counter()
    findings: list[str] = []
    if mode == "open":
        with penstock.open(path) as data:
            findings = [str(len(data))]
    else:
        report = penstock.check(path, deep=mode == "deep", progress=False)
        findings = [finding.name for finding in report.findings if finding.name != "partial"]
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "found": findings}


def in_process(path: Path, mode: str) -> dict[str, Any]:
    words = [sys.executable, __file__, "--measure", str(path), mode]
    return json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--measure", nargs=2, metavar=("PATH", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(Path(options.measure[0]), options.measure[1])))
        return 0
    sound = True
    print(f"{options.episodes:,} episodes\n{'format':12}{'check, s':>10}{'deep, s':>10}{'more MB':>10}")
    for format in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            path = write(Path(folder), format, options.episodes)
            written = time.perf_counter() - begin
            opened, quick, deep = (in_process(path, mode) for mode in ("open", "quick", "deep"))
        more = max(quick["bytes"], deep["bytes"]) - opened["bytes"]
        times = f"{quick['seconds']:10.1f}{deep['seconds']:10.1f}"
        print(f"{format:12}{times}{more / 1e6:10.0f}   (written in {written:.0f} s)", flush=True)
        found = [*quick["found"], *deep["found"]]
        slow = max(quick["seconds"], deep["seconds"]) > CLAIM_SECONDS
        if slow or more > CLAIM_BYTES or found:
            print(f"  not as claimed: {', '.join(sorted(set(found))) or 'time or memory'}")
            sound = False
        figures.record(f"{format}.quick", quick["seconds"], "s")
        figures.record(f"{format}.deep", deep["seconds"], "s")
        figures.record(f"{format}.memory", more, "B")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
