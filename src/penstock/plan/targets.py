"""How many samples of each source a mix aims at: straight lines between knots, in whole multiples of 2^-64.

Computes: after `k` picks, the share of each source, as Python integers in units of 2^-64 of a sample. A knot is a
number of picks at which shares change: a stretch begins, or a source reaches its limit and leaves.

Invariants: the targets at a knot add up to the knot. The rates after the last knot add up to one pick, or to zero if
the mix ends there. So no rounding error adds up, however many stretches there are, and all machines agree.

Error: a rate is a share rounded to 2^-64. The units that rounding loses go to the sources that lost most, so that the
sum is exact. In a stretch without limits, a target after `k` picks is off its share by less than `k + 1` units.

Why this way: `reach` inverts the line between two knots by division, so finding the pick at which a source is used up
needs no search over picks.
"""

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
        weights = tuple(tuple(_whole_weights(shares)) for _, shares in stretches)
        return cls(tuple(knots), table, rates[-1], np.ones(table.shape, np.bool_), weights)

    @classmethod
    def limited(cls, stretches: Sequence[tuple[int, Sequence[Fraction]]], limits: Sequence[int | None]) -> PickTargets:
        """Shares that hold from a position on; a source leaves the mix at its limit, and the others share its part.

        On a clock that runs by `1 / (sum of the shares left)` a pick, each source keeps its own pace to its end or to
        the end of the stretch. Then the knots are the ends, and need not be whole picks. Where all sources with a share
        have left, the mix ends.
        """
        knots: list[int] = []
        rows: list[AnyArray] = []
        touched: list[BoolArray] = []
        weights: list[tuple[int, ...]] = []
        base = np.array([0] * len(limits), object)
        rates = base * 0
        for (_, shares), cut in zip(stretches, [*(start for start, _ in stretches[1:]), None], strict=True):
            exact = ((share.numerator << 128) // share.denominator for share in shares)
            paces = np.array([max(pace, share > 0) for pace, share in zip(exact, shares, strict=True)], object)
            ends = _ends(base, paces, limits)
            clock = sorted({Fraction(0), *(end for end in ends if end is not None)})
            place: dict[Fraction | None, int] = {**{time: m for m, time in enumerate(clock)}, None: len(clock)}
            last = np.array([place[end] for end in ends])
            full = np.array([0 if limit is None else limit for limit in limits], object) * ONE
            for m, time in enumerate(clock):
                counts = base + paces * (time.numerator * ONE) // time.denominator
                counts = np.where((m >= last) & (paces > 0), full, np.where(paces > 0, counts, base))
                if cut is not None and counts.sum() >= cut * ONE:
                    break
                left = np.where(m < last, paces, 0)
                knots.append(int(counts.sum()))
                rows.append(counts)
                touched.append((last == m) | (m == 0 and len(stretches) > 1))
                weights.append(_reduced(np.where(left > 0, _whole_weights(shares), 0).tolist()))
                rates = left
            if cut is None or not rates.any():
                break
            base = rows[-1] + _parts(rates, cut * ONE - knots[-1])
        return cls(tuple(knots), np.stack(rows), _parts(rates, ONE), np.stack(touched), tuple(weights))

    @property
    def end(self) -> int | None:
        """Number of whole picks after which all sources have left, or None."""
        return None if self.rates.any() else self.knots[-1] // ONE

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


def _ends(base: AnyArray, paces: AnyArray, limits: Sequence[int | None]) -> list[Fraction | None]:
    """When each source reaches its limit on the clock of its pace: at once without a pace, None without a limit."""
    ends: list[Fraction | None] = []
    for begin, pace, limit in zip(base.tolist(), paces.tolist(), limits, strict=True):
        if not pace:
            ends.append(Fraction(0))
        else:
            ends.append(None if limit is None else Fraction(max(limit * ONE - begin, 0), pace * ONE))
    return ends


def _parts(paces: AnyArray, total: int) -> AnyArray:
    """`total` in whole parts in the ratio of the paces: those that lose most by rounding get one more."""
    among = int(paces.sum())
    if not among:
        return paces * 0
    parts = paces * total // among
    parts[np.argsort(parts * among - paces * total, kind="stable")[: total - int(parts.sum())]] += 1
    return parts


def _scaled(shares: Sequence[Fraction]) -> AnyArray:
    """Shares in units of 2^-64, that add up to one: the shares that lose most by rounding get one more."""
    fine = np.array([share.numerator * ONE * ONE // share.denominator for share in shares], object)
    rate = fine // ONE
    rate[np.argsort(rate * ONE - fine, kind="stable")[: ONE - int(rate.sum())]] += 1
    return rate


def _whole_weights(shares: Sequence[Fraction]) -> AnyArray:
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
