"""Functions of episodes that tests name as `tests.jobs.mapping:name`."""

# pyright: basic

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

import penstock


class Changed:
    """Adds columns of each kind, replaces one, draws random numbers, and leaves out every fourth episode."""

    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).standard_normal((8, 3)).astype("f4")

    def __call__(self, episode: penstock.Episode, rng: np.random.Generator) -> dict[str, Any] | None:
        if episode.id % 4 == 1:
            return None
        columns = episode.columns
        return {
            "embedding": np.asarray(columns["observations"]) @ self.weights,
            "noise": rng.standard_normal((len(episode), 2)),
            "rewards": np.nan_to_num(episode.rewards) * 2,
            "best": float(np.nanmax(episode.rewards)),
            "text": f"of {len(episode)} steps",
        }


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no model")


ENTRIES = {
    "function": "tests.jobs.mapping:Changed",
    "folder": str(Path(__file__).parents[2]),
    "column": None,
    "align": None,
    "seed": 3,
    "version": None,
}


MODEL: list[float] = []


def lazy(episode: penstock.Episode) -> np.ndarray:
    """Fill a global variable at the first call, as people do with models."""
    if not MODEL:
        MODEL.append(2.0)
    return episode.rewards * MODEL[0]


def made() -> Changed:
    """Note the process that makes the function."""
    with Path(os.environ["MADE"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return Changed()


def doubled(episode: penstock.Episode) -> np.ndarray:
    return episode.rewards * 2


def long_only(episode: penstock.Episode) -> dict[str, Any] | None:
    with Path(os.environ["CALLED"]).open("a") as file:
        file.write(f"{episode.id}\n")
    return {"double": episode.rewards * 2} if len(episode) % 3 else None


def failing(episode: penstock.Episode) -> np.ndarray:
    if episode.id in (7, 20):
        raise ValueError(f"no good at {episode.id}")
    return episode.rewards * 2


def often_failing(episode: penstock.Episode) -> np.ndarray:
    if episode.id % 2 == 0 and episode.id > 4:
        raise ValueError("worse" if episode.id % 4 else "no good")
    return episode.rewards * 2


def lethal(episode: penstock.Episode) -> np.ndarray:
    """End the process at the first call for episode 11, wherever that is."""
    flag = Path(os.environ["LETHAL"])
    if episode.id == 11 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return episode.rewards * 2
