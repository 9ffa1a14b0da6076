"""Which source gives the next sample of a mix, and which of its samples: arithmetic on the number of the pick."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from numbers import Rational
from operator import index
from typing import Literal, cast

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

Stop = Literal["first_exhausted", "all_exhausted", "drain", "never"] | int
Stretches = Sequence[tuple[int, Sequence[Fraction]]]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The endless order of constant shares: pick `k` to a source, and how many picks that source had before.

    After any number of picks, each source has had its share of them to within `bound`. Where the shares repeat after at
    most 2^20 picks (as all percentages do) or where there are at most four of them, that is below one sample. Other
    shares go down a tree of two-way splits, where it is always below two and usually below 1.5, until 2^53 picks; see
    `penstock.plan.fair.FairTable` and `penstock.plan.splits.SplitTree`. A share below 2^-64 is never picked.

    Built through `Schedule.of`. Cost: 2 to 5 ns a pick from a table, some 8 ns and 4 to 5 a level from a tree.

    >>> from penstock.plan.weights import shares
    >>> schedule = Schedule.of(shares([0.5, 0.3, 0.2]))
    >>> source, rank = schedule.picks(np.arange(10))
    >>> source.tolist()
    [0, 1, 2, 0, 0, 1, 0, 2, 1, 0]
    >>> rank.tolist()
    [0, 0, 0, 1, 2, 1, 3, 1, 2, 4]
    """

    shares: tuple[Fraction, ...]
    order: Order = field(repr=False)

    @classmethod
    def of(cls, shares: Sequence[Fraction]) -> Schedule:
        """The schedule of `[D]` shares that add up to one; see `penstock.plan.weights`. Raises `PlanError`."""
        return cls(tuple(shares), _order(_checked([(0, shares)]), None))

    @property
    def bound(self) -> float:
        """No count is ever further from its share of the picks."""
        return self.order.bound

    def picks(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """`[n]` source and `[n]` rank of picks `k[n]`, 0 to 2^62, in any order. Raises `PlanError` outside of that."""
        return _picks(self.order, k, LONGEST)

    def counts(self, k: int) -> IntArray:
        """`[D]` picks of each source among the first `k`.

        >>> Schedule.of((Fraction(1, 3), Fraction(2, 3))).counts(3 * 10**17).tolist()
        [100000000000000000, 200000000000000000]
        """
        return self.order.counts(k)

    def place(self, source: int, j: int) -> int:
        """The number of the pick that is the `j`-th of its source, from 0. Raises `PlanError` if it never comes.

        >>> Schedule.of((Fraction(1, 3), Fraction(2, 3))).place(0, 10**17)
        300000000000000001
        """
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

    Sources without a share are left out of all this. Built through `MixSchedule.of`.

    >>> from penstock.plan.weights import shares
    >>> course = MixSchedule.of(shares([1, 1]), sizes=[2, 4], stop="drain")
    >>> course.length, course.picks(np.arange(6))[0].tolist()
    (6, [0, 1, 0, 1, 1, 1])
    >>> print(course.realised(["a", "b"]))
    source  wanted  samples   share
    a       0.5000        2  0.3333
    b       0.5000        4  0.6667
    """

    stretches: tuple[tuple[int, tuple[Fraction, ...]], ...]
    sizes: tuple[int | None, ...]
    stop: Stop
    length: int | None
    order: Order = field(repr=False)

    @classmethod
    def of(
        cls,
        shares: Sequence[Fraction] | Stretches,
        sizes: Sequence[int | None],
        stop: Stop = "first_exhausted",
    ) -> MixSchedule:
        """The course of constant `shares[D]`, or of `(position, shares)` pairs from position 0 on.

        `sizes[D]` are samples in each source, None where it does not end. Raises `PlanError` where shares or sizes do
        not fit, or where the stop rule never comes to an end.
        """
        stretches = _checked(_stretches(shares))
        sizes = tuple(None if size is None else index(size) for size in sizes)
        stop = stop if isinstance(stop, str) else index(stop)
        used = [any(part[i] > 0 for _, part in stretches) for i in range(len(stretches[0][1]))]
        _check_sizes(used, sizes, stop)
        finite = {i: size for i, size in enumerate(sizes) if used[i] and size is not None}
        if stop == "drain":
            order, length = _drained(stretches, [finite.get(i, 0) for i in range(len(used))])
        elif stop == "never":
            order, length = _order(stretches, None), None
        elif isinstance(stop, int):
            order, length = _order(stretches, stop), stop
        else:
            order, length = _until(stretches, finite, stop)
        return cls(stretches, sizes, stop, length, order)

    @property
    def bound(self) -> float:
        """No count is ever further from its integrated share, within an epoch of the mix."""
        return self.order.bound

    def picks(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """`[n]` source and `[n]` rank of picks `k[n]` of an epoch. The rank counts on where a source starts over: it is
        sample `rank % size` of the source's epoch `rank // size`. Raises `PlanError` for `k` outside the epoch."""
        return _picks(self.order, k, LONGEST if self.length is None else self.length)

    def counts(self, k: int) -> IntArray:
        """`[D]` picks of each source among the first `k` of an epoch."""
        return self.order.counts(k)

    def offset(self, epoch: int) -> IntArray:
        """`[D]` ranks with which the sources enter an epoch of the mix: add them to the ranks of `picks`.

        Sources go on where the epoch before left them, so that nothing comes twice before its source is used up.

        Raises `PlanError` for a second epoch of an endless mix.
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


def _order(stretches: Stretches, length: int | None) -> Order:
    """The order of the first `length` picks: a table if one holds it, else a tree."""
    targets = PickTargets.of(stretches)
    if len(targets.weights) == 1 and sum(targets.weights[0]) <= LIMIT:
        return FairTable.repeating(targets.weights[0])
    return _held(targets, length)


def _held(targets: PickTargets, length: int | None) -> Order:
    if len(targets.picked) == 1:
        return FairTable.repeating([int(i in targets.picked) for i in range(targets.counts.shape[1])])
    return FairTable.of(targets, length) or SplitTree(targets)


def _drained(stretches: Stretches, sizes: list[int]) -> tuple[Order, int]:
    if len(stretches) > 1:
        raise PlanError("expected constant shares for a mix that drains its sources, got shares that change")
    if sum(sizes) == 0:
        return FairTable.repeating([1, *(0 for _ in sizes[1:])]), 0
    targets = PickTargets.draining(stretches[0][1], sizes)
    return _held(targets, sum(sizes)), sum(sizes)


def _until(stretches: Stretches, sizes: dict[int, int], stop: str) -> tuple[Order, int]:
    """The order up to where one source, or all, are used up, and how long that is: its counts say it exactly."""
    some, numbers = list(sizes), np.array(list(sizes.values()))
    horizon = _horizon(PickTargets.of(stretches), sizes, stop)
    order = _order(stretches, horizon)
    over: Callable[[int], bool]
    if stop == "first_exhausted":
        over = lambda k: bool((order.counts(k + 1)[some] > numbers).any())  # noqa: E731
    else:
        over = lambda k: bool((order.counts(k)[some] >= numbers).all())  # noqa: E731
    length = bisect_left(range(horizon), True, key=over)
    if length == horizon:
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
    """Constant shares as one stretch."""
    if len(shares) == 0:
        raise PlanError("expected the shares of at least one source, got none")
    return cast(Stretches, shares if isinstance(shares[0], tuple) else [(0, shares)])


def _checked(stretches: Stretches) -> tuple[tuple[int, tuple[Fraction, ...]], ...]:
    positions, sources = [at for at, _ in stretches], len(stretches[0][1])
    if positions[0] != 0 or any(a >= b for a, b in pairwise(positions)):
        raise PlanError(f"expected weights from position 0 on, at ascending positions, got {positions}")
    for at, shares in stretches:
        exact = all(map(_is_exact, shares))
        if not exact or len(shares) != sources or sum(shares) != 1 or min(shares, default=-1) < 0:
            raise PlanError(
                f"expected exact shares of {sources} sources that add up to 1, as shares() gives, "
                f"got {list(shares)} from position {at} on"
            )
    return tuple((at, tuple(shares)) for at, shares in stretches)


def _is_exact(share: object) -> bool:
    return isinstance(share, Rational)


def _check_sizes(used: Sequence[bool], sizes: Sequence[int | None], stop: Stop) -> None:
    """Whether the stop rule can be followed with these sizes."""
    if len(sizes) != len(used) or any(size is not None and size < 0 for size in sizes):
        raise PlanError(f"expected sizes of 0 or more of {len(used)} sources, got {list(sizes)}")
    if isinstance(stop, int) and not 0 <= stop <= LONGEST:
        raise PlanError(f"expected a mix of 0 to 2^62 samples, got {stop}")
    if not isinstance(stop, int) and stop not in ("first_exhausted", "all_exhausted", "drain", "never"):
        raise PlanError(f"expected first_exhausted, all_exhausted, drain, never or a number to stop at, got {stop!r}")
    picked = [size for size, is_used in zip(sizes, used, strict=True) if is_used]
    if stop != "drain" and 0 in picked:
        raise PlanError(
            f"expected samples in every source that has a share, got sizes {list(sizes)}; give the empty one weight 0"
        )
    ends = stop in ("first_exhausted", "all_exhausted") and set(picked) == {None}
    if ends or (stop == "drain" and None in picked):
        raise PlanError(f"expected sources that end for a mix that stops by {stop!r}, got sizes {list(sizes)}")
