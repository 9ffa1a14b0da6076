"""What several benchmarks do to the images of an environment: channels first, and a stack of the last frames."""

from __future__ import annotations

from typing import Any, Literal, cast

import gymnasium
import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import SpecError

Start = Literal["zero", "repeat"]


class ChannelsFirst(gymnasium.ObservationWrapper[AnyArray, Any, AnyArray]):
    """Images `[height, width, channels]` become `[channels, height, width]`, in memory too."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        box = _image_box(env)
        low, high = (np.ascontiguousarray(bound.transpose(2, 0, 1)) for bound in (box.low, box.high))
        self.observation_space = gymnasium.spaces.Box(low, high, low.shape, low.dtype.type)

    def observation(self, observation: AnyArray) -> AnyArray:
        """The image in its new order, a copy."""
        return np.ascontiguousarray(observation.transpose(2, 0, 1))


class FrameStack(gymnasium.Wrapper[AnyArray, Any, AnyArray, Any]):
    """The last `n` frames `[channels, height, width]` as one, `[n * channels, height, width]`, oldest first.

    What stands before the first frame of an episode: black with `start="zero"`, as Stable-Baselines3 does it, or the
    first frame again with `start="repeat"`, as MAGICAL and Gymnasium do. Each observation is a new array.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], n: int, *, start: Start) -> None:
        super().__init__(env)
        box = _image_box(env)
        if n < 1 or start not in {"zero", "repeat"}:
            raise SpecError(f"expected at least 1 frame, and start 'zero' or 'repeat', got {n} and {start!r}")
        low, high = (np.repeat(bound[None], n, axis=0).reshape(-1, *box.shape[1:]) for bound in (box.low, box.high))
        self.observation_space = gymnasium.spaces.Box(low, high, low.shape, low.dtype.type)
        self._n, self._start = n, start
        self._frames = np.zeros((n, *box.shape), low.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[AnyArray, dict[str, Any]]:
        """Begin an episode: a stack of its first frame."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._frames = np.zeros_like(self._frames) if self._start == "zero" else np.repeat(frame[None], self._n, axis=0)
        self._frames[-1] = frame
        return self._stacked(), info

    def step(self, action: Any) -> tuple[AnyArray, Any, bool, bool, dict[str, Any]]:
        """One step: the oldest frame leaves the stack."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._frames[:-1] = self._frames[1:]
        self._frames[-1] = frame
        return self._stacked(), reward, terminated, truncated, info

    def _stacked(self) -> AnyArray:
        return self._frames.reshape(self.observation_space.shape).copy()  # type: ignore[arg-type]


def _image_box(env: gymnasium.Env[Any, Any]) -> gymnasium.spaces.Box:
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 3:
        raise SpecError(f"expected observations that are images of three axes, got {space}")
    return cast("gymnasium.spaces.Box", space)


class FirstSeed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose first reset has a seed, if its caller gives none."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        super().__init__(env)
        self._seed: int | None = seed
        self.action_space.seed(seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; a given seed replaces the stored one."""
        first, self._seed = self._seed, None
        return self.env.reset(seed=first if seed is None else seed, options=options)
