"""The environments of the benchmark `dm_control`."""

from __future__ import annotations

import os
import sys
from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import Float32Array, FloatArray, ImageArray
from penstock.errors import DataError, require
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.dm_control import SIZE, repeats, suite_task
from penstock_imitation.envs.wrappers import FrameStack

Action = Float32Array

LARGE = 480  # pixels, of `render`


class DmControlEnv(gymnasium.Env[ImageArray, Action]):
    """One task of the suite, a frame `[3, 100, 100]` an observation.

    Without a display, MuJoCo draws by EGL: where the environment variable `MUJOCO_GL` is not set, it is set to `egl` in
    the process that builds. A reset with a seed loads the task again (about 0.1 s), because some tasks draw their
    bodies at random.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, task: str) -> None:
        if sys.platform == "linux":
            os.environ.setdefault("MUJOCO_GL", "egl")
        self._suite: Any = require("dm_control.suite", "dm-control", "penstock-imitation")
        self._task = suite_task(task)
        self._repeats = repeats(self._task[0])
        self._loaded = self._load(0)
        self._fresh = self._over = True  # neither a seed nor an episode was requested yet
        spec = self._loaded.action_spec()
        self._low = np.broadcast_to(spec.minimum, spec.shape).astype(np.float64)
        self._span = np.broadcast_to(spec.maximum, spec.shape) - self._low
        self.render_mode = "rgb_array"
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, spec.shape, np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ImageArray, dict[str, Any]]:
        """Begin an episode. Without a seed, the first one is drawn from the operating system."""
        super().reset(seed=seed)
        if seed is not None or self._fresh:
            self._loaded.close()
            self._loaded = self._load(int(self.np_random.integers(2**32)) if seed is None else seed)
            self._fresh = False
        self._loaded.reset()
        self._over = False
        return self._picture(), {"internal_state": self._state(), "discount": 1.0}

    def step(self, action: Action) -> tuple[ImageArray, float, bool, bool, dict[str, Any]]:
        """One action, repeated."""
        if self._over:
            raise DataError("expected a reset before a step, no episode is under way")
        forces = np.asarray(action, np.float64)
        if forces.shape != self._low.shape or not (np.abs(forces) <= 1).all():
            raise DataError(f"expected {self._low.shape} numbers from -1 to 1 as an action, got {action!r}")
        info: dict[str, Any] = {"internal_state": self._state()}
        forces = self._low + (forces + 1) / 2 * self._span
        reward = 0.0
        last = False
        discount = 1.0
        for _ in range(self._repeats):
            step = self._loaded.step(forces)
            reward = reward + step.reward
            last = step.last()
            discount = float(step.discount)
            if last:
                break
        self._over, terminated = last, last and discount == 0.0
        return self._picture(), float(reward), terminated, last and not terminated, {**info, "discount": discount}

    def render(self) -> Any:
        """`[480, 480, 3]` uint8, by the same camera."""
        return self._loaded.physics.render(LARGE, LARGE, camera_id=0)

    def close(self) -> None:
        """Give the OpenGL context back."""
        self._loaded.close()

    def _load(self, seed: int) -> Any:
        """Legacy generators take 32 bits; a longer seed is hashed."""
        short = seed if seed < 2**32 else int(np.random.SeedSequence(seed).generate_state(1)[0])
        domain, task = self._task
        return self._suite.load(domain, task, task_kwargs={"random": short})

    def _state(self) -> FloatArray:
        return self._loaded.physics.get_state().copy()

    def _picture(self) -> ImageArray:
        return np.ascontiguousarray(self._loaded.physics.render(SIZE, SIZE, camera_id=0).transpose(2, 0, 1))


def build(config: EnvConfig) -> gymnasium.Env[Any, Any]:
    """One environment of a configuration, with its frame stack."""
    return FrameStack(DmControlEnv(config.task_name), config.dm_control_frame_stack, start="zero")
