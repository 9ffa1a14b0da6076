"""An order whose counts stay within one sample of their targets, stored as a table.

Each pick of a source has an interval of places in which it may stand. The places are filled in order, each with the
pick that may stand there and whose interval ends first. Jackson's rule says that this meets all intervals if any order
does, and Tijdeman ("The chairman assignment problem", 1980) that an order exists for the intervals in use.

The order of constant shares repeats after their common period. The table stores each repeating stretch once (`KEPT`
periods are planned, and one of them repeats), so it has at most `LIMIT` picks. Longer orders use `SplitTree`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.core.arrays import IntArray, UInt32Array
from penstock.core.ragged import offsets_of
from penstock.errors import PlanError
from penstock.kernels.mixing import earliest_deadline, mix_table
from penstock.plan.targets import ONE, PickTargets

LIMIT = 1 << 20
"""Picks in the longest table; it takes 8 bytes a pick."""

KEPT = 5
"""Periods of a long stretch that are planned."""

ENDLESS = 1 << 62

UNIT = 1 << 22
"""Parts of a sample in which a table counts: a square of `LIMIT` of them still fits 64 bits."""


class Order(ABC):
    """Which source is picked when: a pure function of the pick's number."""

    bound: float
    """No count is ever further from its target, to a thousandth of a sample up to 2^53 picks, and to twice this up to
    2^62. That is for rounding in trees; tables are exact."""

    @abstractmethod
    def picks(self, k: IntArray, source: IntArray, rank: IntArray) -> None:
        """Fill `[n]` source, and how many picks it had before, of picks `k >= 0`."""

    @abstractmethod
    def counts(self, k: int) -> IntArray:
        """`[D]` picks of each source among the first `k`."""

    @abstractmethod
    def place(self, source: int, j: int) -> int:
        """The number of the pick in which a source is picked for the `j`-th time, from 0; it must come."""

    def places(self, source: int, j: IntArray) -> IntArray:
        """`[n]` what `place` gives for each."""
        return np.array([self.place(source, number) for number in j.tolist()], np.int64)


class FairTable(Order):
    """A table of picks, of which stretches repeat.

    The j-th pick of a source may stand where its target is within `j + e` to `j + 1 - e` samples (before the pick),
    `e = 1 / (2 D - 2)`; filling each place with the pick that is allowed there and due first meets all of these. So
    counts stay within `1 - e` of their targets: the best there is for any `D`. Shares may change on the way. Source:
    Tijdeman, "The chairman assignment problem" (1980); for the rule, Jackson's on unit jobs with release and due dates.

    Constant shares repeat after a period, from zero to zero. Where shares change, the debt crosses the seam, and
    picks before it look ahead. Between seams the order soon repeats too: of a long stretch `KEPT` periods are planned,
    one that gave each source its exact part is repeated, and nothing changes for what follows.

    Cost: 0.4 us a pick in the table to build; memory 8 bytes a pick, and as much again for `counts` and `place`.
    """

    def __init__(self, knots: IntArray, target: IntArray) -> None:
        """The order of targets `[B, D]` in `UNIT`s at picks `knots[B]`, from 0 to the length of the table."""
        used = max(int(np.count_nonzero(target[-1])), 2)
        slack = UNIT // (2 * used - 2)
        # What targets were rounded by, a unit for each piece, is part of the bound.
        self.bound = 1 - (slack - (len(knots) - 2)) / UNIT
        self.table = _table(knots, target, slack)
        self._total = np.bincount(self.table[:, 0], minlength=target.shape[1])
        self._place_segments([(0, 0, ENDLESS, self._total * 0, self._total * 0)])

    @classmethod
    def repeating(cls, weights: Sequence[int]) -> FairTable:
        """The order of constant weights, which repeats after their sum."""
        period = sum(weights)
        table = cls(np.array([0, period]), np.array([[0] * len(weights), weights], np.int64) * UNIT)
        table._place_segments([(0, 0, period, table._total * 0, table._total)])
        return table

    @classmethod
    def of(cls, targets: PickTargets, length: int | None) -> FairTable | None:
        """The order of the first `length` picks, or of all; None where it does not fit into a table."""
        folds = _folds(targets, length)
        picks = folds[-1].end
        if picks > LIMIT or len(targets.knots) * 4 > UNIT // (2 * len(targets.picked)):
            return None
        knots, target = _points(targets, folds)
        table = cls(knots, target)
        return table if table._unfold(folds) else None

    @override
    def picks(self, k: IntArray, source: IntArray, rank: IntArray) -> None:
        mix_table(k, self.table, self.segments, self.base, self.step, source, rank)

    def counts(self, k: int) -> IntArray:
        """What came before the segment, whole turns, and a search in the places of each source."""
        g = int(np.searchsorted(self.segments[:, 0], k, side="right")) - 1
        begin, first, period = self.segments[g].tolist()
        turn, rest = divmod(k - begin, period)
        return self.base[g] + turn * self.step[g] + self._before(first + rest)

    @override
    def place(self, source: int, j: int) -> int:
        return int(self.places(source, np.array([j]))[0])

    @override
    def places(self, source: int, j: IntArray) -> IntArray:
        begun = self._begun[:, source]
        g = begun.searchsorted(j, side="right") - 1
        begin, first, period = self.segments[g].T
        step = self.step[g, source]
        turn = np.where(step > 0, (j - begun[g]) // np.maximum(step, 1), 0)
        places, cuts = self._places
        return begin + turn * period + places[cuts[source] + j - turn * step - self.base[g, source]] - first

    def _place_segments(self, segments: Sequence[tuple[int, int, int, IntArray, IntArray]]) -> None:
        """Segments as the kernel reads them: begin, place, period, base, step."""
        self.segments = np.array([segment[:3] for segment in segments], np.int64)
        self.base, self.step = (np.stack([segment[i] for segment in segments]).astype(np.int64) for i in (3, 4))

    def _unfold(self, folds: Sequence[Fold]) -> bool:
        """Repeat a period of each stretch that has been shortened; False where none gave the exact parts."""
        shift = 0
        base = self._total * 0
        none = self._total * 0
        segments: list[tuple[int, int, int, IntArray, IntArray]] = [(0, 0, ENDLESS, none, none)]
        for fold in folds:
            if fold.left_out == 0:
                continue
            starts = range(fold.begin, fold.begin + (KEPT - 1) * fold.period + 1, fold.period)
            exact = (s for s in starts if (self._parts(s, s + fold.period) == fold.weights).all())
            start = next(exact, None)
            if start is None:
                return False
            segments.append((start + shift, start, fold.period, base, np.array(fold.weights)))
            if fold.left_out < ENDLESS:
                shift, base = shift + fold.left_out * fold.period, base + fold.left_out * np.array(fold.weights)
                segments.append((start + shift + fold.period, start + fold.period, ENDLESS, base, none))
        self._place_segments(segments)
        return True

    def _parts(self, begin: int, end: int) -> IntArray:
        return np.bincount(self.table[begin:end, 0], minlength=len(self._total))

    def _before(self, place: int) -> IntArray:
        """`[D]` picks in the first `place` places."""
        places, cuts = self._places
        return np.array([bisect_left(places, place, lo, hi) - lo for lo, hi in pairwise(cuts)], np.int64)

    @cached_property
    def _places(self) -> tuple[IntArray, list[int]]:
        """Places in the table, source after source, and where each source begins in them."""
        return np.argsort(self.table[:, 0], kind="stable"), offsets_of(self._total).tolist()

    @cached_property
    def _begun(self) -> IntArray:
        """`[G, D]` picks of each source before each segment."""
        return self.base + np.stack([self._before(int(place)) for place in self.segments[:, 1]])


class Fold(NamedTuple):
    """A stretch of constant weights in the table: places `begin : end`, from the first whole pick on, and how many
    periods of it were left out, or `ENDLESS`."""

    begin: int
    end: int
    period: int
    left_out: int
    weights: tuple[int, ...]


def _folds(targets: PickTargets, length: int | None) -> list[Fold]:
    """The stretches up to `length`, each with at most `KEPT` periods and a rest."""
    folds: list[Fold] = []
    out = 0
    for knot, after, weights in zip(targets.knots, [*targets.knots[1:], None], targets.weights, strict=True):
        begin, period = -(-knot // ONE), max(sum(weights), 1)
        end = length if after is None else after // ONE if length is None else min(after // ONE, length)
        if length is not None and begin >= length:
            folds.append(Fold(length - out, length - out, period, 0, weights))
            break
        if end is None:
            folds.append(Fold(begin - out, begin - out + KEPT * period, period, ENDLESS, weights))
            break
        left_out = max((end - begin) // period - KEPT, 0)
        folds.append(Fold(begin - out, end - out - left_out * period, period, left_out, weights))
        out += left_out * period
    return folds


def _points(targets: PickTargets, folds: Sequence[Fold]) -> tuple[IntArray, IntArray]:
    """Whole picks at which the targets of the folded stretches may bend, and the targets there in `UNIT`s."""
    points: dict[int, Any] = {}
    out, lost = 0, targets.counts[0] * 0
    for fold in folds:
        whole = max(fold.end - fold.begin, 0) // fold.period
        for place in (fold.begin, fold.begin + whole * fold.period, fold.end if fold.end > fold.begin else fold.begin):
            back = 0 if fold.left_out == ENDLESS or place == fold.begin else fold.left_out
            points[place] = targets.at(place + out + back * fold.period) - lost - back * _many(fold) * ONE
        if fold.left_out < ENDLESS:
            out, lost = out + fold.left_out * fold.period, lost + fold.left_out * _many(fold) * ONE
    times = sorted(points)
    rises = [_rounded(points[b] - points[a], (b - a) * UNIT) for a, b in pairwise(times)]
    return np.array(times), np.cumsum([np.zeros(len(lost), np.int64), *rises], axis=0)


def _many(fold: Fold) -> Any:
    return np.array(fold.weights, object)


def _table(knots: IntArray, target: IntArray, slack: int) -> UInt32Array:
    """`[P, 2]` source and rank of each place."""
    jobs = np.maximum((target[-1] - slack) // UNIT + 1, 0)
    source = np.repeat(np.arange(len(jobs)), jobs)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
    low = [
        _reached(knots, column, np.arange(n, dtype=np.int64) * UNIT + slack) - 1
        for column, n in zip(target.T, jobs, strict=True)
    ]
    high = [
        _reached(knots, column, np.arange(1, n + 1, dtype=np.int64) * UNIT - slack + 1) - 1
        for column, n in zip(target.T, jobs, strict=True)
    ]
    release, deadline = np.concatenate(low), np.concatenate(high)
    order = np.argsort(release, kind="stable")
    place = np.empty(int(knots[-1]), np.int64)
    late = earliest_deadline(release[order], deadline[order], place)
    if late >= 0:
        raise PlanError(f"expected an order within a sample of these shares, got none at pick {late}; please report it")
    chosen = order[place]
    return np.stack([source[chosen], rank[chosen]], axis=1).astype(np.uint32)


def _reached(knots: IntArray, column: IntArray, wanted: IntArray) -> IntArray:
    """After how many picks the targets `column[B]` are `wanted[n] > 0` or more; one more than there are if never."""
    b = np.searchsorted(column, wanted)
    never = b == len(knots)
    b = np.where(never, 1, b)
    width, rise = knots[b] - knots[b - 1], np.maximum(column[b] - column[b - 1], 1)
    return np.where(never, knots[-1] + 1, knots[b - 1] - (column[b - 1] - wanted) * width // rise)


def _rounded(rise: npt.NDArray[np.object_], total: int) -> IntArray:
    """`[D]` rises in `UNIT`s that add up to `total`: the rises that lose most by rounding get one more."""
    units, lost = rise * UNIT // ONE, rise * UNIT % ONE
    left = total - int(units.sum())
    units[np.argsort(-lost, kind="stable")[:left]] += 1
    return units.astype(np.int64)
