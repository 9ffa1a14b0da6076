"""The places where a user's function takes part in recording, and what it is handed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
    n, total = len(rewards), np.add.reduce(rewards)  # the ufuncs themselves: `std()` alone costs more than all of this
    with np.errstate(invalid="ignore", over="ignore"):  # rewards may be infinite where that was allowed
        deviation = rewards - total / n
        variance = np.add.reduce(deviation * deviation) / n
    return {
        "rewards_sum": float(total),
        "rewards_mean": float(total / n),
        "rewards_std": math.sqrt(variance),
        "rewards_max": float(np.maximum.reduce(rewards)),
        "rewards_min": float(np.minimum.reduce(rewards)),
    }


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
