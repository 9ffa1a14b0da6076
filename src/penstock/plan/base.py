"""`Plan`: a function from positions to selections of rows, and the base classes of plans over plans.

A plan is arithmetic on integers. It reads no value and keeps no state of an iteration, so any thread, worker or rank
may resolve any positions, in any order, and gets the same rows.

Invariants, which `penstock.testing.plans` tests for every transform:

* `resolve` works position by position: `resolve(a ++ b) = resolve(a) ++ resolve(b)`.
* Epochs follow each other without gaps: epoch `e` has the positions `start(e) : start(e) + sizes(e)`, `start(e + 1)` is
  the end of that range, and `locate` is the inverse.
* `lengths` equals the rows that `resolve` selects, and `even` is set only if they are equal for all samples.
* `fingerprint` covers everything that the selections depend on: the plan below and the `repr` of the transform.
* `uses` is the inverse of `resolve`: the positions whose samples are of an episode.

A position is an int64 below 2^62 (`ENDLESS`), so that sums and differences of two positions do not overflow.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.html import page, table
from penstock.core.selection import Selection
from penstock.errors import PlanError
from penstock.plan.outputs import DerivedOutput, Read, View

BLOCK = 1 << 16  # samples whose lengths are looked at together
ENDLESS = 1 << 62
"""The length of a plan that never ends, and the most samples of any epoch."""
NONE: IntArray = np.zeros(0, np.int64)
"""No positions."""
EPOCHS = frozenset({"__len__", "start", "sizes", "locate", "set_epoch_start", "uneven", "empty"})
"""What describes the epochs of a plan; see `Plan`."""


class Plan(ABC):
    """Pure function from positions to selections of rows. `resolve(a ++ b) = resolve(a) ++ resolve(b)`.

    Positions continue through all epochs. With epochs of one length, position `k` is sample `k % len` of epoch
    `k // len`. Packs that are planned again in every epoch have epochs of varying length; `start`, `sizes` and `locate`
    work for all plans. Plan some thousand positions in one call, because each call has a fixed cost.

    A subclass with epochs of one length defines `__len__` and inherits the other methods about epochs. These depend on
    each other. A class that replaces one of them must define all of `EPOCHS`, or creating the class raises `TypeError`.
    """

    views: tuple[View, ...]
    """The distinct views; `resolve` gives one selection for each."""
    reads: tuple[Read, ...]
    """The output columns."""
    marks: tuple[DerivedOutput, ...]
    """What the batch carries besides columns: masks where something is padded, segment ids where it is packed."""
    loses: str = "left out by a transform"
    """Why rows of the plan below are in no sample of an epoch; empty if an epoch has all samples of the epoch below."""
    fingerprint: str
    """A digest of the episodes, the parameters and the seed: equal plans give equal selections."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        stated = {name for name in EPOCHS if name in vars(cls)}
        derived = next((base for base in cls.__mro__[1:] if "start" in vars(base)), Plan)  # whose epochs it would have
        if stated and len(stated) < len(EPOCHS) and (derived is not Plan or stated != {"__len__"}):
            described = f"those of {derived.__name__}" if derived is not Plan else "fixed-length ones"
            raise TypeError(
                f"expected {cls.__name__} to define all of {sorted(EPOCHS)} or none, got {sorted(stated)}: its other "
                f"methods would still describe {described}. For the epochs of the plan below derive from Reordered and "
                "define positions alone; for epochs of another, fixed length derive from DerivedPlan"
            )

    @property
    @abstractmethod
    def steady(self) -> bool:
        """Whether every epoch has the same samples, in any order. Packs are then planned once for all epochs."""

    @property
    def periodic(self) -> bool:
        """Whether every epoch has the same samples in the same order."""
        return False

    @property
    def uneven(self) -> bool:
        """Whether epochs may vary in length."""
        return False

    @property
    def empty(self) -> bool:
        """Whether no epoch has samples. If epochs vary in length, only some may be empty."""
        return len(self) == 0

    def set_epoch_start(self, epoch: int, start: int) -> None:
        """Set the start of an epoch. A plan with epochs of varying length then need not plan the epochs before."""

    @property
    def even(self) -> tuple[int, ...] | None:
        """Number of real rows of every sample in each view, or None if samples differ."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples of an epoch, or of the first if epochs vary in length."""

    def start(self, epoch: int) -> int:
        """Return the first position of an epoch."""
        return epoch * len(self)

    def sizes(self, epoch: IntArray) -> IntArray:
        """Return the number of samples of epochs, `[n]` int64."""
        return np.full(len(epoch), len(self))

    def locate(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """Return the epoch of each position, `[n]`, and its place in the epoch, `[n]`."""
        return epochs(k, len(self))

    @abstractmethod
    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """Return the rows of samples."""

    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        """Return the positions in `lo : hi` whose samples are of some episodes, `[m]` int64, ascending.

        A pack is of every episode that it has rows of. A sample without rows is of the episode of its anchor.
        """
        raise PlanError(f"expected a plan that finds the samples of an episode, got {type(self).__name__}; define uses")

    def originals(self, positions: IntArray) -> IntArray:
        """Return the positions that samples had before any were left out with `Without`, `[n]`.

        Seeds of random functions are drawn by them, so that leaving out some samples changes no other one.
        """
        return positions

    def rows_of_episodes(self, view: int, source: int, episodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows of some episodes in the row space of a view: the first ones, and those after the last."""
        raise PlanError(f"expected a plan that knows the rows of episodes, got {type(self).__name__}; define them")

    def _repr_html_(self) -> str:
        outputs = [(read.name, read.column, *_view_texts(self.views[read.view])) for read in self.reads]
        derived = [(mark.name, f"({mark.kind})", *_view_texts(self.views[mark.view])) for mark in self.marks]
        count = "endless" if is_endless(self) else f"{len(self):,} samples an epoch"
        return page(
            type(self).__name__, count, table(("output", "column", "rows of", "from the anchor"), [*outputs, *derived])
        )

    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        """Return the number of real rows of samples, `[n]` int64 for each view."""
        return tuple(real_rows(selection) for selection in self.resolve(positions))

    def extents(self, positions: IntArray) -> tuple[IntArray, ...]:
        """Return the number of places that samples need, `[n]` int64 for each view: their rows, in most plans.

        A batch of `Batches` is as wide as the greatest of its samples, in views that vary in width (`View.whole`).
        """
        return self.lengths(positions)

    def length_table(self, view: int) -> IntArray | None:
        """Return the lengths of all samples of the first epoch, `[len(self)]`, or None if the plan does not
        store them.
        """
        return None

    def why_empty(self) -> str:
        """Return why no epoch has samples, for messages. Call it only for empty plans."""
        return f"{type(self).__name__} has none"

    def count_below(self, position: int) -> int | None:
        """Return how many samples of the plan below come before a position, or None if these are not its first ones.

        A plan that reorders samples knows it where an epoch begins.
        """
        return None

    def rows(self) -> int:
        """Return the number of rows of the first epoch, counted once for each axis. Cost: one pass over the lengths."""
        views = {
            self.views[read.view].axis: read.view for read in self.reads if self.views[read.view].align != "episode"
        }
        if self.even is not None:
            return len(self) * sum(self.even[view] for view in views.values())
        check_ends(self, "counting its rows")
        return sum(
            int(rows_by_view[view].sum())
            for k in blocks(0, len(self))
            for rows_by_view in [self.lengths(k)]
            for view in views.values()
        )


class FixedPlan(Plan):
    """Plan whose epochs all have the same samples in the same order."""

    @property
    @override
    def steady(self) -> bool:
        return True

    @property
    @override
    def periodic(self) -> bool:
        return True


def _view_texts(view: View) -> tuple[str, str]:
    if view.drawn:
        return view.align, "drawn"
    every = "" if view.every == 1 else f", every {view.every}"
    return view.align, "the whole sample" if view.whole else f"{view.lo} to {view.hi - 1}{every}"


class DerivedPlan(Plan):
    """Plan whose samples are samples of another plan, with a different fixed epoch length.

    A subclass defines `__len__`, `positions` and `steady`, and `periodic` if all epochs have one order. Views, reads
    and derived outputs are inherited from the plan below.
    """

    same_positions: bool = False
    """Whether position `k` of this plan is position `k` of the plan below."""

    def __init__(self, upstream: Plan, transform: object) -> None:
        self.upstream = upstream
        self.views = upstream.views
        self.reads = upstream.reads
        self.marks = upstream.marks
        self.fingerprint = chained(upstream.fingerprint, transform)
        self._takes = f"{transform!r} keeps"

    def why_empty(self) -> str:
        """Return the reason of the plan below, or that this plan keeps none of its samples."""
        if self.upstream.empty:
            return self.upstream.why_empty()
        return f"{self._takes} none of {len(self.upstream):,} samples"

    @override
    def count_below(self, position: int) -> int | None:
        return position if self.same_positions else None

    @property
    @override
    def even(self) -> tuple[int, ...] | None:
        return self.upstream.even

    @override
    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        return self.upstream.lengths(self.positions(checked(self, positions)))

    @override
    def extents(self, positions: IntArray) -> tuple[IntArray, ...]:
        return self.upstream.extents(self.positions(checked(self, positions)))

    @override
    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        return self.upstream.resolve(self.positions(checked(self, positions)))

    @abstractmethod
    def positions(self, k: IntArray) -> IntArray:
        """Return positions in the plan below, `[n]` int64. They continue through all epochs."""

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        if lo >= hi or self.empty:
            return NONE
        return self.inverse(self.upstream.uses(source, episodes, *self.span(lo, hi)), lo, hi)

    @override
    def originals(self, positions: IntArray) -> IntArray:
        return self.upstream.originals(positions) if self.same_positions else positions

    @override
    def rows_of_episodes(self, view: int, source: int, episodes: IntArray) -> tuple[IntArray, IntArray]:
        return self.upstream.rows_of_episodes(view, source, episodes)

    def span(self, lo: int, hi: int) -> tuple[int, int]:
        """Return a range of positions below that includes the positions of all samples `lo : hi`, `lo < hi`.

        The default looks at each position.
        """
        if self.same_positions:
            return lo, hi
        ends = [(int(below.min()), int(below.max())) for below in map(self.positions, blocks(lo, hi))]
        return min(first for first, _ in ends), max(last for _, last in ends) + 1

    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        """Return the positions in `lo : hi` that `positions` maps to some of `below`, `[m]` int64, both ascending.

        The default looks at each position. A plan that can calculate them does so.
        """
        if self.same_positions:
            return below
        if len(below) == 0:
            return NONE
        return np.concatenate([k[np.isin(self.positions(k), below)] for k in blocks(lo, hi)])


class Reordered(DerivedPlan):
    """Plan with the samples of each epoch of another plan in another order.

    A subclass defines only `positions`, a permutation of each epoch. Epochs may vary in length, so it uses
    `self.locate(k)` and `self.sizes(epoch)` instead of `len(self)`. Starts and sizes of epochs, and whether all have
    the same samples, equal the plan's below.
    """

    loses = ""

    @property
    @override
    def steady(self) -> bool:
        return self.upstream.steady

    @property
    @override
    def uneven(self) -> bool:
        return self.upstream.uneven

    @property
    @override
    def empty(self) -> bool:
        return self.upstream.empty

    @override
    def set_epoch_start(self, epoch: int, start: int) -> None:
        self.upstream.set_epoch_start(epoch, start)

    @override
    def count_below(self, position: int) -> int | None:
        begins_epoch = self.same_positions or self.start(epoch_of(self, position)) == position
        return position if begins_epoch else None

    def __len__(self) -> int:
        return len(self.upstream)

    @override
    def start(self, epoch: int) -> int:
        return self.upstream.start(epoch)

    @override
    def sizes(self, epoch: IntArray) -> IntArray:
        return self.upstream.sizes(epoch)

    @override
    def locate(self, k: IntArray) -> tuple[IntArray, IntArray]:
        return self.upstream.locate(k)

    @override
    def span(self, lo: int, hi: int) -> tuple[int, int]:
        if self.same_positions:
            return lo, hi
        return self.start(epoch_of(self, lo)), self.start(epoch_of(self, hi - 1) + 1)


class SameOrder(Reordered):
    """Plan with the samples of another plan in the same order, and other outputs. A subclass sets `reads`
    or `marks`.
    """

    same_positions = True

    @property
    @override
    def periodic(self) -> bool:
        return self.upstream.periodic

    @override
    def length_table(self, view: int) -> IntArray | None:
        return self.upstream.length_table(view)

    @override
    def positions(self, k: IntArray) -> IntArray:
        return k


def chained(fingerprint: str, transform: object) -> str:
    return hashlib.sha256(f"{fingerprint} {transform!r}".encode()).hexdigest()


def checked(plan: Plan, positions: IntArray) -> IntArray:
    """Return positions as a C-contiguous int64 array."""
    k = np.ascontiguousarray(positions, np.int64)
    if len(k) and k.min() < 0:
        raise PlanError(f"expected positions of 0 or more, got {k.min()}")
    if len(k) and plan.empty:
        raise PlanError(f"expected a plan with samples, got an empty one: {plan.why_empty()}")
    return k


def epoch_of(plan: Plan, position: int) -> int:
    return int(plan.locate(np.array([position]))[0][0])


def is_endless(plan: Plan) -> bool:
    """Return whether the only epoch of a plan has no end."""
    return len(plan) > ENDLESS // 2  # some whole epochs below may not fill 2^62 exactly


def check_ends(plan: Plan, purpose: str) -> None:
    if is_endless(plan):
        raise PlanError(
            f"expected a plan with an end for {purpose}, got repeat() without a number or a mix that never stops; call "
            "repeat() last, give mix() another stop, or call with_epoch_length(n) first"
        )


def real_rows(selection: Selection) -> IntArray:
    """Return the number of real rows of each sample, `[n]` int64."""
    sample, length = selection.destination // selection.shape[1], selection.length
    if selection.real is not None:
        sample, length = sample[selection.real], length[selection.real]
    return np.bincount(sample, length, selection.shape[0]).astype(np.int64)


def blocks(lo: int, hi: int) -> Iterator[IntArray]:
    """Yield the positions `lo : hi`, some at a time."""
    for begin in range(lo, hi, BLOCK):
        yield np.arange(begin, min(begin + BLOCK, hi))


def in_each_epoch(places: IntArray, size: int, lo: int, hi: int) -> IntArray:
    """Return the positions in `lo : hi` at some places, ascending, of every epoch of `size` samples."""
    if len(places) == 0 or lo >= hi:
        return NONE
    every = np.arange(lo // size, (hi - 1) // size + 1)[:, None] * size + places
    return within(every.ravel(), lo, hi)


def within(positions: IntArray, lo: int, hi: int) -> IntArray:
    return positions[(positions >= lo) & (positions < hi)]


def epochs(k: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return epoch and place in it of each position, `[n]` and `[n]`. It divides only if necessary."""
    if len(k) == 0:
        return k, k
    first = int(k[0]) // n
    place = k - first * n
    if place.min() >= 0 and place.max() < n:
        return np.full(len(k), first), place
    return np.divmod(k, n)
