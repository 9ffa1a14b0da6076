"""What picks of a mix cost, with 3 to 1000 sources; and what they cost in Grain, in the same run.

Claims: tens of millions of picks a second, in any order; as many with 1000 sources as with 3 where the order is a
table, and a fifth to a seventh where it is a tree; and some hundreds of times Grain's. The greedy loop (for each pick,
the source that lacks most) stands for schedules that are written down beforehand, as Megatron's: it cannot begin in the
middle, and takes 10 bytes a pick.

    python benchmarks/mixing.py [--peer PYTHON]     # PYTHON: an interpreter that has grain
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import figures
import numba
import numpy as np

from penstock.plan.schedule import MixSchedule, Schedule
from penstock.plan.weights import shares

BLOCK = 1 << 16


def best(call: Callable[[int], object], repeats: int) -> float:
    """Seconds of the fastest call; each is handed its number."""
    call(0)
    times: list[float] = []
    for i in range(1, repeats + 1):
        begin = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - begin)
    return min(times)


def whole(sources: int) -> list[int]:
    """Percent-like weights, which repeat soon."""
    return np.random.default_rng(sources).integers(1, 100, sources).tolist()


def odd(sources: int) -> list[float]:
    """Weights with 17 digits, which do not repeat."""
    return np.random.default_rng(sources).uniform(0.01, 1, sources).tolist()


def rates(make: Callable[[int], list[Any]], sources: int, repeats: int) -> dict[str, float]:
    """Seconds to build, and picks a second, in order and at random."""
    begin = time.perf_counter()
    schedule = Schedule.of(shares(make(sources)))
    built = time.perf_counter() - begin
    scattered = np.random.default_rng(0).integers(0, 1 << 40, (repeats + 1, BLOCK))
    return {
        "built": built,
        "bound": schedule.bound,
        "in order": BLOCK / best(lambda i: schedule.picks(np.arange(i * BLOCK, (i + 1) * BLOCK)), repeats),
        "at random": BLOCK / best(lambda i: schedule.picks(scattered[i]), repeats),
    }


@numba.njit
def greedy(wanted: Any, out: Any) -> None:
    """Each pick to the source that lacks most."""
    counts = np.zeros(len(wanted))
    for k in range(len(out)):
        out[k] = np.argmax(wanted * (k + 1) - counts)
        counts[out[k]] += 1


def greedy_rate(sources: int, repeats: int) -> float:
    wanted = np.array(whole(sources), float)
    out = np.empty(BLOCK, np.int64)
    return BLOCK / best(lambda _: greedy(wanted / wanted.sum(), out), -(-repeats // 4))


PEER = """
import json, sys, time
import grain
def rate(weights, n):
    mixed = grain.MapDataset.mix([grain.MapDataset.range(10**9) for _ in weights], weights)
    mixed[0]
    begin = time.perf_counter()
    for i in range(n):
        mixed[i]
    return n / (time.perf_counter() - begin)
print(json.dumps([max(rate(w, 200_000 // len(w) + 2000) for _ in range(3)) for w in json.loads(sys.argv[1])]))
"""


def grain_rates(python: str, sources: Sequence[int]) -> list[float]:
    """Elements a second of `MapDataset.mix` of ranges, in another interpreter."""
    weights = json.dumps([[w / 100 for w in whole(n)] for n in sources])
    done = subprocess.run([python, "-c", PEER, weights], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def drains(numbers: Sequence[int], repeats: int) -> None:
    """Building and picking of a mix that drains its sources."""
    for sources in numbers:
        sizes = np.random.default_rng(1).integers(10**5, 10**7, sources).tolist()
        begin = time.perf_counter()
        course = MixSchedule.of([Fraction(1, sources)] * sources, sizes, "drain")
        built = time.perf_counter() - begin
        scattered = np.random.default_rng(0).integers(0, sum(sizes), BLOCK)
        rate = BLOCK / best(lambda _, course=course, k=scattered: course.picks(k), -(-repeats // 4))
        held = f"{type(course.order).__name__}, bound {course.bound:.2f}"
        print(f"drain {sources:>5} sources: built in {built:.3f} s, {rate / 1e6:6.1f} M picks/s at random ({held})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", help="an interpreter that has grain")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--sources", type=int, nargs="+", default=[3, 10, 100, 1000])
    options = parser.parse_args()
    peer, repeats = options.peer, options.repeats
    theirs = grain_rates(peer, options.sources) if peer else None
    for name, make in (("whole weights", whole), ("odd weights", odd)):
        for i, sources in enumerate(options.sources):
            rate = rates(make, sources, repeats)
            line = f"{name:<14}{sources:>5} sources: built in {rate['built']:.3f} s, bound {rate['bound']:.3f}, "
            line += f"{rate['in order'] / 1e6:6.1f} M picks/s in order, {rate['at random'] / 1e6:6.1f} at random"
            short = name.split()[0]
            figures.record(f"{short}.{sources}", rate["in order"], "/s")
            figures.record(f"{short}.{sources}.random", rate["at random"], "/s")
            if theirs and make is whole:
                figures.record(f"grain.{sources}", rate["in order"] / theirs[i], "x")
                line += f"; grain {theirs[i] / 1e3:.1f} k/s, ratio {rate['in order'] / theirs[i]:,.0f}"
            if make is whole:
                line += f"; greedy {greedy_rate(sources, repeats) / 1e6:.2f} M/s"
            print(line)
    drains(options.sources, repeats)


if __name__ == "__main__":
    sys.exit(main())
