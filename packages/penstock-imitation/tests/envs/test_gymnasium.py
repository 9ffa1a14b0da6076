"""The benchmark `gymnasium`: states and pictures of classic control and MuJoCo, without a screen."""

from __future__ import annotations

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from penstock.errors import DataError, MissingExtraError
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs import EnvConfig, VecEnvOptions, load_vec_env, named, spaces_of
from penstock_imitation.envs.gymnasium_envs import CLASSIC
from penstock_imitation.envs.wrappers import shrink


def gym(task, **keys):
    return EnvConfig(benchmark_name="gymnasium", task_name=task, **{f"gymnasium_{key}": keys[key] for key in keys})


def build(config):
    return named("gymnasium").factory(config)()


@pytest.mark.parametrize("task", CLASSIC)
def test_spaces_of_classic_control_are_gymnasiums(task) -> None:
    env = build(gym(task))
    assert spaces_of(gym(task)) == (from_gymnasium(env.observation_space), from_gymnasium(env.action_space))


@pytest.mark.parametrize("task", CLASSIC)
@pytest.mark.parametrize("keys", [{}, {"size": 42, "frame_stack": 2}])
def test_classic_control_as_pictures(task, keys) -> None:
    config = gym(task, pixels=True, **keys)
    env = build(config)
    assert spaces_of(config) == (from_gymnasium(env.observation_space), from_gymnasium(env.action_space))
    frames = [env.reset(seed=seed)[0] for seed in (0, 0, 1)]
    assert env.observation_space.contains(frames[0])
    assert frames[0].std() > 1
    np.testing.assert_array_equal(frames[0], frames[1])
    env.action_space.seed(0)
    for _ in range(10):
        frame, *_ = env.step(env.action_space.sample())
    assert not np.array_equal(frame, frames[2])
    env.close()


@pytest.mark.parametrize("seed", [0, 1])
def test_pictures_are_what_gymnasium_draws(seed) -> None:
    plain = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    whole, small = (
        build(gym("CartPole-v1", pixels=True)),
        build(gym("CartPole-v1", pixels=True, size=60, frame_stack=3)),
    )
    frames = []
    for step in range(3):
        action = (step + seed) % 2
        seen = [env.step(action)[0] if step else env.reset(seed=seed)[0] for env in (plain, whole, small)]
        frames.append(plain.render())
        np.testing.assert_array_equal(seen[1], frames[-1].transpose(2, 0, 1))
        scaled = [[shrink(frame[..., c], 60, 60) for c in range(3)] for frame in frames]
        stack = [scaled[max(k, 0)] for k in range(step - 2, step + 1)]
        np.testing.assert_array_equal(seen[2], np.concatenate(stack))


def test_mujoco_states_and_pictures() -> None:
    with pytest.raises(DataError, match="known for CartPole-v1"):
        spaces_of(gym("Reacher-v5"))
    assert spaces_of(gym("Reacher-v5"), build=True)[1].shape == (2,)
    config = gym("Reacher-v5", pixels=True, size=48)
    assert spaces_of(config, build=True)[0].shape == (3, 48, 48)
    envs = load_vec_env(config, VecEnvOptions(False, 2), seed=0)
    frames, _ = envs.reset()
    assert frames.std() > 1
    assert not np.array_equal(frames[0], frames[1])
    envs.close()


def test_states_from_processes_equal_those_of_one() -> None:
    seen = []
    for parallel in (False, True):
        envs = load_vec_env(gym("Pendulum-v1"), VecEnvOptions(parallel, 2), seed=4)
        envs.action_space.seed(0)
        rows = [envs.reset()[0], *(envs.step(envs.action_space.sample())[0] for _ in range(20))]
        envs.close()
        seen.append(np.array(rows))
    np.testing.assert_array_equal(*seen)
    assert not np.array_equal(seen[0][:, 0], seen[0][:, 1])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (gym("CartPole-v1", size=3), "together with env_cfg.gymnasium_pixels"),
        (gym("CartPole-v1", frame_stack=2), "together with env_cfg.gymnasium_pixels.*got None and 2"),
        (gym("CartPol-v1"), "expected the id of an environment of Gymnasium, got 'CartPol-v1'.*CartPole"),
    ],
)
def test_what_contradicts_itself(config, message) -> None:
    with pytest.raises(DataError, match=message):
        named("gymnasium").factory(config)


def test_pictures_are_never_enlarged() -> None:
    with pytest.raises(DataError, match=r"below the height and width \(400, 600\), got 400"):
        build(gym("CartPole-v1", pixels=True, size=400))


def test_the_extra_for_pictures_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(MissingExtraError, match=r"penstock\[classic\]"):
        named("gymnasium").factory(gym("CartPole-v1", pixels=True))
    named("gymnasium").factory(gym("CartPole-v1"))


@pytest.mark.parametrize(("given", "expected"), [({}, "dummy"), ({"SDL_VIDEODRIVER": "offscreen"}, "offscreen")])
def test_the_video_driver_is_set_only_where_it_is_not(given, expected) -> None:
    script = """
import os
from penstock_imitation.envs import EnvConfig, named
config = {"benchmark_name": "gymnasium", "task_name": "CartPole-v1"}
named("gymnasium").factory(EnvConfig.from_mapping(config))()
before = os.environ.get("SDL_VIDEODRIVER")
named("gymnasium").factory(EnvConfig.from_mapping({**config, "gymnasium_pixels": True}))().reset()
print(before, os.environ["SDL_VIDEODRIVER"])
"""
    clean = {name: value for name, value in os.environ.items() if name != "SDL_VIDEODRIVER"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env={**clean, **given}, check=True)
    assert done.stdout.split()[-2:] == [given.get("SDL_VIDEODRIVER", "None"), expected]
