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
    """Every `count`-th episode, from number `index` on."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if require_number("index", self.index, 0) >= require_number("count", self.count, 1):
            raise PlanError(f"expected an index below count={self.count}, got {self.index}")

    def check(self, shareable: bool) -> None:
        """Raise `PlanError` for several learners of a replay whose episodes cannot be shared."""
        if self.count > 1 and not shareable:
            raise PlanError(
                "expected a path and a sampler of single episodes for several parts; in memory, and for groups of "
                "completions, give each learner a replay with its own collectors and seed"
            )

    def has(self, number: int) -> bool:
        """Return whether an episode belongs to this learner."""
        return number % self.count == self.index

    def key(self, seed: int) -> np.uint64:
        """Return the key of the random bits of this learner."""
        return key_of(seed) if self.count == 1 else key_of(int(key_of(seed)) ^ self.index)


def require_number(name: str, value: Any, least: int) -> int:
    """Return an argument as an integer."""
    if isinstance(value, bool) or not is_integer(value) or value < least or value >= 1 << 64:
        raise PlanError(f"expected {name} to be an integer of at least {least}, got {value!r}")
    return int(value)
