"""dm_control: what its own library gives for the same seed and forces, repeated, stacked and cut in time."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
import pytest

from penstock.core.spaces import Box
from penstock.errors import DataError
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs import EnvConfig, load_vec_env, named, spaces_of
from penstock_imitation.envs.dm_control import repeats, suite_task

SIX = ("finger-spin", "cheetah-run", "walker-walk", "cartpole-swingup", "reacher-easy", "ball-in-cup-catch")


def config(task: str, **keys: Any) -> EnvConfig:
    return EnvConfig(benchmark_name="dm_control", task_name=task, **keys)


def build(task: str, **keys: Any) -> gymnasium.Env[Any, Any]:
    return named("dm_control").factory(config(task, **keys))()


@pytest.mark.parametrize("task", SIX)
def test_spaces_and_one_step(task: str) -> None:
    env = build(task)
    built = tuple(from_gymnasium(space) for space in (env.observation_space, env.action_space))
    assert built == spaces_of(config(task))
    seen, info = env.reset(seed=1)
    assert env.observation_space.contains(seen)
    assert seen.shape == (9, 100, 100)
    assert not seen[:6].any()
    assert seen[6:].std() > 5
    first = seen[6:].copy()
    seen, reward, terminated, truncated, later = env.step(env.action_space.sample())
    assert (seen[3:6] == first).all()
    assert (seen[6:] != first).any()
    assert isinstance(reward, float)
    assert not terminated
    assert not truncated
    assert later["discount"] == 1.0
    assert np.array_equal(info["internal_state"], later["internal_state"])  # the physics before the action
    env.close()


@pytest.mark.parametrize(("task", "repeat"), [("finger-spin", 2), ("cheetah-run", 4), ("reacher-easy", 8)])
def test_physics_and_rewards_are_the_suites(task: str, repeat: int) -> None:
    env = build(task, dm_control_frame_stack=1)
    env.reset(seed=7)
    from dm_control import suite

    domain, name = suite_task(task)
    assert repeats(domain) == repeat
    bare = suite.load(domain, name, task_kwargs={"random": 7})
    bare.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (2, *env.action_space.shape)).astype(np.float32)
    for action in actions:
        state = bare.physics.get_state().copy()
        seen, reward, _, _, info = env.step(action)
        expected = sum(bare.step(action.astype(np.float64)).reward for _ in range(repeat))
        assert np.allclose(info["internal_state"], state)
        assert np.isclose(reward, expected)
        picture = bare.physics.render(100, 100, camera_id=0)
        assert (seen == picture.transpose(2, 0, 1)).all()
    bare.close()
    env.close()


def test_forces_are_scaled_to_what_the_task_takes() -> None:
    env = build("cartpole-balance", dm_control_frame_stack=1).unwrapped
    env.reset(seed=0)
    taken: list[Any] = []
    real = env._loaded.step
    env._loaded.step = lambda forces: (taken.append(forces), real(forces))[1]
    env._low, env._span = np.array([2.0]), np.array([6.0])  # as if it took 2 to 8
    for action in (-1.0, 0.0, 1.0):
        env.step(np.array([action], np.float32))
    assert np.array_equal(np.ravel(taken)[::8], [2.0, 5.0, 8.0])
    env.close()


def test_an_episode_is_cut_in_time_not_terminated() -> None:
    env = build("cartpole-swingup").unwrapped
    env._picture = lambda: np.zeros((3, 100, 100), np.uint8)  # nobody looks
    env.reset(seed=0)
    flags = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(125)]
    assert set(flags[:-1]) == {(False, False)}
    assert flags[-1] == (False, True)
    with pytest.raises(DataError, match="expected a reset before a step"):
        env.step(np.zeros(1, np.float32))
    env.reset()
    assert env.step(np.zeros(1, np.float32))[2:4] == (False, False)
    env.close()


def test_a_discount_of_zero_terminates() -> None:
    env = build("cartpole-swingup", dm_control_frame_stack=1).unwrapped
    env.reset(seed=0)
    env._loaded.task.get_termination = lambda physics: 0.0  # no task of the suite's six ends before its time
    seen, _, terminated, truncated, info = env.step(np.zeros(1, np.float32))
    assert (terminated, truncated, info["discount"]) == (True, False, 0.0)
    assert seen.any()
    env.close()


def test_seeds() -> None:
    env = build("reacher-easy", dm_control_frame_stack=1)
    states = [env.reset(seed=seed)[1]["internal_state"] for seed in (3, 3, 4, 2**40)]
    unseeded = [env.reset()[1]["internal_state"] for _ in range(2)]
    assert np.array_equal(states[0], states[1])
    assert len({state.tobytes() for state in [*states, *unseeded]}) == 5
    assert env.render().shape == (480, 480, 3)
    env.close()


def test_two_processes_draw_and_differ() -> None:
    envs = load_vec_env(config("ball-in-cup-catch", dm_control_frame_stack=2), {"n_envs": 2}, seed=3)
    try:
        seen, infos = envs.reset()
        assert seen.shape == (2, 6, 100, 100)
        assert seen[:, 3:].any(axis=(1, 2, 3)).all()
        states = infos["internal_state"]
        assert not np.array_equal(states[0], states[1])
        seen, *_ = envs.step(envs.action_space.sample())
        assert seen[:, :3].any(axis=(1, 2, 3)).all()
    finally:
        envs.close()


def test_other_tasks_and_what_is_unknown() -> None:
    assert spaces_of(config("humanoid-CMU-run"))[1].shape == (56,)
    assert len(named("dm_control").tasks()) == 51
    box = spaces_of(config("point-mass-easy", dm_control_frame_stack=1))
    assert box[0].shape == (3, 100, 100)
    assert isinstance(box[1], Box)
    with pytest.raises(DataError, match="did you mean 'ball-in-cup-catch'"):
        spaces_of(config("ball_in_cup-catch"))
    env = build("finger-spin")
    with pytest.raises(DataError, match="expected a reset before a step"):
        env.step(np.zeros(2))
    env.reset(seed=0)
    for wrong in (np.zeros(3), np.array([0, 1.01]), np.array([0, np.nan])):
        with pytest.raises(DataError, match=r"expected \(2,\) numbers from -1 to 1"):
            env.step(wrong)
    env.close()
    assert os.environ["MUJOCO_GL"] in {"egl", "osmesa", "glfw"}


def test_the_table_counts_the_suites_actuators() -> None:
    from dm_control import suite

    assert {suite_task(task) for task in named("dm_control").tasks()} == set(suite.ALL_TASKS)
    for task in ("acrobot-swingup", "fish-swim", "lqr-lqr-6-2", "swimmer-swimmer15", "stacker-stack-2"):
        bare = suite.load(*suite_task(task), task_kwargs={"random": 0})
        assert bare.action_spec().shape == spaces_of(config(task))[1].shape
        bare.close()
