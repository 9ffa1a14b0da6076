"""Check 100,000 episodes in both depths: seconds, and the memory that a check adds.

    python benchmarks/check.py [--episodes N] [--formats NAME ...]
    python benchmarks/check.py --merge 1e7

The dataset has episodes of 10 to 50 steps of a robot: 7 joints and 3 of an object in float32, 4 actions, a reward, two
flags and a timestamp. It is written in each format, then a process of its own checks it: once without `--deep`, once
with. Memory is the largest resident set of that process, less that of a process that opened the dataset.

Claims: a check takes at most 60 s, also a deep one, and at most 700 MB more than an open dataset, pages
of mapped files included; clean data have no finding.

With `--merge`, only the merge of the measures of that many synthetic episodes is measured: 7 measures, 18 features and
a digest of each. Memory is the largest anonymous memory, sampled, without pages of scratch files. Claim: 100 bytes an
episode, from 5 million episodes on.
"""

from __future__ import annotations

import argparse
import json
import resource
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

import penstock
from penstock.doctor.measures import CHANGE, PACE, STEP, BlockMeasures, Measures, judge, novelty
from penstock.doctor.thresholds import CheckThresholds
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


def anonymous_bytes() -> int:
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024


def merge(count: int) -> int:
    """Merge synthetic measures as a check does, and print how much memory that takes."""
    base, peak, done = anonymous_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.003):
            peak = max(peak, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.process_time()
    names = ("length", "return", "stillness", f"{CHANGE}actions", "jerk", f"{STEP}timestamps", f"{PACE}timestamps")
    measures = Measures(count)
    for first in range(0, count, 1 << 16):
        n, rng = min(1 << 16, count - first), np.random.default_rng(first)
        digests = rng.integers(0, 256, (n, 16), np.uint8)
        values = {name: 1 + rng.random(n) / 1000 for name in names}
        measures.add(BlockMeasures(first, np.full(n, 50), digests, values, rng.standard_normal((n, 18))))
    list(judge(measures, {}, CheckThresholds()))
    novelty(measures)
    done.set()
    watcher.join()
    more = peak - base
    seconds = time.process_time() - begin
    print(
        f"merge of {count:,} episodes: {more / 1e6:.0f} MB, {more / count:.0f} bytes an episode, {seconds:.1f} s of CPU"
    )
    figures.record("merge.bytes", more / count, "B")
    return 0 if more <= 100 * max(count, 5e6) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--merge", type=float, help="number of synthetic episodes whose measures are merged, no more")
    parser.add_argument("--measure", nargs=2, metavar=("PATH", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(Path(options.measure[0]), options.measure[1])))
        return 0
    if options.merge:
        return merge(int(options.merge))
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
