"""Procgen and Minecraft, which cannot be installed here.

What stands in for them are small fakes that answer as their documentation says, so that our code really runs. They say
nothing about how the real libraries behave beyond that.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, MissingExtraError
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs import EnvConfig, named, spaces_of

LENGTH = 3  # steps of an episode of the fakes


class FakeProcgenEnv:
    """procgen's `ProcgenEnv`: a vector of games that begin anew by themselves, observations in a dict."""

    made: list[dict[str, Any]] = []  # noqa: RUF012

    def __init__(self, num_envs: int, env_name: str, **options: Any) -> None:
        self.made.append({"num_envs": num_envs, "env_name": env_name, **options})
        self.rng = np.random.default_rng(options["rand_seed"])
        self.steps = 0

    def picture(self) -> dict[str, Any]:
        return {"rgb": self.rng.integers(1, 256, (1, 64, 64, 3), dtype=np.uint8)}

    def reset(self) -> dict[str, Any]:
        return self.picture()

    def step(self, actions: Any) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        assert actions.shape == (1,)
        self.steps += 1
        done = self.steps % LENGTH == 0
        return self.picture(), np.array([2.5], np.float32), np.array([done]), [{"level_seed": 7}]

    def close(self) -> None:
        self.rng = None  # type: ignore[assignment]


class FakeMineRl:
    """An environment of old Gym as MineRL makes it: pictures and vectors in dicts, seeded by a method."""

    def __init__(self, name: str) -> None:
        self.name, self.rng, self.steps = name, np.random.default_rng(0), 0

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def seen(self) -> dict[str, Any]:
        return {"pov": self.rng.integers(0, 256, (64, 64, 3), dtype=np.uint8), "vector": np.zeros(64, np.float32)}

    def reset(self) -> dict[str, Any]:
        self.steps = 0
        return self.seen()

    def step(self, action: dict[str, Any]) -> tuple[Any, float, bool, dict[str, Any]]:
        assert set(action) == {"vector"}
        assert action["vector"].dtype == np.float32
        self.steps += 1
        cut = self.steps == 9  # of old Gym's TimeLimit
        done = cut or (self.steps == LENGTH and action["vector"][0] > 1)
        return self.seen(), 1.5, done, {"TimeLimit.truncated": True} if cut else {}

    def close(self) -> None:
        pass


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    procgen, minerl, gym = (ModuleType(name) for name in ("procgen", "minerl", "gym"))
    procgen.ProcgenEnv = FakeProcgenEnv  # type: ignore[attr-defined]
    gym.make = FakeMineRl  # type: ignore[attr-defined]
    for module in (procgen, minerl, gym):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    FakeProcgenEnv.made.clear()


def procgen(**keys: Any) -> EnvConfig:
    return EnvConfig(benchmark_name="procgen", **{"task_name": "coinrun", **keys})


def minecraft(**keys: Any) -> EnvConfig:
    return EnvConfig(benchmark_name="minecraft", **{"task_name": "NavigateVectorObf", **keys})


@pytest.mark.usefixtures("fakes")
def test_procgen_steps_and_begins_anew() -> None:
    env = named("procgen").factory(procgen())()
    assert tuple(from_gymnasium(space) for space in (env.observation_space, env.action_space)) == spaces_of(procgen())
    first, _ = env.reset(seed=1)
    assert first.shape == (12, 64, 64)
    assert not first[:9].any()
    assert first[9:].all()
    seen = [env.step(action) for action in (0, 14, 3)]
    assert [step[2:4] for step in seen] == [(False, False), (False, False), (True, False)]
    assert seen[0][1] == 2.5
    assert seen[0][4] == {"level_seed": 7}
    assert np.array_equal(seen[2][0][9:], seen[1][0][9:])  # the last picture cannot be had
    begun, _ = env.reset()
    assert not begun[:9].any()
    assert not np.array_equal(begun[9:], seen[2][0][9:])
    assert len(FakeProcgenEnv.made) == 1  # the game had begun anew by itself
    env.step(0)
    env.reset()  # in mid-episode
    assert len(FakeProcgenEnv.made) == 2
    assert env.render().shape == (64, 64, 3)
    env.close()
    options = FakeProcgenEnv.made[0]
    assert options.pop("rand_seed") != FakeProcgenEnv.made[1].pop("rand_seed")
    expected = {"num_envs": 1, "env_name": "coinrun", "num_levels": 100, "start_level": 0, "distribution_mode": "easy"}
    assert options == expected


@pytest.mark.usefixtures("fakes")
def test_procgen_seeds_and_refuses() -> None:
    env = named("procgen").factory(procgen(procgen_frame_stack=1))()
    with pytest.raises(DataError, match="expected a reset before a step"):
        env.step(0)
    firsts = [env.reset(seed=seed)[0] for seed in (3, 3, 4)]
    assert np.array_equal(firsts[0], firsts[1])
    assert not np.array_equal(firsts[0], firsts[2])
    with pytest.raises(DataError, match="expected an action in Discrete"):
        env.step(15)
    env.close()


@pytest.mark.usefixtures("fakes")
def test_minecraft_steps_and_ends() -> None:
    env: Any = named("minecraft").factory(minecraft())()
    assert tuple(from_gymnasium(space) for space in (env.observation_space, env.action_space)) == spaces_of(minecraft())
    assert env._task.name == "MineRLNavigateVectorObf-v0"
    first, _ = env.reset(seed=2)
    assert first.shape == (3, 64, 64)
    assert env.observation_space.contains(first)
    assert np.array_equal(env.render().transpose(2, 0, 1), first)
    assert [env.step(np.full(64, 1.04))[1:4] for _ in range(LENGTH)][-1] == (1.5, True, False)
    env.reset()
    flags = [env.step(np.zeros(64))[2:4] for _ in range(9)]
    assert flags == [(False, False)] * 8 + [(False, True)]  # the task's own limit
    env.close()


@pytest.mark.usefixtures("fakes")
def test_minecraft_is_cut_in_time_seeded_and_refuses() -> None:
    env = named("minecraft").factory(minecraft(minecraft_max_env_steps=2))()
    firsts = [env.reset(seed=seed)[0] for seed in (3, 3, 4)]
    assert np.array_equal(firsts[0], firsts[1])
    assert not np.array_equal(firsts[0], firsts[2])
    assert [env.step(np.zeros(64))[2:4] for _ in range(2)] == [(False, False), (False, True)]
    for wrong in (np.zeros(63), np.full(64, 1.1)):
        with pytest.raises(DataError, match="expected 64 numbers"):
            env.step(wrong)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (procgen(), "procgen is not installed; no registry has a build of procgen for Python 3.11"),
        (minecraft(), "minerl is not installed; no registry has a build of MineRL"),
    ],
)
def test_what_is_missing_is_said(config: EnvConfig, said: str) -> None:
    with pytest.raises(MissingExtraError, match=said):
        named(config.benchmark_name).factory(config)


def test_spaces_need_no_library_and_unknown_tasks_are_errors() -> None:
    assert spaces_of(procgen(procgen_frame_stack=2))[0].shape == (6, 64, 64)
    assert spaces_of(minecraft())[1].shape == (64,)
    with pytest.raises(DataError, match="did you mean 'coinrun'"):
        spaces_of(procgen(task_name="coin-run"))
    with pytest.raises(DataError, match="did you mean 'TreechopVectorObf'"):
        named("minecraft").factory(minecraft(task_name="TreechopVectorObs"))
