"""How many samples of each source a mix aims at: straight lines between knots, in whole multiples of 2^-64."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray

ONE = 1 << 64
"""One sample. Integers of Python, so that neither long courses nor many stretches add up rounding errors."""


@dataclass(frozen=True, eq=False)
class PickTargets:
    """The number of picks that each source should have had after `k` picks, which are whole numbers only at times.

    `knots[M]` ascends from 0; `counts[M, D]` are the targets there and add up to the knot; `rates[D]` is what each pick
    adds after the last knot, and adds up to one (or is zero, where the mix ends there). `touched[M, D]` says which
    sources change their pace against the others at a knot. After knot `m`, each turn of `sum(weights[m])` picks adds
    exactly `weights[m]`, up to the next knot.

    >>> targets = PickTargets.of([(0, (Fraction(1, 2), Fraction(1, 2))), (4, (Fraction(1), Fraction(0)))])
    >>> (targets.at(10) // ONE).tolist()
    [8, 2]
    """

    knots: tuple[int, ...]
    counts: AnyArray
    rates: AnyArray
    touched: BoolArray
    weights: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, stretches: Sequence[tuple[int, Sequence[Fraction]]]) -> PickTargets:
        """Shares that hold from a position on; the first position is 0."""
        knots = [position * ONE for position, _ in stretches]
        rates = [_scaled(shares) for _, shares in stretches]
        counts = [rates[0] * 0]
        for (begin, _), (end, _), rate in zip(stretches, stretches[1:], rates, strict=False):
            counts.append(counts[-1] + rate * (end - begin))
        table = np.stack(counts)
        weights = tuple(tuple(_whole(shares)) for _, shares in stretches)
        return cls(tuple(knots), table, rates[-1], np.ones(table.shape, np.bool_), weights)

    @classmethod
    def draining(cls, shares: Sequence[Fraction], sizes: Sequence[int]) -> PickTargets:
        """Every source falls out of the mix when its size is reached, and the others share its part.

        On a clock that runs by `1 / (sum of the shares left)` a pick, each source keeps its own pace to its end. Then
        the knots are the ends, and need not be whole picks.
        """
        paces = [max((share.numerator << 128) // share.denominator, share > 0) for share in shares]
        whole = [size if pace else 0 for size, pace in zip(sizes, paces, strict=True)]
        ends = [Fraction(size, pace) if pace else Fraction(0) for size, pace in zip(whole, paces, strict=True)]
        clock = sorted({Fraction(0), *ends})
        last = np.searchsorted(np.array(clock, object), np.array(ends, object))
        now = np.arange(len(clock))[:, None]
        counts = np.stack([np.array(paces, object) * (t.numerator * ONE) // t.denominator for t in clock])
        counts = np.where(now >= last, np.array(whole, object) * ONE, counts)
        parts = _whole(shares)
        weights = tuple(_reduced(np.where(row < last, parts, 0).tolist()) for row in now)
        return cls(tuple(counts.sum(axis=1).tolist()), counts, counts[0] * 0, now == last, weights)

    @property
    def picked(self) -> list[int]:
        """The sources that are ever picked."""
        return np.flatnonzero((self.counts[-1] > 0) | (self.rates > 0)).tolist()

    def at(self, k: int) -> AnyArray:
        """`[D]` targets after `k` picks."""
        now = int(k) * ONE
        m = bisect_right(self.knots, now) - 1
        return self.counts[m] + self._rise(m, now - self.knots[m])

    def reach(self, source: int, count: int) -> int | None:
        """After how many picks the target of a source is at least `count`; None if that never comes."""
        wanted, column = int(count) * ONE, self.counts[:, source].tolist()
        for m, (low, high) in enumerate(pairwise(column)):
            if low < wanted <= high:
                width = self.knots[m + 1] - self.knots[m]
                return _up(self.knots[m] + _up((wanted - low) * width, high - low), ONE)
        rate = self.rates[source]
        if wanted <= column[0]:
            return 0
        return _up(self.knots[-1] + _up((wanted - column[-1]) * ONE, rate), ONE) if rate else None

    def _rise(self, m: int, since: int) -> AnyArray:
        """Counts added within `since` after knot `m`."""
        if m + 1 == len(self.knots):
            return self.rates * since // ONE
        return (self.counts[m + 1] - self.counts[m]) * since // (self.knots[m + 1] - self.knots[m])


def _scaled(shares: Sequence[Fraction]) -> AnyArray:
    """Shares in units of 2^-64, that add up to one: the shares that lose most by rounding get one more."""
    fine = np.array([share.numerator * ONE * ONE // share.denominator for share in shares], object)
    rate = fine // ONE
    rate[np.argsort(rate * ONE - fine, kind="stable")[: ONE - int(rate.sum())]] += 1
    return rate


def _whole(shares: Sequence[Fraction]) -> AnyArray:
    """`[D]` least whole numbers in the ratio of the shares."""
    common = lcm(*(share.denominator for share in shares))
    return np.array(_reduced([share.numerator * (common // share.denominator) for share in shares]), object)


def _reduced(numbers: Sequence[int]) -> tuple[int, ...]:
    """Without common factors."""
    factor = max(gcd(*numbers), 1)
    return tuple(number // factor for number in numbers)


def _up(a: int, b: int) -> int:
    """`a / b`, rounded up."""
    return -(-a // b)
