"""Derived columns: steps a second of the ready-made functions, and what a derived column adds to a sample.

    python benchmarks/derived.py [--steps 20000000]

Claims: returns-to-go are computed at 50 M steps a second of one core, reading included; windows with a derived column
cost at most 1.5 times the windows without it. All times are CPU seconds of the process, the best of several rounds. The
data are transitions of 17 + 6 float32, reward, termination and value, in episodes of 1,000 steps, in memory.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from functools import partial
from itertools import islice

import figures
import numpy as np

import penstock

EPISODE, WINDOW, BATCH, BATCHES = 1000, 16, 256, 200
CLAIM_STEPS, CLAIM_COST = 50e6, 1.5


def cpu_seconds(call: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of the fastest round. A round before them compiles and warms up."""
    call()
    times: list[float] = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def dataset(steps: int) -> penstock.EpisodeDataset:
    rng, episodes = np.random.default_rng(0), steps // EPISODE
    columns = {
        "observations": rng.random((steps + episodes, 17), np.float32),
        "actions": rng.random((steps, 6), np.float32),
        "rewards": rng.random(steps, np.float32),
        "terminations": np.arange(1, steps + 1) % (2 * EPISODE) == 0,  # every other episode is truncated
        "values": rng.random(steps + episodes, np.float32),
    }
    return penstock.from_arrays(columns, [EPISODE] * episodes)


def whole_column(data: penstock.EpisodeDataset, function: penstock.columns.EpisodeFunction) -> None:
    """Compute all values, in ranges, as the first batch does."""
    source = data.with_column("derived", function, memory=1 << 40).source
    out, zero = np.empty(data.total_steps, np.float32), np.zeros(1, np.int64)
    source.read_array(
        "derived", penstock.transforms.Selection(zero, zero, zero + data.total_steps, zero, (1, data.total_steps)), out
    )


def batches(samples: penstock.MapDataset) -> None:
    for _ in islice(samples.shuffle(0).loader(batch_size=BATCH, threads=0), BATCHES):
        pass


def episodes_read_whole(data: penstock.EpisodeDataset, count: int) -> None:
    """Read the episode of each sample, and sum its rewards from the end."""
    rng = np.random.default_rng(0)
    for e, t in zip(rng.integers(0, len(data), count), rng.integers(0, EPISODE - WINDOW, count), strict=True):
        episode = data[int(e)]
        returns = np.cumsum(episode.rewards[::-1])[::-1]
        for array in (episode.observations, episode.actions, episode.rewards, returns):
            array[t : t + WINDOW].copy()


def print_functions(data: penstock.EpisodeDataset) -> None:
    functions = {
        "returns_to_go": penstock.columns.returns_to_go(0.99),
        "episode steps": penstock.columns.timesteps(),
        "n_step_returns, n = 5": penstock.columns.n_step_returns(5, 0.99, bootstrap="values"),
        "advantages": penstock.columns.advantages(0.99, 0.95),
        "lambda_returns": penstock.columns.lambda_returns(0.99, 0.95),
    }
    print(f"{'function':32}{'M steps a CPU second':>24}")
    for name, function in functions.items():
        rate = data.total_steps / cpu_seconds(partial(whole_column, data, function))
        claim = "" if name != "returns_to_go" else f"   claim: {CLAIM_STEPS / 1e6:.0f}"
        print(f"{name:32}{rate / 1e6:>24.1f}{claim}")
        figures.record("_".join(re.findall(r"\w+", name)), rate, "/s")


def print_samples(data: penstock.EpisodeDataset) -> None:
    columns = ("observations", "actions", "rewards")
    one = data.with_column("returns", penstock.columns.returns_to_go())
    four = one.with_column("advantages", penstock.columns.advantages(0.99, 0.95))
    four = four.with_column("left", penstock.columns.steps_to_end()).with_column("t", penstock.columns.timesteps())
    samples = {
        "without derived columns": data.windows(WINDOW).select_columns(*columns),
        "with returns_to_go": one.windows(WINDOW).select_columns(*columns, "returns"),
        "with four derived columns": four.windows(WINDOW).select_columns(
            *columns, "returns", "advantages", "left", "t"
        ),
    }
    seconds = {name: cpu_seconds(partial(batches, dataset)) / BATCH / BATCHES for name, dataset in samples.items()}
    count = min(len(data), 5000)
    seconds["episode read whole for each"] = cpu_seconds(partial(episodes_read_whole, data, count)) / count
    base = seconds["without derived columns"]
    print(f"\n{f'windows of {WINDOW} steps':32}{'k samples a CPU second':>24}{'cost':>10}")
    for name, each in seconds.items():
        claim = f"   claim: at most {CLAIM_COST}" if name == "with four derived columns" else ""
        print(f"{name:32}{1e-3 / each:>24.0f}{each / base:>9.2f}x{claim}")
        figures.record("_".join(re.findall(r"\w+", name)), each / base, "x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000_000)
    data = dataset(parser.parse_args().steps)
    print_functions(data)
    print_samples(data)


if __name__ == "__main__":
    main()
