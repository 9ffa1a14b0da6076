"""Hooks of users in a recording, and the data that they get."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.episode import Episode


@dataclass(slots=True)
class StepData:
    """Data of one `reset` or `step` before it is recorded. A hook changes it in place or returns another.

    Setting `terminated` or `truncated` ends the recorded episode. If the environment continues, the next episode starts
    with the same observation.

    Args:
        env: The environment.
        observation: Observation after the reset or step.
        info: Info of the reset or step.
        action: Action of the step, or None at a reset.
        reward: Reward of the step, or None at a reset.
        terminated: Whether the environment terminated. The default is False.
        truncated: Whether the episode was truncated. The default is False.
        is_reset: Whether this is a reset. The default is False.
        extras: More values to record, a dict that may be nested: `{"state": {"qpos": ...}}`. A key that exists at the
            reset has T + 1 rows; other keys have T. The default is empty.

    Example:
        >>> def add_time(data: StepData) -> StepData:
        ...     data.extras["time"] = 0.0 if data.is_reset else 1.0
        ...     return data
        >>> add_time(StepData(None, 1, {}, is_reset=True)).extras
        {'time': 0.0}
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

    Args:
        episode: A recorded episode.

    Returns:
        `rewards_sum`, `rewards_mean`, `rewards_std`, `rewards_max` and `rewards_min`.

    Example:
        >>> from penstock.core.spec import Field, Spec
        >>> spec = Spec({"rewards": Field(np.dtype("float64"))})
        >>> reward_statistics(Episode(spec, {"rewards": np.array([1.0, 3.0])}))["rewards_mean"]
        2.0
    """
    rewards = episode.rewards
    high, low = float(np.maximum.reduce(rewards)), float(np.minimum.reduce(rewards))
    if -_TAME < low <= high < _TAME:
        total, deviation = _sum_and_deviation(rewards)
    else:  # an error state costs more than everything else here
        with np.errstate(invalid="ignore", over="ignore"):
            total, deviation = _sum_and_deviation(rewards)
    return {
        "rewards_sum": total,
        "rewards_mean": total / len(rewards),
        "rewards_std": deviation,
        "rewards_max": high,
        "rewards_min": low,
    }


# Squares of rewards below this neither overflow nor lack a sum.
_TAME = 1e140


def _sum_and_deviation(rewards: FloatArray) -> tuple[float, float]:
    """The results of `sum()` and `std()` at a third of their cost, by calling the ufuncs."""
    total = np.add.reduce(rewards)
    apart = rewards - total / len(rewards)
    return float(total), math.sqrt(np.add.reduce(apart * apart) / len(rewards))


def seed_stream(seed: int | None) -> Iterator[int]:
    """Yield distinct seeds for resets, `0 <= s < 2**31`.

    No seed repeats within 2**31. Many simulators accept only 31 bits.

    Args:
        seed: Seed of the stream. Equal seeds yield equal streams; None yields a random one.

    Example:
        >>> a, b = seed_stream(7), seed_stream(7)
        >>> [next(a) for _ in range(3)] == [next(b) for _ in range(3)]
        True
    """
    first, stride = _stream(seed)
    while True:
        yield first
        first = (first + stride) % 2**31


def episode_seed(seed: int, number: int) -> int:
    """Return the seed of the reset of an episode: entry `number` of `seed_stream(seed)`.

    Args:
        seed: Seed of the run.
        number: Number of the episode, from 0.

    Example:
        >>> stream = seed_stream(7)
        >>> [next(stream) for _ in range(3)] == [episode_seed(7, number) for number in range(3)]
        True
    """
    first, stride = _stream(seed)
    return (first + number * stride) % 2**31


def _stream(seed: int | None) -> tuple[int, int]:
    """First seed of a stream, and the distance of two. An odd distance visits all seeds."""
    first, stride = (int(i) for i in np.random.default_rng(seed).integers(0, 2**31, 2))
    return first, stride | 1
