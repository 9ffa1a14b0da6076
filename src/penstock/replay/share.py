"""`EpisodeShare`: which episodes of a folder one of several learners has in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.narrowing import is_integer
from penstock.errors import PlanError
from penstock.replay.sum_tree import key_of


@dataclass(frozen=True)
class EpisodeShare:
    """Every `count`-th episode, from number `index` on.

    Args:
        index: Number of this learner.
        count: Number of learners.

    Raises:
        PlanError: The index is not below `count`.

    Example:
        >>> share = EpisodeShare(1, 3)
        >>> [number for number in range(9) if share.has(number)]
        [1, 4, 7]
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if require_number("index", self.index, 0) >= require_number("count", self.count, 1):
            raise PlanError(f"expected an index below count={self.count}, got {self.index}")

    def check(self, shareable: bool) -> None:
        """Raise `PlanError` for several learners of a replay whose episodes cannot be shared.

        Args:
            shareable: Whether it has a folder, and draws single episodes.
        """
        if self.count > 1 and not shareable:
            raise PlanError(
                "expected a path and a sampler of single episodes for several parts; in memory, and for groups of "
                "completions, give each learner a replay with its own collectors and seed"
            )

    def has(self, number: int) -> bool:
        """Return whether an episode belongs to this learner.

        Args:
            number: Number of the episode in the folder.
        """
        return number % self.count == self.index

    def key(self, seed: int) -> np.uint64:
        """Return the key of the random bits of this learner.

        Args:
            seed: 0 to 2^64 - 1.
        """
        return key_of(seed) if self.count == 1 else key_of(int(key_of(seed)) ^ self.index)


def require_number(name: str, value: Any, least: int) -> int:
    """Return an argument as an integer.

    Args:
        name: Name of the argument.
        value: Its value.
        least: Least value.

    Raises:
        PlanError: The value is no integer, is below `least`, or has more than 64 bits.
    """
    if isinstance(value, bool) or not is_integer(value) or value < least or value >= 1 << 64:
        raise PlanError(f"expected {name} to be an integer of at least {least}, got {value!r}")
    return int(value)
