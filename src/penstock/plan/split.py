"""`Split`: one part of a random split of the episodes, such as a training set."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor, isfinite
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.frozen import set_fields
from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.plan.episodes import Episodes
from penstock.plan.transform import EpisodeTransform, require_int


@dataclass(frozen=True)
class Split(EpisodeTransform):
    """Choose one part of a random split of the episodes. The parts of one seed have every episode once.

    A part keeps the order of its episodes. The split depends on the seed and the number of episodes. What exclusions of
    spans leave of one stored episode counts as one episode, and goes to one part. Cost: a permutation of the episodes.

    Args:
        sizes: Fractions that add up to 1, or numbers of episodes that add up to at most all. A part with a fraction
            differs from its exact share by less than one episode; the largest remainders are rounded up. The default is
            `(0.9, 0.1)`.
        part: Number of the part to choose. The default is 0.
        seed: 0 to 2^64 - 1. The default is 0.

    Raises:
        PlanError: The sizes are neither fractions nor integers, there are too few episodes, or there is no such part.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.zeros(10)}, lengths=[1] * 10)
        >>> train, test = (data.apply(Split((0.8, 0.2), part, seed=1)) for part in (0, 1))
        >>> len(train), len(test), sorted([*train.episodes.index, *test.episodes.index]) == list(range(10))
        (8, 2, True)
    """

    sizes: tuple[float, ...] | tuple[int, ...] = (0.9, 0.1)
    part: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        parts: tuple[Any, ...] = tuple(self.sizes)
        if any(isinstance(s, bool) or not isinstance(s, (int, float, np.number)) for s in parts) or not parts:
            raise PlanError(f"expected Split sizes to be fractions or numbers of episodes, got {self.sizes!r}")
        whole = all(isinstance(s, (int, np.integer)) for s in parts)
        sizes = tuple(int(s) if whole else float(s) for s in parts)
        if not all(isfinite(s) and s >= 0 for s in sizes) or not (whole or abs(sum(sizes) - 1) < 1e-9):
            raise PlanError(f"expected Split sizes of 0 or more, fractions adding up to 1, got {self.sizes!r}")
        set_fields(self, sizes=sizes)
        require_int(self, "part", 0, len(sizes) - 1)
        require_int(self, "seed", 0, (1 << 64) - 1)

    @override
    def choose(self, episodes: Episodes) -> Episodes:
        stored = np.arange(len(episodes))
        if episodes.first_step is not None:  # parts of one stored episode stay together
            stored = np.unique(np.stack([episodes.source, episodes.index]), axis=1, return_inverse=True)[1].reshape(-1)
        n = int(stored.max(initial=-1)) + 1
        counts = self.counts(n)
        if sum(counts) > n:
            raise PlanError(f"expected {self!r} to ask for at most {n} episodes, got {sum(counts)}")
        place = permute(stored, np.full(len(stored), n), np.zeros(len(stored), np.int64), self.seed)
        begin = sum(counts[: self.part])
        return episodes.take(np.flatnonzero((place >= begin) & (place < begin + counts[self.part])), repr(self))

    def counts(self, n: int) -> list[int]:
        """Return the number of episodes of each part.

        Args:
            n: Number of all episodes.

        Example:
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
