"""`MixSchedule`: which source each sample of a mix comes from, as a function of the sample's number.

Targets (`PickTargets`) are straight lines: after `k` picks, each source should have its share of `k`. An `Order` rounds
them to whole picks: a table (`FairTable`) if one of at most 2^20 picks holds the order, else a tree (`SplitTree`).
`bound` says how far a count can be from its target.

The end of an epoch follows from the targets too, so its length is exact before the first sample is read. All arithmetic
is on integers and fractions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from numbers import Rational
from operator import index
from typing import Literal, cast, get_args

import numpy as np

from penstock.core.arrays import IntArray
from penstock.errors import PlanError
from penstock.plan.fair import LIMIT, FairTable, Order
from penstock.plan.splits import SplitTree
from penstock.plan.targets import PickTargets
from penstock.plan.weights import MixReport

LONGEST = 1 << 62
"""Picks that an endless mix has."""

SLACK = 32
"""Samples by which an order surely is not ahead of, or behind, its targets, where an end is looked for."""

StopWord = Literal["first_exhausted", "all_exhausted", "drain", "never"]
"""Where a mix ends; every `stop=` of penstock has these words or some of them."""
Stop = StopWord | int
Stretches = Sequence[tuple[int, Sequence[Fraction]]]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The endless order of constant shares: pick `k` to a source, and how many picks that source had before.

    After any number of picks, each source has had its share of them to within `bound`. Where the shares repeat after at
    most 2^20 picks (as all percentages do) or where there are at most four of them, that is below one sample. Other
    shares go down a tree of two-way splits, where it is always below two and usually below 1.5, until 2^53 picks; see
    `penstock.plan.fair.FairTable` and `penstock.plan.splits.SplitTree`. A share below 2^-64 is never picked.

    Built through `Schedule.of`. Cost: 2 to 5 ns a pick from a table, some 8 ns and 4 to 5 a level from a tree.
    """

    shares: tuple[Fraction, ...]
    order: Order = field(repr=False)

    @classmethod
    def of(cls, shares: Sequence[Fraction]) -> Schedule:
        """The schedule of `[D]` shares that add up to one; see `penstock.plan.weights`."""
        return cls(tuple(shares), _order(PickTargets.of(_checked([(0, shares)])), None))

    @property
    def bound(self) -> float:
        """No count is ever further from its share of the picks."""
        return self.order.bound

    def picks(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """`[n]` source and `[n]` rank of picks `k[n]`, 0 to 2^62, in any order."""
        return _picks(self.order, k, LONGEST)

    def counts(self, k: int) -> IntArray:
        """`[D]` picks of each source among the first `k`."""
        return self.order.counts(k)

    def place(self, source: int, j: int) -> int:
        """The number of the pick that is the `j`-th of its source, from 0."""
        if not 0 <= source < len(self.shares) or not 0 <= j < self.counts(LONGEST)[source]:
            raise PlanError(f"expected a pick that comes before 2^62, got pick {j} of source {source}")
        return self.order.place(source, j)


@dataclass(frozen=True, eq=False)
class MixSchedule:
    """The course of a mix from its first sample to its last: shares that may change on the way, and an end.

    `stop` says when one epoch of the mix ends:

    * `"first_exhausted"`: just before a source would give more samples than it has.
    * `"all_exhausted"`: as soon as each source has given all of its samples; the others start over meanwhile.
    * `"drain"`: a source that is used up leaves, and the others share its part, until each was used up exactly once.
    * `"never"`: it does not.
    * a number: after so many samples; sources start over as they need.

    Counts stay within `bound` of the integrated shares, that is of the area under each source's share so far: seams
    where shares change, or a drained source leaves, add nothing where a table holds the order, which it does for shares
    that repeat soon, and for any course of at most 2^20 samples; the bound is then below one. Elsewhere it is the bound
    of `SplitTree`: at most one for four sources that have shares throughout, and for others, in practice, below two.

    With `limits`, a source leaves after so many picks in an epoch, and the others share its part. `"first_exhausted"`
    then ends the epoch for a source without a limit, and `"all_exhausted"` expects no more than its limit of a source.

    Sources without a share are left out of all this. Built through `MixSchedule.of`.
    """

    stretches: tuple[tuple[int, tuple[Fraction, ...]], ...]
    sizes: tuple[int | None, ...]
    stop: Stop
    length: int | None
    order: Order = field(repr=False)
    limits: tuple[int | None, ...] = ()

    @classmethod
    def of(
        cls,
        shares: Sequence[Fraction] | Stretches,
        sizes: Sequence[int | None],
        stop: Stop = "first_exhausted",
        limits: Sequence[int | None] = (),
    ) -> MixSchedule:
        """The course of constant `shares[D]`, or of `(position, shares)` pairs from position 0 on.

        `sizes[D]` are samples in each source, None where it does not end. `limits[D]` are the most picks of each source
        in an epoch, None for any number.
        """
        stretches = _checked(_stretches(shares))
        sizes = tuple(None if size is None else index(size) for size in sizes)
        stop = stop if isinstance(stop, str) else index(stop)
        used = [any(part[i] > 0 for _, part in stretches) for i in range(len(stretches[0][1]))]
        _check_sizes(used, sizes, stop)
        most = _limits(limits, len(used))
        finite = {i: size for i, size in enumerate(sizes) if used[i] and size is not None}
        if stop == "drain":
            drained = [finite.get(i, 0) if limit is None else limit for i, limit in enumerate(most)]
            order, length = _drained(stretches, [n if used[i] else 0 for i, n in enumerate(drained)])
        elif stop == "never" or isinstance(stop, int):
            length = None if stop == "never" else stop
            order = _endless(stretches, most, length)
        else:
            order, length = _until(stretches, most, finite, stop)
        return cls(stretches, sizes, stop, length, order, most if any(n is not None for n in most) else ())

    @property
    def bound(self) -> float:
        """No count is ever further from its integrated share, within an epoch of the mix."""
        return self.order.bound

    def picks(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """`[n]` source and `[n]` rank of picks `k[n]` of an epoch. The rank counts on where a source starts over: it is
        sample `rank % size` of the source's epoch `rank // size`.
        """
        return _picks(self.order, k, LONGEST if self.length is None else self.length)

    def counts(self, k: int) -> IntArray:
        """`[D]` picks of each source among the first `k` of an epoch."""
        return self.order.counts(k)

    def places(self, source: int, rank: IntArray) -> IntArray:
        """`[n]` picks of an epoch in which a source is picked for the `rank[n]`-th time, from 0; they must come."""
        return self.order.places(source, rank)

    def offset(self, epoch: int) -> IntArray:
        """`[D]` ranks with which the sources enter an epoch of the mix: add them to the ranks of `picks`.

        Sources go on where the epoch before left them, so that nothing comes twice before its source is used up.
        """
        if epoch and self.length is None:
            raise PlanError(f"expected epoch 0 of a mix that never stops, got {epoch}")
        return epoch * self.counts(self.length or 0)

    def realised(
        self, names: Sequence[str], mean_rows: Sequence[Fraction] | None = None, length: int | None = None
    ) -> MixReport:
        """Samples and rows of an epoch (or its first `length` samples, which an endless mix needs), source by source.

        `mean_rows` is rows by samples of each source, for shares in rows too; `wanted` are the shares at the start.
        """
        many = self.length if length is None else length
        if many is None:
            raise PlanError("expected a length to report on, for this mix never stops")
        samples = self.counts(many).tolist()
        rows = None if mean_rows is None else [round(n * m) for n, m in zip(samples, mean_rows, strict=True)]
        return MixReport.of(names, self.stretches[0][1], samples, rows)


def _picks(order: Order, k: IntArray, end: int) -> tuple[IntArray, IntArray]:
    k = np.ascontiguousarray(k, np.int64)
    if len(k) and (k.min() < 0 or k.max() >= end):
        raise PlanError(f"expected picks within 0:{end}, got {k.min()} to {k.max()}")
    source, rank = np.empty(len(k), np.int64), np.empty(len(k), np.int64)
    order.picks(k, source, rank)
    return source, rank


def _targets(stretches: Stretches, limits: Sequence[int | None]) -> PickTargets:
    if all(limit is None for limit in limits):
        return PickTargets.of(stretches)
    return PickTargets.limited(stretches, limits)


def _order(targets: PickTargets, length: int | None) -> Order:
    """The order of the first `length` picks: a table if one holds it, else a tree."""
    if len(targets.weights) == 1 and sum(targets.weights[0]) <= LIMIT and targets.end is None:
        return FairTable.repeating(targets.weights[0])
    return _held(targets, length)


def _endless(stretches: Stretches, limits: Sequence[int | None], length: int | None) -> Order:
    """The order of a given number of picks, or of all."""
    targets = _targets(stretches, limits)
    if targets.end is not None and (length is None or length > targets.end):
        raise PlanError(
            f"expected a mix of at most {targets.end} samples, after which all sources have given max_repeats, got "
            f"{'one that never stops' if length is None else length}; stop there, or leave a source without a limit"
        )
    return _order(targets, length)


def _held(targets: PickTargets, length: int | None) -> Order:
    picked = targets.picked or [0]  # nothing is picked of a mix without samples
    if len(picked) == 1:
        return FairTable.repeating([int(i in picked) for i in range(targets.counts.shape[1])])
    return FairTable.of(targets, length) or SplitTree(targets)


def _drained(stretches: Stretches, sizes: list[int]) -> tuple[Order, int]:
    if len(stretches) > 1:
        raise PlanError("expected constant shares for a mix that drains its sources, got shares that change")
    targets = PickTargets.limited(stretches, sizes)
    return _held(targets, sum(sizes)), sum(sizes)


def _until(stretches: Stretches, limits: Sequence[int | None], sizes: dict[int, int], stop: str) -> tuple[Order, int]:
    """The order up to where one source, or all, are used up, and how long that is: its counts say it exactly."""
    if stop == "first_exhausted":
        sizes = {i: size for i, size in sizes.items() if limits[i] is None}
        if not sizes:
            raise PlanError(
                "expected a source that ends and has no limit for a mix that stops by 'first_exhausted', got "
                "max_repeats for all; use stop='drain'"
            )
    else:
        sizes = {i: size if (limit := limits[i]) is None else min(size, limit) for i, size in sizes.items()}
    sources, numbers = list(sizes), np.array(list(sizes.values()))
    targets = _targets(stretches, limits)
    horizon = _horizon(targets, sizes, stop)
    horizon = horizon if targets.end is None else min(horizon, targets.end)
    order = _order(targets, horizon)
    over: Callable[[int], bool]
    if stop == "first_exhausted":
        over = lambda k: bool((order.counts(min(k + 1, horizon))[sources] > numbers).any())  # noqa: E731
    else:
        over = lambda k: bool((order.counts(k)[sources] >= numbers).all())  # noqa: E731
    length = bisect_left(range(horizon + 1), True, key=over)
    if length > horizon:
        raise PlanError(f"expected every source to be used up, got weights that end at zero before that; sizes {sizes}")
    return order, length


def _horizon(targets: PickTargets, sizes: dict[int, int], stop: str) -> int:
    """Picks after which sources are used up for certain: the targets are some samples further than the sizes."""
    reached = [(targets.reach(i, size + SLACK), targets.reach(i, size)) for i, size in sizes.items()]
    if stop == "first_exhausted":
        ends = [sure for sure, _ in reached if sure is not None]
        end = min(ends, default=None)
    else:
        last = -(-targets.knots[-1] >> 64) + 1
        ends = [last if sure is None else sure for sure, near in reached if near is not None]
        end = max(ends) if len(ends) == len(reached) else None
    if end is None:
        raise PlanError(
            f"expected weights that use up sources of sizes {sizes}, got weights that end at zero before that"
        )
    if end > LONGEST:
        raise PlanError(f"expected an epoch of at most 2^62 samples, got {end}; sizes and shares are too far apart")
    return end + 1


def _stretches(shares: Sequence[Fraction] | Stretches) -> Stretches:
    if len(shares) == 0:
        raise PlanError("expected the shares of at least one source, got none")
    return cast(Stretches, shares if isinstance(shares[0], tuple) else [(0, shares)])


def _checked(stretches: Stretches) -> tuple[tuple[int, tuple[Fraction, ...]], ...]:
    positions, sources = [start for start, _ in stretches], len(stretches[0][1])
    if positions[0] != 0 or any(a >= b for a, b in pairwise(positions)):
        raise PlanError(f"expected weights from position 0 on, at ascending positions, got {positions}")
    for start, shares in stretches:
        exact = all(map(_is_exact, shares))
        if not exact or len(shares) != sources or sum(shares) != 1 or min(shares, default=-1) < 0:
            raise PlanError(
                f"expected exact shares of {sources} sources that add up to 1, as shares() gives, "
                f"got {list(shares)} from position {start} on"
            )
    return tuple((start, tuple(shares)) for start, shares in stretches)


def _is_exact(share: object) -> bool:
    return isinstance(share, Rational)


def _limits(limits: Sequence[int | None], sources: int) -> tuple[int | None, ...]:
    """A limit for each source; one above the longest mix is none."""
    most = tuple(None if limit is None or limit > LONGEST else index(limit) for limit in limits) or (None,) * sources
    if len(most) != sources or any(limit is not None and limit < 0 for limit in most):
        raise PlanError(f"expected limits of 0 or more for {sources} sources, got {list(limits)}")
    return most


def _check_sizes(used: Sequence[bool], sizes: Sequence[int | None], stop: Stop) -> None:
    """Whether the stop rule can be followed with these sizes."""
    if len(sizes) != len(used) or any(size is not None and size < 0 for size in sizes):
        raise PlanError(f"expected sizes of 0 or more of {len(used)} sources, got {list(sizes)}")
    if isinstance(stop, int) and not 0 <= stop <= LONGEST:
        raise PlanError(f"expected a mix of 0 to 2^62 samples, got {stop}")
    if not isinstance(stop, int) and stop not in get_args(StopWord):
        raise PlanError(f"expected {', '.join(get_args(StopWord))} or a number to stop at, got {stop!r}")
    picked = [size for size, is_used in zip(sizes, used, strict=True) if is_used]
    if stop != "drain" and 0 in picked:
        raise PlanError(
            f"expected samples in every source that has a share, got sizes {list(sizes)}; give the empty one weight 0"
        )
    ends = stop in ("first_exhausted", "all_exhausted") and set(picked) == {None}
    if ends or (stop == "drain" and None in picked):
        raise PlanError(f"expected sources that end for a mix that stops by {stop!r}, got sizes {list(sizes)}")
