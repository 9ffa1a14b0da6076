"""The environments of the benchmark `minecraft`."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import ImageArray
from penstock.errors import DataError
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.minecraft import BOUND, CODE, SIZE, full_name


class MinecraftEnv(gymnasium.Env[ImageArray, Any]):
    """One task, a frame `[3, 64, 64]` an observation. `limit`: steps after which an episode is truncated, or None."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (Gymnasium's type)

    def __init__(self, task: str, limit: int | None = None) -> None:
        importlib.import_module("minerl")  # registers its tasks
        self._task: Any = importlib.import_module("gym").make(full_name(task))
        self._limit, self._steps = limit, 0
        self._frame = np.zeros((SIZE, SIZE, 3), np.uint8)
        self.render_mode = "rgb_array"
        self.action_space = gymnasium.spaces.Box(-BOUND, BOUND, (CODE,), np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ImageArray, dict[str, Any]]:
        """Begin an episode in a world; the seed is the world's."""
        super().reset(seed=seed)
        if seed is not None:
            self._task.seed(seed)
        self._steps = 0
        self._frame = self._task.reset()["pov"]
        return self._picture(), {}

    def step(self, action: Any) -> tuple[ImageArray, float, bool, bool, dict[str, Any]]:
        """One tick of the game."""
        vector = np.asarray(action, np.float32)
        if not self.action_space.contains(vector):
            raise DataError(f"expected {CODE} numbers from -{BOUND} to {BOUND} as an action, got {action!r}")
        seen, reward, done, info = self._task.step({"vector": vector})
        self._frame, self._steps = seen["pov"], self._steps + 1
        cut = bool(info.get("TimeLimit.truncated", False))
        over = bool(done) and not cut
        late = self._limit is not None and self._steps >= self._limit
        return self._picture(), float(reward), over, cut or (late and not over), dict(info)

    def render(self) -> Any:
        """`[64, 64, 3]` uint8."""
        return self._frame.copy()

    def close(self) -> None:
        """End the game."""
        self._task.close()

    def _picture(self) -> ImageArray:
        return np.ascontiguousarray(self._frame.transpose(2, 0, 1))


def build(config: EnvConfig) -> gymnasium.Env[Any, Any]:
    """One environment of a configuration."""
    return MinecraftEnv(config.task_name, config.minecraft_max_env_steps)
