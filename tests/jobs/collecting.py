"""An environment and policies for tests of collection. Workers import this module."""

# pyright: basic

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import gymnasium
import numpy as np

MARKERS = "PENSTOCK_TEST_MARKERS"  # a folder: whoever dies leaves a file there, and does not die again
BUILT = "PENSTOCK_TEST_BUILT"  # a folder: environments leave files there when they are built and closed
NUMBERS = itertools.count()


class Walk(gymnasium.Env):
    """A random walk. Every value follows from the seed and the actions; observations reuse one array."""

    def __init__(self, fails_at: int | None = None, hangs_at: int | None = None, forgets: bool = True) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.fails_at, self.hangs_at, self.forgets = fails_at, hangs_at, forgets
        self.place = np.zeros(3)
        self.seen = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen += 1
        self.place[:] = self.np_random.normal(size=3) + (0 if self.forgets else self.seen)
        self.t, self.last = 0, int(self.np_random.integers(2, 30))
        return self.place, {}

    def step(self, action):
        self.t += 1
        self.place[:2] += action
        self.place += self.np_random.normal(size=3)
        if self.t == self.fails_at and self.place[0] > 0:
            raise ZeroDivisionError("the walker fell")
        if self.t == self.hangs_at:
            signal.pause()
        return (
            self.place,
            float(self.place.sum()),
            self.t == self.last,
            False,
            {"t": self.t, "speed": float(self.place[0]), "far": self.t > 9},
        )


class Counted(Walk):
    """Says in a file when it was built and closed, by which process, and on which node."""

    def __init__(self) -> None:
        super().__init__()
        self.number = next(NUMBERS)
        self.mark("built")

    def close(self) -> None:
        self.mark("closed")

    def mark(self, event: str) -> None:
        node = os.environ.get("PENSTOCK_TEST_NODE", "here")
        name = f"{node} {os.getpid()} {self.number} {event} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"
        if BUILT in os.environ:  # an operation that stays open may close after the test
            Path(os.environ[BUILT], name).touch()


for name, how in {
    "Walk-v0": {},
    "Fragile-v0": {"fails_at": 20},
    "Hanging-v0": {"hangs_at": 1},
    "Unseeded-v0": {"forgets": False},
}.items():
    gymnasium.register(name, Walk, kwargs=how, disable_env_checker=True)
gymnasium.register("Counted-v0", Counted, disable_env_checker=True)


def noisy(observation, rng):
    """A policy for one environment, with the random numbers of its episode."""
    return (np.tanh(observation[:2]) * rng.uniform(0, 1)).astype(np.float32)


def noisy_batch(observations, rng):
    """The same for several."""
    return np.stack([noisy(row, each) for row, each in zip(observations, rng, strict=True)])


def deadly(observations, rng):
    """Kills its process at some steps, once at each."""
    actions = noisy_batch(observations, rng)
    for action, each in zip(actions, rng, strict=True):
        if each.uniform() < 0.02:
            die(str(action))
    return actions


def die(name: str) -> None:
    """Kill this process, unless it happened before under that name, or three times: a job is given up after four."""
    if MARKERS not in os.environ:
        return
    folder = Path(os.environ[MARKERS])
    mark = folder / name.replace("/", "")
    if mark.exists() or len(list(folder.iterdir())) >= 3:
        return
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def linear(path: Path):
    """A policy from the file of a version: a float that scales the actions."""
    scale = float(path.read_text())

    def act(observations, rng):
        return (noisy_batch(observations, rng) * scale).astype(np.float32)

    return act
