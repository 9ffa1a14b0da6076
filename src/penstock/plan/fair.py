"""An order with every count within one sample of its target, kept as a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import offsets_of
from penstock.errors import PlanError
from penstock.kernels.dispatch import kernels
from penstock.plan.targets import ONE, Targets

Int = npt.NDArray[np.int64]
Table = npt.NDArray[np.uint32]

LIMIT = 1 << 20
"""Picks in the longest table; it takes 8 bytes a pick."""

UNIT = 1 << 22
"""Parts of a sample in which a table counts: a square of `LIMIT` of them still fits 64 bits."""


class Order(ABC):
    """Which source is picked when: a pure function of the pick's number."""

    bound: float
    """No count is ever this far from its target, up to 2^53 picks (for trees, half as much more at 2^62)."""

    @abstractmethod
    def picks(self, k: Int, source: Int, rank: Int) -> None:
        """Fill `[n]` source, and how many picks it had before, of picks `k >= 0`."""

    @abstractmethod
    def counts(self, k: int) -> Int:
        """`[D]` picks of each source among the first `k`."""

    @abstractmethod
    def place(self, source: int, j: int) -> int:
        """The number of the pick in which a source is picked for the `j`-th time, from 0; it must come."""


class FairTable(Order):
    """A table of `P` picks, over and over (or once, where a mix is no longer).

    The j-th pick of a source may stand where its target lies within `j + e` to `j + 1 - e` samples (before the pick),
    `e = 1 / (2 D - 2)`; filling each place with the pick that is allowed there and due first meets all of these. So
    counts stay within `1 - e` of their targets: the best there is for any `D`. Shares may change on the way. Source:
    Tijdeman, "The chairman assignment problem" (1980); for the rule, Jackson's on unit jobs with release and due dates.
    Cost: 50 ns a pick to build; memory 8 bytes a pick, and as much again for `place`.
    """

    def __init__(self, at: Int, target: Int) -> None:
        """Targets `[B, D]` in `UNIT`s at picks `at[B]`, from 0 to the length of the table."""
        used = max(int(np.count_nonzero(target[-1])), 2)
        slack = UNIT // (2 * used - 2)
        self.table = _table(at, target, slack)
        self.step = np.bincount(self.table[:, 0], minlength=target.shape[1])
        # What shares were rounded by, a unit for each stretch, is part of the bound.
        self.bound = 1 - (slack - (len(at) - 2)) / UNIT

    @classmethod
    def repeating(cls, weights: Sequence[int]) -> FairTable:
        """The order of whole-numbered weights, which repeats after their sum."""
        period = sum(weights)
        return cls(np.array([0, period]), np.array([[0] * len(weights), weights], np.int64) * UNIT)

    @classmethod
    def once(cls, targets: Targets, length: int) -> FairTable:
        """The order of the first `length` picks."""
        whole = {edge for knot in targets.knots for edge in (knot // ONE, -(-knot // ONE)) if edge < length}
        at = sorted(whole | {0, length})
        exact = [targets.at(k) for k in at]
        rises = [
            _rounded(high - low, (b - a) * UNIT)
            for low, high, a, b in zip(exact[:-1], exact[1:], at[:-1], at[1:], strict=True)
        ]
        return cls(np.array(at), np.cumsum([np.zeros(exact[0].shape, np.int64), *rises], axis=0))

    def picks(self, k: Int, source: Int, rank: Int) -> None:
        """From the table."""
        kernels().mix_table(k, self.table, self.step, source, rank)

    def counts(self, k: int) -> Int:
        """Whole periods, and a search in the places of each source."""
        turn, rest = divmod(k, len(self.table))
        places, cuts = self._places
        within = [bisect_left(places, rest, lo, hi) - lo for lo, hi in zip(cuts[:-1], cuts[1:], strict=True)]
        return turn * self.step + np.array(within, np.int64)

    def place(self, source: int, j: int) -> int:
        """From the places of the source."""
        places, cuts = self._places
        turn, within = divmod(j, int(self.step[source]))
        return turn * len(self.table) + int(places[cuts[source] + within])

    @cached_property
    def _places(self) -> tuple[Int, list[int]]:
        """Places in the table, source after source, and where those of each source begin."""
        return np.argsort(self.table[:, 0], kind="stable"), offsets_of(self.step).tolist()


def _table(at: Int, target: Int, slack: int) -> Table:
    """`[P, 2]` source and rank of each place."""
    jobs = np.maximum((target[-1] - slack) // UNIT + 1, 0)
    source = np.repeat(np.arange(len(jobs)), jobs)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
    low = [_reached(at, column, np.arange(n) * UNIT + slack) - 1 for column, n in zip(target.T, jobs, strict=True)]
    high = [
        _reached(at, column, np.arange(1, n + 1) * UNIT - slack + 1) - 1
        for column, n in zip(target.T, jobs, strict=True)
    ]
    release, deadline = np.concatenate(low), np.concatenate(high)
    order = np.argsort(release, kind="stable")
    place = np.empty(int(at[-1]), np.int64)
    late = kernels().earliest_deadline(release[order], deadline[order], place)
    if late >= 0:
        raise PlanError(f"expected an order within a sample of these shares, got none at pick {late}; please report it")
    chosen = order[place]
    return np.stack([source[chosen], rank[chosen]], axis=1).astype(np.uint32)


def _reached(at: Int, column: Int, wanted: Int) -> Int:
    """After how many picks the targets `column[B]` are `wanted[n] > 0` or more; one more than there are if never."""
    b = np.searchsorted(column, wanted)
    never = b == len(at)
    b = np.where(never, 1, b)
    width, rise = at[b] - at[b - 1], np.maximum(column[b] - column[b - 1], 1)
    return np.where(never, at[-1] + 1, at[b - 1] - (column[b - 1] - wanted) * width // rise)


def _rounded(rise: npt.NDArray[np.object_], total: int) -> Int:
    """`[D]` rises in `UNIT`s that add up to `total`: those that lose most by rounding get one more."""
    units, lost = rise * UNIT // ONE, rise * UNIT % ONE
    left = total - int(units.sum())
    units[np.argsort(-lost, kind="stable")[:left]] += 1
    return units.astype(np.int64)
