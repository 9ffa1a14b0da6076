"""The reference's side of `benchmarks/minari.py`: run by a Python that has `minari`, prints one JSON line a task."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

WINDOW = 16  # steps
ROUND = 0.1  # seconds, at least; the fastest round counts


def episodes(kind: str, scale: float) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    count, steps = {"cheetah": (1000, 1000), "small": (5000, 20), "image": (50, 500)}[kind]
    for _ in range(max(int(count * scale), 2)):
        if kind == "image":
            observations = rng.integers(0, 256, (steps + 1, 84, 84, 4), dtype=np.uint8)
            actions = rng.integers(0, 6, steps)
        else:
            observations = rng.normal(size=(steps + 1, 17 if kind == "cheetah" else 4))
            actions = rng.normal(size=(steps, 6)).astype(np.float32)
        yield observations, actions, rng.normal(size=steps)


def buffers(kind: str, scale: float) -> list[Any]:
    from minari.data_collector import EpisodeBuffer  # pyright: ignore[reportMissingImports]

    made = []
    for observations, actions, rewards in episodes(kind, scale):
        steps = len(rewards)
        flags = np.zeros(steps, np.bool_), np.arange(steps) == steps - 1
        made.append(
            EpisodeBuffer(
                id=len(made),
                seed=len(made),
                observations=observations,
                actions=actions,
                rewards=rewards,
                terminations=flags[0],
                truncations=flags[1],
                infos={},
            )
        )
    return made


def spaces(kind: str) -> Any:
    from gymnasium.spaces import Box, Discrete

    if kind == "image":
        return Box(0, 255, (84, 84, 4), np.uint8), Discrete(6)
    width = 17 if kind == "cheetah" else 4
    return Box(-np.inf, np.inf, (width,), np.float64), Box(-np.inf, np.inf, (6,), np.float32)


def write(kind: str, scale: float, data_format: str) -> dict[str, float]:
    import warnings

    minari: Any = importlib.import_module("minari")

    warnings.simplefilter("ignore")
    held = buffers(kind, scale)
    observation_space, action_space = spaces(kind)
    begun = time.perf_counter()
    minari.create_dataset_from_buffers(
        f"bench/{kind}-{data_format}-v0",
        held,
        observation_space=observation_space,
        action_space=action_space,
        data_format=data_format,
        jpeg_encoding=False,
    )
    os.sync()
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "steps": sum(len(b.rewards) for b in held), "episodes": len(held)}


def read(kind: str, task: str, data_format: str, seconds: float) -> dict[str, float]:
    minari: Any = importlib.import_module("minari")

    dataset = minari.load_dataset(f"bench/{kind}-{data_format}-v0")
    rng = np.random.default_rng(1)
    best, begun = 0.0, time.perf_counter()
    while time.perf_counter() - begun < seconds or best == 0:
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < ROUND:
            done += once(dataset, task, rng)
        best = max(best, done / (time.perf_counter() - start))
    return {"rate": best}


def once(dataset: Any, task: str, rng: np.random.Generator) -> int:
    """Do a task once: all episodes in order, or an episode, a transition or a window at random; the steps read."""
    if task == "iterate":
        return sum(len(episode.rewards) for episode in dataset.iterate_episodes())
    episode = dataset[int(rng.integers(dataset.total_episodes))]
    if task == "transition":
        step = int(rng.integers(len(episode.rewards)))
        _ = episode.observations[step], episode.actions[step], episode.rewards[step], episode.observations[step + 1]
    elif task == "window":
        start = int(rng.integers(len(episode.rewards) - WINDOW + 1))
        steps = slice(start, start + WINDOW)
        _ = episode.observations[steps], episode.actions[steps], episode.rewards[steps]
        return WINDOW
    return 1


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        os.environ["MINARI_DATASETS_PATH"] = request.pop("root")
        act = {"write": write, "read": read}[request.pop("act")]
        print(json.dumps(act(**request)), flush=True)


if __name__ == "__main__":
    main()
