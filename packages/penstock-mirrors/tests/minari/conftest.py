"""A datasets root of its own for every test, a counting environment, and helpers that make small datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from penstock_mirrors import minari
from penstock_mirrors.minari import DataCollector, MinariDataset
from penstock_mirrors.minari.data_collector import EpisodeBuffer

ABOUT: dict[str, Any] = {
    "algorithm_name": "random",
    "author": "me",
    "author_email": "me@example.org",
    "code_permalink": "https://example.org",
    "description": "a test",
    "eval_env": "CartPole-v1",
}


class Counting(gymnasium.Env[Any, Any]):
    """Observations count the steps from the seed on; the array is reused; infos differ where `infos` says so."""

    def __init__(self, length: int = 3, infos: str = "same") -> None:
        self.observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.length, self.infos = length, infos
        self._array = np.zeros(2, np.float32)
        self.t = 0

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"t": self.t, "name": f"step {self.t}"}
        return info | ({"speed": 0.5 * self.t} if self.infos == "more" and self.t else {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self._array[:] = float((seed or 0) % 1000)
        return self._array, self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self._array += 1
        return self._array, float(action), self.t >= self.length, False, self._info()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MINARI_REMOTE", str(tmp_path / "hub"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """`Counting-v0` is registered by the class itself, as notebooks do."""
    gymnasium.register("Counting-v0", Counting, disable_env_checker=True)
    yield
    gymnasium.registry.pop("Counting-v0")


@pytest.fixture
def about() -> dict[str, Any]:
    return dict(ABOUT)


def play(env: DataCollector, episodes: int = 2, seed: int = 5, options: dict[str, Any] | None = None) -> None:
    """Actions 0, 1, 2, 3, 0, ... and resets with `seed`, `seed + 1`, ..."""
    for e in range(episodes):
        env.reset(seed=seed + e, options=options)
        done, t = False, 0
        while not done:
            _, _, terminated, truncated, _ = env.step(t % 4)
            done, t = terminated or truncated, t + 1


@pytest.fixture(name="play")
def _play() -> Callable[..., None]:
    return play


@pytest.fixture
def collect() -> Callable[..., MinariDataset]:
    """Record `Counting-v0` and make a dataset of it."""

    def make(dataset_id: str, episodes: int = 2, seed: int = 5, length: int = 3, **arguments: Any) -> MinariDataset:
        infos = arguments.pop("infos", "same")
        collector = {name: arguments.pop(name) for name in ("record_infos", "data_format") if name in arguments}
        env = DataCollector(gymnasium.make("Counting-v0", length=length, infos=infos), **collector)
        play(env, episodes, seed, arguments.pop("options", None))
        dataset = env.create_dataset(dataset_id, **{**ABOUT, **arguments})
        env.close()
        return dataset

    return make


def buffers(space: gymnasium.Space[Any], episodes: int = 2, steps: int = 3, first: int = 0) -> list[EpisodeBuffer]:
    """Episodes of samples of `space`, with different seeds."""
    found: list[EpisodeBuffer] = []
    for e in range(episodes):
        space.seed(first + e)
        buffer = EpisodeBuffer(observations=space.sample(), seed=first + e, options={"level": {"number": e}})
        for t in range(steps):
            step = {"observation": space.sample(), "action": t % 4, "reward": t / 2, "terminated": False}
            buffer = buffer.add_step_data({**step, "truncated": t == steps - 1, "info": {}})
        found.append(buffer)
    return found


@pytest.fixture
def from_buffers() -> Callable[..., MinariDataset]:
    """Make a dataset of random buffers of a space; the CartPole environment stands for theirs."""

    def make(
        dataset_id: str, space: gymnasium.Space[Any], made: list[EpisodeBuffer] | None = None, **arguments: Any
    ) -> MinariDataset:
        return minari.create_dataset_from_buffers(
            dataset_id,
            buffers(space) if made is None else made,
            observation_space=space,
            action_space=spaces.Discrete(4),
            env="CartPole-v1",
            **{**ABOUT, **arguments},
        )

    return make


@pytest.fixture(name="buffers")
def _buffers() -> Callable[..., list[EpisodeBuffer]]:
    return buffers
