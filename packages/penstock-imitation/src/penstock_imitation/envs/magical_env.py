"""The environments of the benchmark `magical`."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np

from penstock.core.arrays import ImageArray
from penstock.core.spaces import Box, Dict, Space
from penstock.errors import DataError
from penstock_imitation.envs.config import EnvConfig
from penstock_imitation.envs.magical import ACTIONS, NATIVE, SMALL, Magical, full_name, preproc
from penstock_imitation.envs.magical_shim import context_kept, load
from penstock_imitation.envs.wrappers import box_mean

Observation = ImageArray | dict[str, ImageArray]


class MagicalEnv(gymnasium.Env[Observation, Any]):
    """One task, preprocessed: each picture is made small once. Equals MAGICAL's own wrappers bit for bit.

    Both views are drawn even where one is asked for, because drawing one changes some pixels of the next. A seed
    decides the layout of the variants that have a random one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, config: EnvConfig) -> None:
        self._preproc = preproc(config.magical_preproc)
        legacy = np.random.get_state()  # a new task takes its seed from there, before it is given one
        self._task: Any = load().make(full_name(config.task_name))
        np.random.set_state(legacy)
        self._fresh = True
        self._pictures = {view: deque[ImageArray](maxlen=depth) for view, depth in self._preproc.views.items()}
        self._latest: dict[str, ImageArray] = {}
        self.render_mode = "rgb_array"
        self.observation_space = _gymnasium_space(Magical().spaces(config)[0])
        self.action_space = gymnasium.spaces.Discrete(ACTIONS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode. Without a seed, the first one is drawn from the operating system."""
        super().reset(seed=seed)
        if seed is not None or self._fresh:
            wanted = int(self.np_random.integers(2**32)) if seed is None else seed
            self._task.seed(wanted if wanted < 2**32 else int(np.random.SeedSequence(wanted).generate_state(1)[0]))
            self._fresh = False
        with context_kept():
            self._latest = self._task.reset()
        for view, picture in self._small().items():
            stack = self._pictures[view]
            stack.extend([picture] * (stack.maxlen or 1))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """An eighth of a second."""
        if not self.action_space.contains(action):
            raise DataError(f"expected an action in {self.action_space}, got {action!r}")
        with context_kept():
            self._latest, reward, done, info = self._task.step(int(action))
        for view, picture in self._small().items():
            self._pictures[view].append(picture)
        truncated = bool(info.get("TimeLimit.truncated", False))
        return self._observation(), float(reward), bool(done) and not truncated, truncated, info

    def render(self) -> Any:
        """`[384, 384, 3]` uint8: the latest picture, from above."""
        return np.ascontiguousarray(self._latest["allo"])

    def close(self) -> None:
        """Close the hidden window."""
        with context_kept():
            self._task.close()

    def _small(self) -> dict[str, ImageArray]:
        if not self._preproc.small:
            return {view: np.ascontiguousarray(self._latest[view]) for view in self._pictures}
        return {view: box_mean(self._latest[view], NATIVE // SMALL) for view in self._pictures}

    def _observation(self) -> Observation:
        if self._preproc.apart:
            return {view: np.concatenate(pictures, axis=-1) for view, pictures in self._pictures.items()}
        pictures = [picture for stack in self._pictures.values() for picture in stack]
        stacked = np.concatenate(pictures, axis=-1)
        return np.ascontiguousarray(stacked.transpose(2, 0, 1)) if self._preproc.layout == "CHW" else stacked


def build(config: EnvConfig) -> gymnasium.Env[Any, Any]:
    """One environment of a configuration; its stack of pictures is the preprocessor's."""
    return MagicalEnv(config)


def _gymnasium_space(space: Space) -> gymnasium.Space[Any]:
    match space:
        case Box(low=low, high=high):
            return gymnasium.spaces.Box(low, high, low.shape, np.uint8)
        case Dict(spaces=spaces):
            return gymnasium.spaces.Dict({view: _gymnasium_space(part) for view, part in spaces.items()})
        case _:
            raise TypeError(f"an observation space {space}")
