"""How an environment of the benchmark `gymnasium` is built."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AddRenderObservation

from penstock.core.arrays import ImageArray
from penstock.errors import DataError
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.wrappers import ChannelsFirst, FrameStack, shrink

Env = gymnasium.Env[Any, Any]


def build(config: EnvConfig) -> Env:
    """One environment of a configuration, with all that it asks for."""
    if not config.gymnasium_pixels:
        return gymnasium.make(config.task_name)
    env = _pictures(config.task_name, config.gymnasium_size)
    n = config.gymnasium_frame_stack
    return env if n == 1 else FrameStack(env, n, start="repeat")


def _pictures(name: str, size: int | None) -> Env:
    """An environment that gives what it draws, channels first; MuJoCo draws the size itself, others are scaled."""
    mujoco = str(gymnasium.spec(name).entry_point).startswith("gymnasium.envs.mujoco")
    os.environ.setdefault(*(("MUJOCO_GL", "egl") if mujoco else ("SDL_VIDEODRIVER", "dummy")))
    draws_size: dict[str, Any] = {"width": size, "height": size} if mujoco and size is not None else {}
    env = AddRenderObservation(gymnasium.make(name, render_mode="rgb_array", **draws_size))
    return ChannelsFirst(env) if size is None or mujoco else Scaled(env, size)


class Scaled(gymnasium.ObservationWrapper[ImageArray, Any, ImageArray]):
    """Images `[height, width, 3]` become `[3, size, size]`: each pixel is the mean of the area it covers."""

    def __init__(self, env: Env, size: int) -> None:
        super().__init__(env)
        self._size, shape = size, env.observation_space.shape or ()
        if size >= min(shape[:2]):
            raise DataError(f"expected env_cfg.gymnasium_size below the height and width {shape[:2]}, got {size}")
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, size, size), np.uint8)

    def observation(self, observation: ImageArray) -> ImageArray:
        return np.stack([shrink(observation[..., c], self._size, self._size) for c in range(3)])
