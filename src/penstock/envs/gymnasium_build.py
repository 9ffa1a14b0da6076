"""How an environment of the benchmark `gymnasium` is built."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import AddRenderObservation

from penstock.envs.config import EnvConfig
from penstock.envs.wrappers import ChannelsFirst, FrameStack
from penstock.errors import require

Env = gymnasium.Env[Any, Any]


def build(config: EnvConfig) -> Env:
    """One environment of a configuration, with all that it asks for."""
    if not config.gymnasium_pixels:
        return gymnasium.make(config.task_name)
    env = ChannelsFirst(_pictures(config.task_name, config.gymnasium_size))
    n = config.gymnasium_frame_stack
    return env if n == 1 else FrameStack(env, n, start="repeat")


def _pictures(name: str, size: int | None) -> Env:
    """An environment that gives what it draws; MuJoCo draws the size itself, other pictures are scaled."""
    mujoco = str(gymnasium.spec(name).entry_point).startswith("gymnasium.envs.mujoco")
    os.environ.setdefault(*(("MUJOCO_GL", "egl") if mujoco else ("SDL_VIDEODRIVER", "dummy")))
    draws_size: dict[str, Any] = {"width": size, "height": size} if mujoco and size is not None else {}
    env = AddRenderObservation(gymnasium.make(name, render_mode="rgb_array", **draws_size))
    return env if size is None or mujoco else Scaled(env, size)


class Scaled(gymnasium.ObservationWrapper[npt.NDArray[np.uint8], Any, npt.NDArray[np.uint8]]):
    """Images `[height, width, 3]` become `[size, size, 3]`: each pixel is the mean of the area it covers.

    Raises `MissingExtraError` without Pillow.
    """

    def __init__(self, env: Env, size: int) -> None:
        super().__init__(env)
        self._size = size
        self._images = require("PIL.Image", "classic")
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def observation(self, observation: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The image in its new size."""
        image = self._images.fromarray(observation)
        return np.asarray(image.resize((self._size, self._size), self._images.Resampling.BOX))
