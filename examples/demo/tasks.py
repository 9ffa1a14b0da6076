"""The environments of the demo, each with an expert that needs no training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import FloatArray
from penstock.errors import require
from penstock_imitation.envs import expert
from penstock_imitation.envs.toy_env import ToyEnv

Policy = Callable[[Any], Any]


@dataclass(frozen=True)
class Task:
    """One environment: its constructor, its players and their numbers of episodes, and the formats of the recordings.

    `history` is how many observations the learner sees at a time. `worth` is the condition on episodes that it learns
    from. The episodes are recorded in `format` and copied into `copy`. `judged`: must it beat chance? `evaluations`:
    how often the learner is evaluated while it trains.
    """

    name: str
    env_id: str
    make: Callable[[], gymnasium.Env[Any, Any]]
    expert: Callable[[gymnasium.Env[Any, Any]], Policy]
    worth: str
    format: str
    copy: str
    expert_episodes: int
    random_episodes: int
    test_episodes: int
    epochs: int
    history: int = 1
    judged: bool = True
    evaluations: int = 0

    def quick(self) -> Task:
        """Return a smaller task, to test that all parts work."""
        episodes = max(2, self.expert_episodes // 15)
        return replace(self, expert_episodes=episodes, random_episodes=2, test_episodes=1, epochs=1, judged=False)


def lean(gains: FloatArray) -> Callable[[gymnasium.Env[Any, Any]], Policy]:
    """A linear controller of two actions: 1 where `gains @ observation` is positive, else 0."""
    return lambda _: lambda observation: int(gains @ observation > 0)


def push(gains: FloatArray, noise: float, limit: float) -> Callable[[gymnasium.Env[Any, Any]], Policy]:
    """A linear controller of one force, `gains @ observation` within `limit`, and noise that shows it more states."""

    def expert(_: gymnasium.Env[Any, Any]) -> Policy:
        draw = np.random.default_rng(0).normal
        return lambda observation: np.clip([gains @ observation + draw(0, noise)], -limit, limit).astype(np.float32)

    return expert


def make_pong() -> gymnasium.Env[Any, Any]:
    """Pong as 80 x 80 grey pixels, without the score and the frame, cut after 600 steps."""
    ale = require("ale_py", "atari")
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    gymnasium.register_envs(ale)
    env = gymnasium.make("ALE/Pong-v5", obs_type="grayscale", max_episode_steps=600)
    pixels = gymnasium.spaces.Box(0, 255, (80, 80), np.uint8)
    return gymnasium.wrappers.TransformObservation(env, lambda frame: frame[34:194:2, ::2], pixels)


BALL, PADDLE = 54, 51  # where the console keeps the two heights
UP = 2
STAY = 0
DOWN = 3


def follow_the_ball(env: gymnasium.Env[Any, Any]) -> Policy:
    """Moves the paddle to the height of the ball, which it reads from the console's memory."""
    ale: Any = env.unwrapped

    def policy(_: Any) -> int:
        memory = ale.ale.getRAM()
        below = int(memory[BALL]) - int(memory[PADDLE]) - 7
        if memory[BALL] == 0 or abs(below) < 5:
            return STAY
        return DOWN if below > 0 else UP

    return policy


TASKS = (
    Task(
        "cartpole",
        "CartPole-v1",
        lambda: gymnasium.make("CartPole-v1"),
        lean(np.array([0.1, 0.3, 4.0, 1.5])),
        worth="return >= 400",
        format="columns",
        copy="minari",
        expert_episodes=30,
        random_episodes=200,
        test_episodes=10,
        epochs=2,
    ),
    Task(
        "pendulum",
        "InvertedPendulum-v5",
        lambda: gymnasium.make("InvertedPendulum-v5"),
        push(np.array([0.3, 8.0, 0.6, 1.2]), 0.5, 3.0),
        worth="return >= 500",
        format="minari",
        copy="columns",
        expert_episodes=15,
        random_episodes=200,
        test_episodes=3,
        epochs=2,
    ),
    Task(
        "pong",
        "ALE/Pong-v5",
        make_pong,
        follow_the_ball,
        worth="return >= -6",
        format="minari",
        copy="columns",
        expert_episodes=6,
        random_episodes=2,
        test_episodes=2,
        epochs=12,
        history=2,
    ),
    Task(
        "chase",
        "toy/chase",
        lambda: ToyEnv("chase", render_mode="rgb_array"),
        lambda _: expert("chase"),
        worth="return > 0",
        format="columns",
        copy="minari",
        expert_episodes=600,
        random_episodes=100,
        test_episodes=50,
        epochs=12,
        evaluations=12,
    ),
)
