"""`ChunkUnpacker`: selects positions of a chunk by arithmetic on its number and its number of uses."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import offsets_of
from penstock.errors import PlanError
from penstock.kernels.permute import MIX_1, MIX_2, mix
from penstock.plan.weights import Weight
from penstock_live.kernels.draws import shuffle_places
from penstock_live.seeds import chances, key

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

FINE = 1 << 32  # steps between two positions at which a chunk's first use may begin
WORD = (1 << 64) - 1


class ChunkUnpacker:
    """Selects other positions of a chunk at each use. Either `rate` or `count` is required.

    * `rate` p, above 0 and at most 1: each use takes the next `p * n` positions (on average exactly) of a random cyclic
      order. So `1 / p` uses have each position exactly once, and no use has a position twice. Positions of a use are in
      the order of the chunk.
    * `count` k: the next `k` positions of an endless sequence, which is reshuffled after each position was taken once.
      With weights, a position of the sequence is accepted with probability `weight / largest weight`.

    Pure functions without state. Source: the unpacker of Leela Chess Zero's loader.

    Args:
        rate: Share of the positions of each use, above 0 and at most 1. The default None: `count` is given.
        count: Positions of each use, at least 1. The default None: `rate` is given.
        seed: 0 to 2^64 - 1. The default is 0.

    Raises:
        PlanError: Both or neither of `rate` and `count` are set, or the number is out of range.

    Example:
        >>> unpacker = ChunkUnpacker(rate="1/4", seed=3)
        >>> uses = [unpacker.places(number=7, use=use, n=10) for use in range(4)]
        >>> [len(places) for places in uses], sorted(np.concatenate(uses).tolist()) == list(range(10))
        ([3, 2, 3, 2], True)
        >>> ChunkUnpacker(count=3, seed=3).places(number=7, use=0, n=10).tolist()
        [2, 7, 4]
    """

    def __init__(self, *, rate: Weight | None = None, count: int | None = None, seed: int = 0) -> None:
        if (rate is None) == (count is None) or (count is not None and count < 1):
            raise PlanError(f"expected either a rate or a count of at least one, got rate={rate}, count={count}")
        self.rate = None if rate is None else Fraction(str(rate))
        if self.rate is not None and not 0 < self.rate <= 1:
            raise PlanError(f"expected a rate above 0 and at most 1, got {rate}")
        self.count = count
        self._key = key(seed, "unpacker")
        self._starts = key(seed, "unpacker starts")

    def places(self, number: int, use: int, n: int, weights: Float | None = None) -> Int:
        """Return `[k]` positions within `0 : n` for one use of chunk `number`; `weights` `[n]` go with `count` only.

        Cost: of what is taken; with weights, of all that was taken by this and earlier uses.

        Args:
            number: Number of the chunk.
            use: Number of the use, from 0.
            n: Positions of the chunk.
            weights: `[n]` weights of the positions, only with `count`. The default None: all weigh the same.

        Raises:
            PlanError: The weights have another length, are negative or are not finite.
        """
        return self.several(number, use, 1, n, weights)[0]

    def several(self, number: int, use: int, uses: int, n: int, weights: Float | None = None) -> tuple[Int, Int]:
        """Return the `places` of `uses` uses from `use` on: all `[k]`, and the offsets `[uses + 1]` of the uses.

        Cost: about the cost of one use.

        Args:
            number: Number of the chunk.
            use: Number of the first use.
            uses: Number of uses.
            n: Positions of the chunk.
            weights: As for `places`.

        Raises:
            PlanError: Weights are passed without `count`, or as for `places`.

        Example:
            >>> unpacker = ChunkUnpacker(count=2, seed=1)
            >>> places, ends = unpacker.several(number=3, use=4, uses=2, n=9)
            >>> ends.tolist(), places.tolist() == [p for use in (4, 5) for p in unpacker.places(3, use, 9).tolist()]
            ([0, 2, 4], True)
        """
        if n == 0:
            return np.zeros(0, np.int64), np.zeros(uses + 1, np.int64)
        if self.rate is not None:
            if weights is not None:
                raise PlanError("expected no weights with a rate: it takes every position in its turn")
            return self._circle(number, use, uses, n, self.rate)
        assert self.count is not None
        begin, k = use * self.count, uses * self.count
        if weights is None:
            places = self._shuffled(number, n, begin, k)
        else:
            places = self._weighted(number, begin, k, _checked(weights, n))
        return places, np.minimum(np.arange(0, k + 1, self.count), len(places))

    def one_use_each(self, number: Int, use: Int, n: Int) -> tuple[Int, Int]:
        """Return the `places` of one use of each of several chunks: all `[k]`, and the offsets `[m + 1]` of the chunks.

        Cost: of what is taken, with a `rate` 2 µs a chunk more.

        Args:
            number: `[m]` int64 numbers of the chunks.
            use: `[m]` int64 numbers of the uses.
            n: `[m]` int64 positions of each chunk.

        Example:
            >>> unpacker = ChunkUnpacker(count=2, seed=1)
            >>> places, cuts = unpacker.one_use_each(np.array([3, 8]), np.array([4, 0]), np.array([9, 5]))
            >>> [places[a:b].tolist() for a, b in pairwise(cuts)] == [
            ...     unpacker.places(number=3, use=4, n=9).tolist(), unpacker.places(number=8, use=0, n=5).tolist()
            ... ]
            True
        """
        if self.rate == 1:
            cuts = offsets_of(n)
            return np.arange(cuts[-1], dtype=np.int64) - np.repeat(cuts[:-1], n), cuts
        if self.count is not None:
            begin, cuts = use * self.count, offsets_of(np.where(n > 0, self.count, 0))
        else:
            assert self.rate is not None
            uses = zip(number.tolist(), use.tolist(), n.tolist(), strict=True)
            ends = [(size, *self._cuts(chunk, turn, 1, size, self.rate)) for chunk, turn, size in uses]
            begin = np.array([first % max(size, 1) for size, first, _ in ends], np.int64)
            cuts = offsets_of([last - first for _, first, last in ends])
        out = np.empty(cuts[-1], np.int64)
        shuffle_places(self._key, number, np.maximum(n, 1), begin, self.count is not None, cuts, out)
        if self.rate is not None:
            out = out[np.lexsort((out, np.repeat(np.arange(len(number)), np.diff(cuts))))]
        return out, cuts

    def _circle(self, number: int, use: int, uses: int, n: int, rate: Fraction) -> tuple[Int, Int]:
        if rate == 1:
            return np.tile(np.arange(n), uses), np.arange(uses + 1) * n
        cuts = self._cuts(number, use, uses, n, rate)
        places = self._shuffled(number, n, cuts[0] % n, cuts[-1] - cuts[0], endless=False)
        ends = [cut - cuts[0] for cut in cuts]
        for lo, hi in pairwise(ends):
            places[lo:hi].sort()
        return places, np.array(ends)

    def _cuts(self, number: int, use: int, uses: int, n: int, rate: Fraction) -> list[int]:
        """Return where each use begins, and the last ends, in the endless cyclic order of a chunk."""
        start = _mixed(_mixed(number + int(self._starts))) >> 32  # the first draw of a key is the key, mixed
        step = n * rate.numerator * FINE
        return [((use + i) * step // rate.denominator + start) // FINE for i in range(uses + 1)]

    def _weighted(self, number: int, skipped: int, k: int, weights: Float) -> Int:
        n, largest = len(weights), weights.max()
        if largest == 0:
            return np.zeros(0, np.int64)
        accepted = [np.zeros(0, np.int64)]
        have = 0
        cycle = 0
        chunk = _of_chunk(self._key, number)
        while have < skipped + k:
            order = self._shuffled(number, n, cycle * n, n)
            chance = chances(chunk, np.arange(cycle * n, cycle * n + n))
            accepted.append(order[chance * largest < weights[order]])
            have, cycle = have + len(accepted[-1]), cycle + 1
        return np.concatenate(accepted)[skipped : skipped + k]

    def _shuffled(self, number: int, n: int, begin: int, k: int, *, endless: bool = True) -> Int:
        """`[k]` positions of a chunk, from place `begin` on of the sequence of shuffles, or of the first one alone."""
        one, out = np.array([[number], [n], [begin]]), np.empty(k, np.int64)
        shuffle_places(self._key, one[0], one[1], one[2], endless, np.array([0, k]), out)
        return out


def one_use(places: Int) -> tuple[Int, Int]:
    """Return the places of one use in the form of `several`."""
    return places, np.array([0, len(places)])


def _mixed(z: int) -> int:
    """Return `mix` of one number: an array of one takes ten times as long."""
    z &= WORD
    z = (z ^ (z >> 30)) * MIX_1 & WORD
    z = (z ^ (z >> 27)) * MIX_2 & WORD
    return z ^ (z >> 31)


def _of_chunk(key: np.uint64, number: int) -> np.uint64:
    return mix(np.array([number], np.uint64) + key)[0]


def _checked(weights: Float, n: int) -> Float:
    weights = np.asarray(weights, np.float64)
    if weights.shape != (n,) or not np.isfinite(weights).all() or weights.min() < 0:
        raise PlanError(f"expected {n} weights that are finite and not negative, got {weights.shape} {weights[:5]}")
    return weights
