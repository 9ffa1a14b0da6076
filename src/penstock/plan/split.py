"""`Split`: one part of the episodes, such as a training set, by a seeded draw."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor, isfinite
from typing import Any

import numpy as np

from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.plan.base import EpisodeTransform, settle
from penstock.plan.episodes import Episodes


@dataclass(frozen=True)
class Split(EpisodeTransform):
    """Part number `part` of the episodes, drawn without overlap; the parts of one seed hold every episode once.

    `sizes` are fractions that add up to 1 (the parts differ from their exact share by less than one episode; the
    largest remainders are rounded up), or integers, numbers of episodes that add up to no more than there are.
    A part keeps the order of its episodes. Which episode goes where depends on the seed and the number of episodes.

    Raises `PlanError` for sizes that are none of both, or a part that is not there.
    Cost: a permutation of the episodes.

    >>> import numpy as np
    >>> from penstock.core.spec import Field, Spec
    >>> from penstock.formats.memory import MemorySource
    >>> spec = Spec({"rewards": Field(np.dtype("f4"))})
    >>> episodes = Episodes.of(MemorySource(spec, {"rewards": np.zeros(10, "f4")}, np.arange(11)))
    >>> train, test = (Split((0.8, 0.2), part=part, seed=1).choose(episodes).index for part in (0, 1))
    >>> len(train), len(test), sorted({*train.tolist(), *test.tolist()}) == list(range(10))
    (8, 2, True)
    """

    sizes: tuple[float, ...] | tuple[int, ...] = (0.9, 0.1)
    part: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        given: tuple[Any, ...] = tuple(self.sizes)
        if any(isinstance(s, bool) or not isinstance(s, (int, float, np.number)) for s in given) or not given:
            raise PlanError(f"expected Split sizes to be fractions or numbers of episodes, got {self.sizes!r}")
        whole = all(isinstance(s, (int, np.integer)) for s in given)
        sizes = tuple(int(s) if whole else float(s) for s in given)
        if not all(isfinite(s) and s >= 0 for s in sizes) or not (whole or abs(sum(sizes) - 1) < 1e-9):
            raise PlanError(f"expected Split sizes of 0 or more, fractions adding up to 1, got {self.sizes!r}")
        object.__setattr__(self, "sizes", sizes)
        settle(self, "part", 0, len(sizes) - 1)
        settle(self, "seed", 0, (1 << 64) - 1)

    def choose(self, episodes: Episodes) -> Episodes:
        """The episodes of the part."""
        n = len(episodes)
        counts = self.counts(n)
        if sum(counts) > n:
            raise PlanError(f"expected {self!r} to ask for at most {n} episodes, got {sum(counts)}")
        e = np.arange(n)
        place = permute(e, np.full(n, n), np.zeros(n, np.int64), self.seed)
        begin = sum(counts[: self.part])
        return episodes.take(e[(place >= begin) & (place < begin + counts[self.part])], repr(self))

    def counts(self, n: int) -> list[int]:
        """How many of `n` episodes each part has.

        >>> Split((0.5, 0.25, 0.25)).counts(7)
        [3, 2, 2]
        """
        if all(isinstance(size, int) for size in self.sizes):
            return [int(size) for size in self.sizes]
        exact = [Fraction(size) / sum(map(Fraction, self.sizes)) * n for size in self.sizes]
        counts = [floor(share) for share in exact]
        by_remainder = sorted(range(len(counts)), key=lambda i: (counts[i] - exact[i], i))
        for i in by_remainder[: n - sum(counts)]:
            counts[i] += 1
        return counts
