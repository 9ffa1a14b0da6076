"""The places where a user's function takes part in recording, and what it is handed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.episode import Episode


@dataclass(slots=True)
class StepData:
    """What one `reset` or `step` gave, before it is recorded; a step hook changes it in place or returns another.

    At a reset `action` and `reward` are None and `is_reset` is True. `extras` is a dict, nested at will, of further
    values to record: `{"state": {"qpos": ...}}`. A key that is there at the reset has T + 1 rows, one that comes only
    with steps has T. Setting `terminated` or `truncated` ends the recorded episode; if the environment goes on,
    the next episode starts with the same observation.
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
    """`rewards_sum`, `_mean`, `_std`, `_max` and `_min` of an episode: what is stored beside it unless told otherwise.

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


def _sum_and_deviation(rewards: npt.NDArray[np.float64]) -> tuple[float, float]:
    """What `sum()` and `std()` give, at a third of their cost: the ufuncs themselves."""
    total = np.add.reduce(rewards)
    apart = rewards - total / len(rewards)
    return float(total), math.sqrt(np.add.reduce(apart * apart) / len(rewards))


def seed_stream(seed: int | None) -> Iterator[int]:
    """Seeds for resets, `0 <= s < 2**31`, none twice in 2**31; the same for the same `seed`, fresh ones for None.

    31 bits, because many simulators take no more.

    >>> a, b = seed_stream(7), seed_stream(7)
    >>> [next(a) for _ in range(3)] == [next(b) for _ in range(3)]
    True
    """
    at, stride = (int(i) for i in np.random.default_rng(seed).integers(0, 2**31, 2))
    while True:
        yield at
        at = (at + (stride | 1)) % 2**31  # an odd stride visits all residues
