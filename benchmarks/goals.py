"""What goals and weights cost: samples with hindsight goals and relabelled rewards next to the same samples without.

Goal: samples with drawn goals cost at most 1.5 times the samples without, also with returns and normalization.
Measured on a busy machine: 1.0 to 1.25 times without normalization, and 1.3 to 1.5 with it, for windows of 16.

    python benchmarks/goals.py [steps]

Episodes have 1000 steps. Times are CPU time of one thread: the fastest of some rounds over 64 batches of 256 samples.
"""

from __future__ import annotations

import re
import sys
import time

import figures
import numpy as np

import penstock
from penstock.data.map_dataset import MapDataset

BATCH, BATCHES, ROUNDS, EPISODE = 256, 64, 7, 1000
LIMIT = 1.5
OTHERS = ("HER, k = 4, relabelled", "weights")  # the first runs a function of the user as well


def episodes(steps: int) -> penstock.EpisodeDataset:
    """State-based robotics: 17 floats and a goal of 3."""
    rng = np.random.default_rng(0)
    count = steps // EPISODE
    return penstock.from_arrays(
        {
            "observations": {
                "observation": rng.random((steps + count, 17), np.float32),
                "achieved_goal": rng.random((steps + count, 3), np.float32),
                "desired_goal": rng.random((steps + count, 3), np.float32),
            },
            "actions": rng.random((steps, 4), np.float32),
            "rewards": rng.random(steps, np.float32),
        },
        [EPISODE] * count,
    )


def seconds(dataset: MapDataset) -> float:
    """CPU seconds for a batch."""
    times: list[float] = []
    for _ in range(ROUNDS):
        loader = dataset.loader(BATCH, threads=0)
        batches = iter(loader)
        next(batches)
        begin = time.process_time()
        for _ in range(BATCHES):
            next(batches)
        times.append((time.process_time() - begin) / BATCHES)
    return min(times)


def reward(columns: penstock.Columns) -> dict[str, np.ndarray]:
    """0 within 5 cm of the goal and -1 elsewhere, as Gymnasium-Robotics computes it."""
    distance = np.linalg.norm(columns["next_observations"]["achieved_goal"] - columns["goal"], axis=1)
    return {"rewards": -(distance > 0.05).astype(np.float32)}


def main() -> None:
    data = episodes(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    achieved, desired = "observations/achieved_goal", "observations/desired_goal"
    plain = {
        "transitions": data.transitions().shuffle(0),
        "windows of 16": data.windows(16).shuffle(0),
    }
    with_returns = data.with_column("returns", penstock.columns.returns_to_go(0.99))
    scale = penstock.normalize(penstock.statistics(data, progress=False), ["observations/observation", "actions"])
    print(f"{'samples':<16}{'with':<28}{'us a sample':>12}{'times':>8}")
    for name, samples in plain.items():
        future = samples.goals("future", achieved)
        kinds = {
            "nothing": samples,
            "future goals": future,
            "geometric goals, p = 0.01": samples.goals("geometric", achieved, p=0.01),
            "HER, k = 4": samples.goals("future", achieved, original=desired),
        }
        if name == "windows of 16":
            together = with_returns.windows(16).shuffle(0).goals("future", achieved)
            kinds["returns, goals"] = together
            kinds["returns, goals, normalized"] = together.map(scale)
        if name == "transitions":
            kinds["HER, k = 4, relabelled"] = kinds["HER, k = 4"].relabel(reward)
            kinds["weights"] = data.transitions().weighted("rewards", np.exp).shuffle(0)
        base = 0.0
        for kind, dataset in kinds.items():
            cost = seconds(dataset) / BATCH
            base = base or cost
            over = f" above {LIMIT}" if kind not in OTHERS and cost > LIMIT * base else ""
            print(f"{name:<16}{kind:<28}{cost * 1e6:>12.2f}{cost / base:>8.2f}{over}")
            figures.record("_".join(re.findall(r"\w+", f"{name} {kind}")), cost / base, "x")


if __name__ == "__main__":
    main()
