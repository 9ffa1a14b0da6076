"""MAGICAL: real tasks, drawn without a display and preprocessed as its demonstrations are."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from penstock.core.spaces import Dict, Discrete
from penstock.errors import DataError, MissingExtraError
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs import EnvConfig, load_vec_env, magical, named, spaces_of
from penstock_imitation.envs.magical_shim import load
from penstock_imitation.envs.wrappers import box_mean
from penstock_imitation.formats.native.magical_preproc import shrunken

ROOT = Path(__file__).parents[4]
JITTER = "MoveToRegion-TestJitter-v0"


def config(task: str, preproc: str | None = "LoResCHW4E") -> EnvConfig:
    return EnvConfig(benchmark_name="magical", task_name=task, magical_preproc=preproc)


def build(task: str, preproc: str | None = "LoResCHW4E") -> gymnasium.Env[Any, Any]:
    return named("magical").factory(config(task, preproc))()


def raw(task: str, seed: int, actions: list[int]) -> list[dict[str, Any]]:
    """What MAGICAL itself shows, both views, without any preprocessing."""
    env = load().make(task)
    env.seed(seed)
    seen = [env.reset(), *(env.step(action)[0] for action in actions)]
    env.close()
    return seen


def play(env: gymnasium.Env[Any, Any], seed: int, actions: list[Any]) -> list[Any]:
    return [env.reset(seed=seed)[0], *(env.step(action)[0] for action in actions)]


@pytest.mark.parametrize("preproc", list(magical.PREPROCS))
def test_preprocessed_pictures_are_those_of_the_raw_ones(preproc: str | None) -> None:
    actions = [3, 7, 12, 17]
    bare = raw(JITTER, 4, actions)
    env = build(JITTER, preproc)
    built = tuple(from_gymnasium(space) for space in (env.observation_space, env.action_space))
    assert built == spaces_of(config(JITTER, preproc))
    for t, seen in enumerate(play(env, 4, actions)):
        views = magical.preproc(preproc).views
        small = (lambda picture: picture) if preproc is None else (lambda picture: box_mean(picture, 4))
        stacks = {
            view: [small(bare[max(t - age, 0)][view]) for age in range(depth - 1, -1, -1)]
            for view, depth in views.items()
        }
        if isinstance(seen, dict):
            assert seen.keys() == stacks.keys()
            assert all(np.array_equal(seen[view], np.concatenate(stack, -1)) for view, stack in stacks.items())
            continue
        expected = np.concatenate([picture for stack in stacks.values() for picture in stack], -1)
        assert np.array_equal(seen, expected.transpose(2, 0, 1) if preproc == "LoResCHW4E" else expected)
        assert seen.std() > 5
    env.close()


def test_pictures_are_made_small_as_the_readers_of_demonstrations_do() -> None:
    for picture in raw(JITTER, 0, [])[0].values():
        assert np.array_equal(box_mean(picture, 4), shrunken(picture))


@pytest.mark.parametrize("task", [name for name in named("magical").tasks() if "-" not in name])
def test_every_task_steps_and_draws(task: str) -> None:
    env = build(task)
    assert tuple(from_gymnasium(space) for space in (env.observation_space, env.action_space)) == spaces_of(
        config(task)
    )
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen)
    assert seen.flags.c_contiguous
    assert seen.shape == (12, 96, 96)
    seen, reward, terminated, truncated, info = env.step(5)
    assert env.observation_space.contains(seen)
    assert (reward, terminated, truncated, info["eval_score"]) == (0.0, False, False, 0.0)
    assert env.render().shape == (384, 384, 3)
    env.close()


def test_both_spellings_of_a_task_are_one() -> None:
    envs = [build(task) for task in ("MoveToRegion", "MoveToRegion-Demo-v0")]
    short, full = (play(env, 0, [6, 6]) for env in envs)
    assert all(np.array_equal(a, b) for a, b in zip(short, full, strict=True))
    for env in envs:
        env.close()
    assert spaces_of(config("MoveToRegion")) == spaces_of(config("MoveToRegion-Demo-v0"))


def test_an_episode_has_its_length_and_ends_with_a_score() -> None:
    env = build("MoveToRegion")
    env.reset(seed=0)
    steps = [env.step(0) for _ in range(40)]
    assert [step[2:4] for step in steps] == [(False, False)] * 39 + [(True, False)]
    assert steps[-1][4] == {"eval_score": 0.0, "TimeLimit.truncated": False}
    env.reset()
    assert env.step(0)[2:4] == (False, False)
    env.close()


def test_a_limit_from_outside_truncates() -> None:
    env = build("MoveToRegion")
    env.unwrapped._task._max_episode_steps = 2  # of old gym's TimeLimit; the task's own is 40
    env.reset(seed=0)
    env.step(0)
    _, _, terminated, truncated, info = env.step(0)
    assert (terminated, truncated, info["TimeLimit.truncated"]) == (False, True, True)
    env.close()


def test_seeds() -> None:
    env = build(JITTER)
    firsts = [env.reset(seed=seed)[0] for seed in (1, 1, 2, 2**40)]
    assert np.array_equal(firsts[0], firsts[1])
    assert len({first.tobytes() for first in firsts}) == 3
    env.close()


def test_without_a_seed_every_environment_is_another_and_numpys_own_generator_is_left_alone() -> None:
    np.random.seed(5)
    envs = [build(JITTER) for _ in range(2)]
    firsts = [env.reset()[0] for env in envs for _ in range(2)]
    drawn = np.random.random()
    np.random.seed(5)
    assert drawn == np.random.random()
    assert len({first.tobytes() for first in firsts}) == 4
    for env in envs:
        env.close()


def test_two_processes_draw() -> None:
    envs = load_vec_env(config(JITTER), {"n_envs": 2}, seed=1)
    try:
        seen, _ = envs.reset()
        assert seen.shape == (2, 12, 96, 96)
        assert not np.array_equal(seen[0], seen[1])
        seen, *_ = envs.step(np.array([6, 6]))
        assert seen.shape == (2, 12, 96, 96)
    finally:
        envs.close()


def test_it_shares_a_process_with_dm_control() -> None:
    """Each keeps an OpenGL context, and dm_control does not look whether its own is still the current one."""
    wanted = EnvConfig(task_name="cartpole-swingup", dm_control_frame_stack=1)
    alone = [build("MoveToRegion"), named("dm_control").factory(wanted)()]
    actions: list[Any] = [6, np.zeros(1, np.float32)]
    expected = [play(env, 0, [action] * 2) for env, action in zip(alone, actions, strict=True)]
    mixed = [[env.reset(seed=0)[0]] for env in alone]
    for _ in range(2):
        for seen, env, action in zip(mixed, alone, actions, strict=True):
            seen.append(env.step(action)[0])
    assert all(np.array_equal(a, b) for k in (0, 1) for a, b in zip(expected[k], mixed[k], strict=True))
    for env in alone:
        env.close()


def test_python_is_as_it_was_after_the_import() -> None:
    load()
    assert not hasattr(collections, "Sequence")
    assert "imp" not in sys.modules or sys.modules["imp"].__doc__
    assert "cv2" not in sys.modules or hasattr(sys.modules["cv2"], "resize")


def test_the_table_has_the_variants_of_magical() -> None:
    load()
    registered = {name for name in sys.modules["magical"].ALL_REGISTERED_ENVS if name.count("-") == 2}
    full = {name for name in named("magical").tasks() if "-" in name}
    assert full == registered


def test_spaces_need_no_simulator() -> None:
    observations, actions = spaces_of(config("ClusterShape", "LoResStack"))
    assert isinstance(observations, Dict)
    assert actions == Discrete(18)
    assert spaces_of(config("ClusterShape", None))[0].spaces["ego"].shape == (384, 384, 3)


def test_what_is_unknown_is_an_error_with_advice() -> None:
    with pytest.raises(DataError, match=r"did you mean 'MoveToRegion'.*magical_preproc"):
        spaces_of(config("MoveToRegio"))
    with pytest.raises(DataError, match="did you mean 'LoResCHW4E'"):
        named("magical").factory(config("MoveToRegion", "LoResCHW4"))
    env = build("MoveToRegion")
    env.reset(seed=0)
    with pytest.raises(DataError, match="expected an action in Discrete"):
        env.step(18)
    env.close()


def test_what_is_missing_is_said_with_both_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pymunk" else object())
    monkeypatch.delitem(sys.modules, "pymunk", raising=False)
    with pytest.raises(MissingExtraError, match="pymunk is not installed") as caught:
        named("magical").factory(config("MoveToRegion"))
    pins = [line for line in (ROOT / "magical-requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(pins) == 4
    assert all(pin in str(caught.value) for pin in pins)
    assert "penstock-imitation[magical]" in str(caught.value)
