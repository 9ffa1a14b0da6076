"""The environments of the benchmark `procgen`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import ImageArray
from penstock.errors import DataError, require
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.procgen import ACTIONS, SIZE
from penstock_imitation.envs.wrappers import FrameStack


class ProcgenEnv(gymnasium.Env[ImageArray, Any]):
    """One game, a frame `[3, 64, 64]` an observation: procgen's vector of games, of length one.

    A reset with a seed, or in mid-episode, makes the game again, because procgen takes its seed there and has no other
    way to leave an episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (Gymnasium's type)

    def __init__(self, task: str) -> None:
        self._procgen: Any = require("procgen", "procgen")
        self._task = task
        self._game: Any = None
        self._waiting = False  # a first frame that has not been handed out
        self._frame = np.zeros((3, SIZE, SIZE), np.uint8)
        self.render_mode = "rgb_array"
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ImageArray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None or not self._waiting:
            self.close()
            levels = {"num_levels": 100, "start_level": 0, "distribution_mode": "easy"}
            drawn = int(self.np_random.integers(2**31 - 1))
            self._game = self._procgen.ProcgenEnv(num_envs=1, env_name=self._task, rand_seed=drawn, **levels)
            self._frame = _picture(self._game.reset())
        self._waiting = False
        return self._frame.copy(), {}

    def step(self, action: Any) -> tuple[ImageArray, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise DataError(f"expected an action in {self.action_space}, got {action!r}")
        if self._game is None:
            raise DataError("expected a reset before a step, no episode is under way")
        seen, rewards, dones, infos = self._game.step(np.array([action], np.int32))
        last = self._frame
        self._frame = _picture(seen)
        self._waiting = bool(dones[0])
        shown = last if self._waiting else self._frame
        return shown.copy(), float(rewards[0]), self._waiting, False, dict(infos[0])

    def render(self) -> Any:
        """`[64, 64, 3]` uint8."""
        return np.ascontiguousarray(self._frame.transpose(1, 2, 0))

    def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None


def build(config: EnvConfig) -> gymnasium.Env[Any, Any]:
    """One environment of a configuration, with its frame stack."""
    return FrameStack(ProcgenEnv(config.task_name), config.procgen_frame_stack, start="zero")


def _picture(seen: Any) -> ImageArray:
    return np.ascontiguousarray(seen["rgb"][0].transpose(2, 0, 1))
