"""Toy environments whose every value follows from the seed, and a recorder of them that shares no code with ours."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "scalar": spaces.Box(0, 255, (), np.uint8),
    "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=-2),
    "small discrete": spaces.Discrete(5, dtype=np.int32),
    "multi discrete": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi binary": spaces.MultiBinary((2, 2)),
    "text": spaces.Text(6, min_length=0, charset="abcäß"),
    "dict": spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Dict({"x": spaces.Box(0, 1, (2,), np.float64)})}),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Tuple((spaces.MultiBinary(2), spaces.Text(3))))),
}


class Toy(gymnasium.Env[Any, Any]):
    """Observations are samples of the space, rewards normal, episodes 1 to 8 steps long, ended either way.

    The array of a Box is reused from step to step, as fast simulators do.
    """

    def __init__(
        self,
        observation_space: Any = SPACES["box"],
        action_space: Any = SPACES["discrete"],
        longest: int = 8,
        reuse: bool = True,
    ) -> None:
        self.observation_space, self.action_space = copy.deepcopy(observation_space), copy.deepcopy(action_space)
        self.longest = longest
        self.resets: list[tuple[int | None, Any]] = []
        reuse = reuse and isinstance(observation_space, spaces.Box) and observation_space.shape != ()
        self._held = np.zeros(observation_space.shape, observation_space.dtype) if reuse else None

    @classmethod
    def make(cls, **how: Any) -> Toy:
        return cls(**how)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.resets.append((seed, options))
        self.t, self.limit = 0, int(self.np_random.integers(1, self.longest + 1))
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward = float(self.np_random.normal())
        over, which = self.t == self.limit, bool(self.np_random.integers(2))
        return self._observe(), reward, over and which, over and not which, self._info()

    def _observe(self) -> Any:
        value = self.observation_space.sample()
        if self._held is None:
            return value
        self._held[...] = value
        return self._held

    def _info(self) -> dict[str, Any]:
        return {"t": self.t, "deep": {"speed": np.float32(self.t / 2)}, "text": "x" * self.t}


def leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return {p: v for key, inner in value.items() for p, v in leaves(inner, f"{path}/{key}").items()}
    if isinstance(value, tuple):
        return leaves({str(i): inner for i, inner in enumerate(value)}, path)
    return {path: np.copy(value) if not isinstance(value, str) else value}


def stack(rows: list[Any], path: str) -> dict[str, Any]:
    flat = [leaves(row, path) for row in rows]
    return {p: [row[p] for row in flat] for p in (flat[0] if flat else {})}


class Plain:
    """Drives an environment in a plain loop; `episodes` is what a recorder of it has to hold."""

    def __init__(self, env: Any) -> None:
        self.env, self.episodes = env, []

    def run(self, seed: int | None, actions: list[Any], truncate: bool = False) -> None:
        observation, info = self.env.reset(seed=seed)
        rows, infos = [leaves(observation, "observations")], [leaves(info, "infos")]
        rewards, terminated, truncated = [], False, False
        for action in actions:
            assert not terminated
            assert not truncated
            observation, reward, terminated, truncated, info = self.env.step(action)
            rows.append(leaves(observation, "observations"))
            infos.append(leaves(info, "infos"))
            rewards.append(reward)
        columns: dict[str, Any] = {p: [row[p] for row in rows] for p in rows[0]} | stack(actions, "actions")
        columns |= {"rewards": rewards, "terminations": [False] * len(rewards), "truncations": [False] * len(rewards)}
        columns["terminations"][-1], columns["truncations"][-1] = terminated, truncated or truncate
        self.episodes.append((columns, {p: [row[p] for row in infos] for p in infos[0]}))


def assert_columns(episode: Any, expected: dict[str, Any]) -> None:
    """Every expected column is there, equal value by value, in the dtype of the spec."""
    for path, values in expected.items():
        held = episode.columns[path]
        if episode.spec[path].kind == "text":
            assert held.strings() == values, path
        else:
            assert held.dtype == episode.spec[path].dtype, path
            np.testing.assert_array_equal(held, np.array(values, held.dtype), err_msg=path)


def replay(make: Any, episodes: Any) -> None:
    """Every episode equals a fresh environment driven by its own seed and actions."""
    for episode in episodes:
        plain = Plain(make())
        actions = actions_of(episode)
        plain.run(episode.metadata["seed"], actions, truncate=bool(episode.truncations[-1]))
        assert_columns(episode, plain.episodes[0][0])


def actions_of(episode: Any) -> list[Any]:
    return [_pick(episode.actions, t) for t in range(len(episode))]


def _pick(tree: Any, t: int) -> Any:
    if isinstance(tree, dict):
        return {key: _pick(inner, t) for key, inner in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_pick(inner, t) for inner in tree)
    return tree.strings()[t] if hasattr(tree, "strings") else tree[t]


@pytest.fixture
def toy() -> type[Toy]:
    return Toy


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Any:
    return SPACES[request.param]


@pytest.fixture
def same_as_replay() -> Any:
    return replay


@pytest.fixture
def plain() -> type[Plain]:
    return Plain


@pytest.fixture
def equals() -> Any:
    return assert_columns
