"""What planning costs: windows over a million episodes, shuffles, masks.

Claims: 10^9 windows over 10^6 episodes are planned in less than a second, with tables per episode only; a position
then costs some tens of nanoseconds, shuffled or not.

    python benchmarks/plan.py [episodes]
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable

import figures
import numpy as np

from penstock.core.spec import Align
from penstock.plan import Episodes, Plan, Shuffle, Steps, Windows

BLOCK = 4096


def best(call: Callable[[int], object], repeats: int = 40) -> float:
    """Seconds of the fastest call; each is handed its number, so that no two need touch the same rows."""
    call(0)
    times: list[float] = []
    for i in range(1, repeats + 1):
        begin = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - begin)
    return min(times)


def many_episodes(count: int) -> Episodes:
    lengths = np.random.default_rng(0).integers(515, 1515, count)
    start = np.cumsum(lengths) - lengths
    aligns: dict[str, Align] = {"observations": "boundary", "actions": "step", "rewards": "step"}
    return Episodes(np.zeros(count, np.int64), np.arange(count), start, lengths, aligns, "benchmark")


def row(name: str, seconds: float, per: int, unit: str) -> None:
    print(f"{name:<58}{seconds / per * 1e9:>10.1f} ns/{unit}")


def main() -> None:
    episodes = many_episodes(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    tracemalloc.start()
    begin = time.perf_counter()
    windows = Windows(16).plan(episodes)
    seconds = time.perf_counter() - begin
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    figures.record("windows", len(windows), "count")
    figures.record("built", seconds, "s")
    figures.record("bytes", held, "B")
    print(f"{len(windows):,} windows of {len(episodes):,} episodes: built in {seconds:.3f} s, {held / 1e6:.0f} MB")

    n = len(windows)
    rng = np.random.default_rng(1)
    scattered = [rng.integers(0, n, BLOCK) for _ in range(41)]
    plans: dict[str, Plan] = {
        "steps": Steps().plan(episodes),
        "windows of 16": windows,
        "windows of 16, pad zero": Windows(16, past=4, pad="zero").plan(episodes),
        "windows of 16, pad repeat": Windows(16, past=4, pad="repeat").plan(episodes),
    }
    for name, plan in plans.items():
        row(
            f"{name}, in order",
            best(lambda i, p=plan: p.resolve(np.arange(i * BLOCK, (i + 1) * BLOCK))),
            BLOCK,
            "sample",
        )
        row(f"{name}, at random", best(lambda i, p=plan: p.resolve(scattered[i])), BLOCK, "sample")
    shuffles = {"shuffle": Shuffle(1), "shuffle in pools of 64 blocks of 1024": Shuffle(1, block=1024, pool=64)}
    for name, shuffle in shuffles.items():
        row(name, best(lambda i, s=shuffle: s.order(np.arange(i * BLOCK, (i + 1) * BLOCK), n)), BLOCK, "position")
    shuffled = Shuffle(1).reorder(windows)
    resolving = best(lambda i: shuffled.resolve(np.arange(i * BLOCK, (i + 1) * BLOCK)))
    figures.record("shuffled", resolving / BLOCK, "s")
    row("windows of 16, shuffled", resolving, BLOCK, "sample")
    selection = plans["windows of 16, pad zero"].resolve(scattered[0])[0]
    row("mask", best(lambda _: selection.mask()), BLOCK, "sample")
    row("samples(256, 512) of a block", best(lambda _: selection.samples(256, 512)), 1, "call")


if __name__ == "__main__":
    main()
