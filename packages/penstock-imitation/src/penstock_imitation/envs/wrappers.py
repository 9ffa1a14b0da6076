"""What several benchmarks do to images: channels first, gray and smaller to the bit of OpenCV, a stack of frames."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, cast

import gymnasium
import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, ImageArray, IntArray
from penstock.errors import SpecError

_LUMA = np.array([9798, 19235, 3735], np.float32)  # 2**15 times the weights of red, green and blue


def gray(picture: ImageArray) -> ImageArray:
    """`[height, width, 3]` uint8 -> `[height, width]` uint8, the weighted mean of red, green and blue.

    All sums are integers below 2**24, hence exact in float32 in any order. Equals OpenCV 5's `COLOR_RGB2GRAY`.
    """
    luma = picture.reshape(-1, 3).astype(np.float32) @ _LUMA
    luma *= np.float32(2**-15)
    luma += np.float32(0.5)
    return luma.astype(np.uint8).reshape(picture.shape[:2])


def shrink(picture: ImageArray, height: int, width: int) -> ImageArray:
    """`[h, w]` uint8 -> `[height, width]` uint8: each pixel the mean of the area that it covers, half to even.

    `h` and `w` are larger than `height` and `width`. Equals OpenCV's `INTER_AREA`: float32, along rows first, each sum
    from left to right.
    """
    rows, row_weights = _taps(picture.shape[0], height)
    columns, column_weights = _taps(picture.shape[1], width)
    across = _weighted(np.ascontiguousarray(picture.T, np.float32), columns, column_weights)
    down = _weighted(np.ascontiguousarray(across.T), rows, row_weights)
    return np.rint(down, out=down).astype(np.uint8)


def box_mean(picture: ImageArray, side: int) -> ImageArray:
    """`[h, w, c]` uint8 -> `[h / side, w / side, c]` uint8, the mean of squares of `side` by `side`, half to even.

    `side` is a power of two, at most 16, that divides both edges.
    """
    sums = picture[::side].astype(np.uint16)
    for i in range(1, side):
        sums += picture[i::side]
    sums = np.add.reduce([sums[:, i::side] for i in range(side)], dtype=np.uint16)
    shift = 2 * (side.bit_length() - 1)
    half = (1 << shift >> 1) - 1
    return ((sums + half + ((sums >> shift) & 1)) >> shift).astype(np.uint8)


@lru_cache
def _taps(n: int, m: int) -> tuple[IntArray, Float32Array]:
    """`[taps, m]`: which of `n` cells overlap each of `m`, and their shares of it; unused taps weigh nothing."""
    scale = n / m
    begin = np.arange(m) * scale
    end = np.minimum(begin + scale, n)
    size = np.minimum(scale, n - begin)
    cells = np.floor(begin).astype(np.int64) + np.arange(int(np.ceil(scale)) + 1)[:, None]
    shares = np.minimum(cells + 1, end) - np.maximum(cells, begin)
    weights = np.where(shares > 1e-3, shares / size, 0.0)  # OpenCV drops slivers
    used = weights.any(axis=1)
    return np.minimum(cells, n - 1)[used], weights[used].astype(np.float32)


def _weighted(values: Float32Array, cells: IntArray, weights: Float32Array) -> Float32Array:
    """`[n, k]` -> `[m, k]`: whole rows are gathered, for that is what memory is fast at."""
    total = values[cells[0]] * weights[0][:, None]
    for tap in range(1, len(cells)):
        total += values[cells[tap]] * weights[tap][:, None]
    return total


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
