"""A plan: position `k` to a selection, by arithmetic alone; and the transforms that build plans."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.errors import PlanError
from penstock.plan.episodes import Episodes

Int = npt.NDArray[np.int64]
BLOCK = 1 << 16  # samples whose lengths are looked at together
ENDLESS = 1 << 62
"""The length of a plan that never ends, and the most samples of any epoch."""
EPOCHS = frozenset({"__len__", "start", "sizes", "locate", "anchor", "uneven", "empty"})
"""What describes the epochs of a plan; see `Plan`."""
RowSpace = Align | Literal["values"]
MarkKind = Literal[
    "mask", "segment_ids", "positions", "lengths", "cu_seqlens", "sources", "source", "origin", "present", "place"
]


@dataclass(frozen=True)
class View:
    """Which rows of a sample a read wants: `range(lo, hi, every)`, counted from the sample's anchor step, in the row
    space of `align`. For `"episode"` it is the one row of the sample's episode, and `lo, hi` are 0, 1.

    Rows lie inside their episode: `0 : T + end`, where `end` is 1 for boundary rows that may be the observation
    after the last step, and 0 otherwise. `"values"` is the space of the values of one ragged `column`, laid end to
    end: a row of that column is a range of them. `whole` views are as wide as the longest sample.
    """

    align: RowSpace
    lo: int
    hi: int
    every: int = 1
    end: int = 0
    column: str = ""
    whole: bool = False

    @property
    def steps(self) -> range:
        """The rows, counted from the anchor."""
        return range(self.lo, self.hi, self.every)

    @property
    def axis(self) -> tuple[int, int, int, int, str]:
        """Views with one axis have as many rows as each other in every sample."""
        return self.lo, self.hi, self.every, self.end, self.column


@dataclass(frozen=True)
class Read:
    """One output column: `name` in the batch is `column` of the source, read through view number `view`.

    `squeeze` drops the step axis, for views of one row where a batch is `[n, ...]` and not `[n, 1, ...]`. Padding is
    `fill`, and a row that only marks the beginning of a sequence is `head`. Where sources have other names for it,
    `columns` has one for each source, None for a source without it; it is empty where all have `column`.
    """

    name: str
    column: str
    view: int
    squeeze: bool = False
    fill: int | float = 0
    head: int | float = 0
    columns: tuple[str | None, ...] = ()

    def of(self, source: int) -> str | None:
        """The column of one source."""
        return self.columns[source] if self.columns else self.column


@dataclass(frozen=True)
class Mark:
    """An output that follows from the spans of view number `view`, and from no values.

    `"mask"` `[n, L]` bool: what is real. `"segment_ids"` `[n, L]` int32: which sequence of its pack a row belongs to,
    from 1; 0 in padding. `"positions"` `[n, L]` int32: its place in that sequence; 0 in padding. `"lengths"`
    `[n, width]` int32 rows of each sequence. `"cu_seqlens"` `[n, width + 1]` int32: their running sum from 0.
    `"sources"` `[n, width]` int32: which source each sequence is from, -1 where there is none. `"source"` `[n]` int32:
    the part of a mix that each sample was picked from, `having` being the first source of each part. `"origin"` `[n]`
    int64: the first source of that part, or, in a mix of mixes, of the innermost part. `"present"` `[n]` bool: whether
    the sample's source is one of `having`. `"place"` `[n, 2]` int64: the number that the sample's episode has in its
    source, and the step in it of the sample's first row, -1 where it has none; the view is one of boundary rows, by
    which the end of one episode differs from the begin of the next.
    """

    name: str
    view: int
    kind: MarkKind = "mask"
    width: int = 0
    having: tuple[int, ...] = ()


class Plan(ABC):
    """A pure function from positions to selections: `resolve(a ++ b) = resolve(a) ++ resolve(b)`.

    Positions count through the epochs: with epochs of one length, position `k` is sample `k % len` of epoch
    `k // len`. Packs that are planned again in every epoch have epochs of unequal lengths; `start`, `sizes` and
    `locate` hold for all plans. Planning is done for many positions at once (a few thousand or more): the cost of a
    call is spread over them.

    A subclass with epochs of one length defines `__len__`, and has `start`, `sizes`, `locate`, `anchor`, `uneven` and
    `empty` from here. They depend on each other, so a class that replaces one of them has to define all of `EPOCHS`;
    anything else raises `TypeError` when the class is created.
    """

    views: tuple[View, ...]
    """The distinct views; `resolve` gives one selection for each."""
    reads: tuple[Read, ...]
    """The output columns."""
    marks: tuple[Mark, ...]
    """What the batch carries besides columns: masks where something is padded, segment ids where it is packed."""
    fingerprint: str
    """A digest of the episodes, the parameters and the seed: equal plans give equal selections."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        stated = {name for name in EPOCHS if name in vars(cls)}
        derived = next((base for base in cls.__mro__[1:] if "start" in vars(base)), Plan)  # whose epochs it would have
        if stated and len(stated) < len(EPOCHS) and (derived is not Plan or stated != {"__len__"}):
            given = f"those of {derived.__name__}" if derived is not Plan else "fixed-length ones"
            raise TypeError(
                f"expected {cls.__name__} to define all of {sorted(EPOCHS)} or none, got {sorted(stated)}: its other "
                f"methods would still describe {given}. For the epochs of the plan below derive from Reordered and "
                "define positions alone; for epochs of another, fixed length derive from DerivedPlan"
            )

    @property
    @abstractmethod
    def steady(self) -> bool:
        """Whether every epoch has the same samples, in any order. Packs are then planned once for all epochs."""

    @property
    def periodic(self) -> bool:
        """Whether every epoch has the same samples in the same order, so that each part of an epoch has them too."""
        return False

    @property
    def uneven(self) -> bool:
        """Whether epochs may have unequal lengths."""
        return False

    @property
    def empty(self) -> bool:
        """Whether no epoch has samples. Where epochs have unequal lengths, some may have none and others some."""
        return len(self) == 0

    def anchor(self, epoch: int, start: int) -> None:
        """Take it that an epoch begins at position `start`. Spares an uneven plan the epochs before."""

    @property
    def even(self) -> tuple[int, ...] | None:
        """The rows that every sample has in each view, padding not counted; None where samples differ."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """Samples in one epoch; in the first, where they differ."""

    def start(self, epoch: int) -> int:
        """The first position of an epoch."""
        return epoch * len(self)

    def sizes(self, epoch: Int) -> Int:
        """`[n]` int64 samples in each of the epochs `[n]`."""
        return np.full(len(epoch), len(self))

    def locate(self, k: Int) -> tuple[Int, Int]:
        """`[n]` epoch of each position, and `[n]` place in it."""
        return epochs(k, len(self))

    @abstractmethod
    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """One `Selection` for each view, with the samples of `[n]` int64 `positions`, in their order.

        Raises `PlanError` for negative positions, and for any position of an empty plan.
        """

    def lengths(self, positions: Int) -> tuple[Int, ...]:
        """For each view the `[n]` int64 rows that the samples at `positions` have there, padding not counted."""
        return tuple(real_rows(selection) for selection in self.resolve(positions))

    def length_table(self, view: int) -> Int | None:
        """`[len(self)]` the lengths of all samples of the first epoch in a view, if the plan holds them."""
        return None

    def why_empty(self) -> str:
        """Why an epoch has no samples, for messages; asked of empty plans alone."""
        return f"{type(self).__name__} has none"

    def rows(self) -> int:
        """The rows of all samples of the first epoch, counted once for each axis. Cost: one pass over the lengths.

        Raises `PlanError` for a plan without end.
        """
        views = {
            self.views[read.view].axis: read.view for read in self.reads if self.views[read.view].align != "episode"
        }
        if self.even is not None:
            return len(self) * sum(self.even[view] for view in views.values())
        check_ends(self, "counting its rows")
        blocks = (np.arange(lo, min(lo + BLOCK, len(self))) for lo in range(0, len(self), BLOCK))
        return sum(int(found[view].sum()) for k in blocks for found in [self.lengths(k)] for view in views.values())


class DerivedPlan(Plan):
    """A plan whose samples are samples of the plan `upstream`, with fixed-length epochs of its own.

    A subclass defines `__len__`, the samples of an epoch; `positions`, where they are in the plan below; and `steady`.
    It states `periodic` too if its epochs are all in the same order. Views, reads and marks are those of the plan
    below.
    """

    def __init__(self, upstream: Plan, transform: object) -> None:
        self.upstream = upstream
        self.views, self.reads, self.marks = upstream.views, upstream.reads, upstream.marks
        self.fingerprint = chained(upstream.fingerprint, transform)
        self._takes = f"{transform!r} keeps"

    def why_empty(self) -> str:
        """What the plan below says, or that it has samples and this one takes none of them."""
        if self.upstream.empty:
            return self.upstream.why_empty()
        return f"{self._takes} none of {len(self.upstream):,} samples"

    @property
    def even(self) -> tuple[int, ...] | None:
        """As the plan below."""
        return self.upstream.even

    def lengths(self, positions: Int) -> tuple[Int, ...]:
        """Those of the plan below, at its own positions."""
        return self.upstream.lengths(self.positions(checked(self, positions)))

    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """The selections of the plan below, at its own positions."""
        return self.upstream.resolve(self.positions(checked(self, positions)))

    @abstractmethod
    def positions(self, k: Int) -> Int:
        """`[n]` int64 positions in the plan below for `[n]` positions `k >= 0` in this one (epochs count on)."""


class Reordered(DerivedPlan):
    """A plan with the samples of the plan below in another order, which stays within each epoch.

    `positions` is all that a subclass defines: a permutation of each epoch. Epochs may have unequal lengths, so it uses
    `self.locate(k)` and `self.sizes(epoch)` instead of `len(self)`. Everything about epochs is that of the plan below:
    where each begins, how long it is, and whether all have the same samples.
    """

    @property
    def steady(self) -> bool:
        """As the plan below."""
        return self.upstream.steady

    @property
    def uneven(self) -> bool:
        """As the plan below."""
        return self.upstream.uneven

    @property
    def empty(self) -> bool:
        """As the plan below."""
        return self.upstream.empty

    def anchor(self, epoch: int, start: int) -> None:
        """Handed down."""
        self.upstream.anchor(epoch, start)

    def __len__(self) -> int:
        return len(self.upstream)

    def start(self, epoch: int) -> int:
        """As the plan below."""
        return self.upstream.start(epoch)

    def sizes(self, epoch: Int) -> Int:
        """As the plan below."""
        return self.upstream.sizes(epoch)

    def locate(self, k: Int) -> tuple[Int, Int]:
        """As the plan below."""
        return self.upstream.locate(k)


class EpisodeTransform(ABC):
    """Episodes to episodes: `Where`, `Split`. A frozen dataclass."""

    @abstractmethod
    def choose(self, episodes: Episodes) -> Episodes:
        """The episodes that stay."""


class SampleTransform(ABC):
    """Episodes to a plan: `Steps`, `Windows`, `Pairs`, `TargetPairs`, `Sequences`. A frozen dataclass; one a chain."""

    @abstractmethod
    def plan(self, episodes: Episodes) -> Plan:
        """The plan over these episodes."""


class PlanTransform(ABC):
    """Plan to plan: `Shuffle`, `Repeat`, `Shard`, `Pack`. A frozen dataclass."""

    @abstractmethod
    def reorder(self, plan: Plan) -> Plan:
        """The reordered plan."""


Transform = EpisodeTransform | SampleTransform | PlanTransform


def chained(fingerprint: str, transform: object) -> str:
    """The fingerprint of a transform on top of what has `fingerprint`.

    >>> chained("a", "Shuffle(seed=0)") == chained("a", "Shuffle(seed=1)")
    False
    """
    return hashlib.sha256(f"{fingerprint} {transform!r}".encode()).hexdigest()


def checked(plan: Plan, positions: Int) -> Int:
    """`[n]` positions as int64. Raises `PlanError` if one is negative, or if the plan is empty."""
    k = np.ascontiguousarray(positions, np.int64)
    if len(k) and k.min() < 0:
        raise PlanError(f"expected positions of 0 or more, got {k.min()}")
    if len(k) and plan.empty:
        raise PlanError(f"expected a plan with samples, got an empty one: {plan.why_empty()}")
    return k


def check_ends(plan: Plan, purpose: str) -> None:
    """Raise `PlanError` for a plan without end, where all samples of an epoch would have to be gone through."""
    if len(plan) > ENDLESS // 2:  # some whole epochs below may not fill 2^62 exactly
        raise PlanError(
            f"expected a plan with an end for {purpose}, got a mix that never stops; give mix() another stop, or call "
            "nominal(n) first"
        )


def real_rows(selection: Selection) -> Int:
    """`[n]` int64 rows of each sample that are real.

    >>> one = np.ones(2, np.int64)
    >>> real_rows(Selection(one, one, one, np.array([0, 3]), (3, 2))).tolist()
    [1, 1, 0]
    """
    sample, length = selection.at // selection.shape[1], selection.length
    if selection.real is not None:
        sample, length = sample[selection.real], length[selection.real]
    return np.bincount(sample, length, selection.shape[0]).astype(np.int64)


def epochs(k: Int, n: int) -> tuple[Int, Int]:
    """`[n]` epoch and `[n]` place in it of positions `k`, for epochs of `n` samples. Divides only if it must.

    >>> [part.tolist() for part in epochs(np.array([1, 5, 6]), 3)]
    [[0, 1, 2], [1, 2, 0]]
    """
    if len(k) == 0:
        return k, k
    first = int(k[0]) // n
    place = k - first * n
    if place.min() >= 0 and place.max() < n:
        return np.full(len(k), first), place
    return np.divmod(k, n)


def apply(start: Episodes | Plan, *transforms: Transform) -> Episodes | Plan:
    """Apply transforms one after the other.

    Raises `PlanError` where one stands in a wrong place, naming it and what stands before it.
    """
    stage: Episodes | Plan = start
    before: object = type(start).__name__
    for transform in transforms:
        stage = _step(stage, transform, before)
        before = transform
    return stage


def _step(stage: Episodes | Plan, transform: Transform, before: object) -> Episodes | Plan:
    if isinstance(stage, Episodes):
        if isinstance(transform, EpisodeTransform):
            return transform.choose(stage)
        if isinstance(transform, SampleTransform):
            return transform.plan(stage)
        _known(transform, before)
        raise PlanError(
            f"expected {transform!r} after Steps, Windows, Pairs or Sequences, got it after {before!r}, "
            "which has no samples yet"
        )
    if isinstance(transform, PlanTransform):
        return transform.reorder(stage)
    _known(transform, before)
    raise PlanError(f"expected {transform!r} before the samples are cut, got it after {before!r}")


def _known(transform: object, before: object) -> None:
    if not isinstance(transform, EpisodeTransform | SampleTransform | PlanTransform):
        raise PlanError(f"expected a transform such as Windows or Shuffle after {before!r}, got {transform!r}")


def settle(transform: object, name: str, least: int, most: int | None = None) -> None:
    """Turn one field of a frozen dataclass into a plain `int`, for its repr is part of fingerprints.

    Raises `PlanError` if it is no integer, or outside `least` to `most`.
    """
    value = getattr(transform, name)
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = f"of at least {least}" if most is None else f"within {least} to {most}"
        raise PlanError(f"expected {type(transform).__name__} {name} to be an integer {limit}, got {value!r}")
    object.__setattr__(transform, name, int(value))
