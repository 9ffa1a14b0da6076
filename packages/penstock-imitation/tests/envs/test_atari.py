"""Atari: equal to what Stable-Baselines3 makes of the same games, bit for bit; and spaces without a game."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import ale_py
import ale_py.roms
import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

from penstock.containers.pickle import ColorSpace
from penstock.core.spaces import Discrete
from penstock.errors import DataError
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs import EnvConfig, color_space_of, named, spaces_of
from penstock_imitation.envs.atari import ACTIONS, Atari

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "envs" / "atari.npz"


def config(task: str) -> EnvConfig:
    return EnvConfig(benchmark_name="atari", task_name=task)


def build(task: str) -> gymnasium.Env[Any, Any]:
    return named("atari").factory(config(task))()


def digest(picture: npt.NDArray[Any]) -> np.uint64:
    return np.frombuffer(hashlib.sha256(picture.tobytes()).digest()[:8], np.dtype("<u8"))[0]


@pytest.mark.parametrize("game", ["Pong", "Breakout", "Qbert"])
def test_play_equals_stable_baselines3(game: str) -> None:
    with np.load(GOLDEN, allow_pickle=False) as file:
        golden = {name: file[f"{game}/{name}"] for name in ("seed", "actions", "observations", "rewards", "dones")}
        lasts = iter(file[f"{game}/lasts"])
    env = build(f"{game}NoFrameskip-v4")
    seen, _ = env.reset(seed=int(golden["seed"]))
    assert digest(seen) == golden["observations"][0]
    for k, action in enumerate(golden["actions"]):
        seen, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated or truncated) == (golden["rewards"][k], golden["dones"][k]), f"step {k}"
        if terminated or truncated:
            assert digest(seen) == next(lasts), f"end of an episode at step {k}"
            seen, _ = env.reset()
        assert digest(seen) == golden["observations"][k + 1], f"step {k}"
    assert next(lasts, None) is None
    env.close()


def test_a_seed_begins_a_new_game_whatever_was_before() -> None:
    env = build("BreakoutNoFrameskip-v4")
    first, _ = env.reset(seed=5)
    terminated, info = False, {}
    while not terminated:
        _, _, terminated, _, info = env.step(0)
    assert info["lives"] == 4
    again, info = env.reset(seed=5)
    assert (again == first).all()
    assert info["lives"] == 5
    starts = [env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(8)]
    assert len(set(starts)) > 1  # a seed decides how long nothing is done at first
    env.close()


def test_stack_is_black_before_the_first_frame_and_oldest_first() -> None:
    env = build("PongNoFrameskip-v4")
    first, _ = env.reset(seed=0)
    assert not first[:3].any()
    assert first[3].any()
    second, *_ = env.step(2)
    assert (second[2] == first[3]).all()
    assert not second[:2].any()
    second[:] = 0  # nobody else sees it
    third, *_ = env.step(2)
    assert (third[1] == first[3]).all()
    assert third[2].any()
    assert env.render().shape == (210, 160, 3)
    env.close()


def test_an_episode_ends_in_time() -> None:
    env = build("PongNoFrameskip-v4")
    env.unwrapped._ale.setInt("max_num_frames_per_episode", 60)  # the emulator's own limit, much shorter
    env.reset(seed=0)
    flags = [env.step(0)[2:4] for _ in range(12)]
    assert (False, True) in flags
    assert not any(terminated for terminated, _ in flags)
    env.close()


@pytest.mark.parametrize(
    "task", ["ALE/Pong-v5", "ALE/Assault-v5", "ALE/JourneyEscape-v5", "ALE/Adventure-v5", "FreewayNoFrameskip-v4"]
)
def test_spaces_are_known_without_a_game(task: str) -> None:
    env = build(task)
    built = tuple(from_gymnasium(space) for space in (env.observation_space, env.action_space))
    assert built == spaces_of(config(task))
    assert env.observation_space.contains(env.reset(seed=0)[0])
    env.close()


def test_the_table_has_the_emulators_games() -> None:
    gymnasium.register_envs(ale_py)
    games = {task for task in gymnasium.registry if task.startswith("ALE/") and "-ram" not in task}
    older = {task for task in gymnasium.registry if task.endswith("NoFrameskip-v4") and "-ram" not in task}
    assert games | older == set(named("atari").tasks())


@pytest.mark.parametrize("game", {n: game for game, n in ACTIONS.items()}.values())  # one for each number
def test_the_table_counts_actions(game: str) -> None:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    emulator = ale_py.ALEInterface()
    emulator.loadROM(ale_py.roms.get_rom_path(gymnasium.spec(f"ALE/{game}-v5").kwargs["game"]))
    assert len(emulator.getMinimalActionSet()) == ACTIONS[game]


def test_what_is_unknown_is_an_error_with_advice() -> None:
    with pytest.raises(DataError, match="did you mean 'PongNoFrameskip-v4'"):
        spaces_of(config("PongNoFrameSkip-v4"))
    with pytest.raises(DataError, match="unknown task 'CartPole-v1'"):
        named("atari").factory(config("CartPole-v1"))
    env = build("PongNoFrameskip-v4")
    env.reset(seed=0)
    with pytest.raises(DataError, match="expected an action in Discrete"):
        env.step(6)
    env.close()


def test_factories_and_answers_are_plain_data() -> None:
    factory = named("atari").factory(config("PongNoFrameskip-v4"))
    assert pickle.loads(pickle.dumps(factory)) == factory
    assert color_space_of(config("PongNoFrameskip-v4")) is ColorSpace.GRAY
    assert spaces_of(config("BreakoutNoFrameskip-v4"))[1] == Discrete(4)
    tasks = named("atari").tasks()
    assert len(tasks) == len(set(tasks)) == 104 + 62


@pytest.mark.parametrize(
    ("task", "meant"),
    [
        ("Pong", "PongNoFrameskip-v4"),
        ("brekout", "BreakoutNoFrameskip-v4"),
        ("SeaQuestNoFrameskip-v0", "SeaquestNoFrameskip-v4"),
        ("ALE/MsPackman-v5", "ALE/MsPacman-v5"),
        ("KingKong", "ALE/KingKong-v5"),
    ],
)
def test_the_game_that_was_probably_meant(task: str, meant: str) -> None:
    with pytest.raises(DataError, match=f"did you mean '{meant}'"):
        Atari().spaces(EnvConfig(benchmark_name="atari", task_name=task))
