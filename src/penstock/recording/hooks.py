"""Hooks of users in a recording, and the data that they get."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.episode import Episode
from penstock.kernels.bounds import extremes


@dataclass(slots=True)
class StepData:
    """Data of one `reset` or `step` before it is recorded. A hook changes it in place or returns another.

    Setting `terminated` or `truncated` ends the recorded episode. If the environment continues, the next episode starts
    with the same observation.
    """

    env: Any
    observation: Any
    info: dict[str, Any]
    action: Any = None
    reward: Any = None
    terminated: bool = False
    truncated: bool = False
    is_reset: bool = False
    extras: dict[str, Any] = field(default_factory=dict[str, Any])


StepHook = Callable[[StepData], StepData]

EpisodeMetadata = Callable[[Episode], Mapping[str, Any]]


def reward_statistics(episode: Episode) -> dict[str, float]:
    """Return sum, mean, standard deviation, maximum and minimum of the rewards of an episode.

    Collectors store these as metadata by default.
    """
    rewards = episode.rewards
    low, high = extremes(rewards)
    if -_TAME < low <= high < _TAME:  # not NaN
        return _statistics(rewards, high, low)
    with np.errstate(invalid="ignore", over="ignore"):  # an error state costs more than everything else here
        return _statistics(rewards, float(np.maximum.reduce(rewards)), float(np.minimum.reduce(rewards)))


_TAME = 1e140  # squares of rewards below it neither overflow nor lack a sum


def _statistics(rewards: FloatArray, high: float, low: float) -> dict[str, float]:
    """The results of `sum()` and `std()` at a fraction of their cost."""
    steps = len(rewards)
    total, deviation = steps * high, 0.0
    if low != high or high % 1 != 0 or abs(total) > 2**53:  # the sum of whole numbers is exact below
        total = float(np.add.reduce(rewards))
        apart = rewards - total / steps
        deviation = math.sqrt(np.add.reduce(apart * apart) / steps)
    return {
        "rewards_sum": total,
        "rewards_mean": total / steps,
        "rewards_std": deviation,
        "rewards_max": high,
        "rewards_min": low,
    }


def seed_stream(seed: int | None) -> Iterator[int]:
    """Yield distinct seeds for resets, `0 <= s < 2**31`.

    No seed repeats within 2**31. Many simulators accept only 31 bits.
    """
    first, stride = _stream(seed)
    while True:
        yield first
        first = (first + stride) % 2**31


def episode_seed(seed: int, number: int) -> int:
    """Return the seed of the reset of an episode: entry `number` of `seed_stream(seed)`."""
    first, stride = _stream(seed)
    return (first + number * stride) % 2**31


def _stream(seed: int | None) -> tuple[int, int]:
    """First seed of a stream, and the distance of two. An odd distance visits all seeds."""
    first, stride = (int(i) for i in np.random.default_rng(seed).integers(0, 2**31, 2))
    return first, stride | 1
