"""A plan: position `k` to a selection, by arithmetic alone; and the transforms that build plans."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.errors import PlanError
from penstock.plan.episodes import Episodes

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class View:
    """Which rows of a sample a read wants: `range(lo, hi, every)`, counted from the sample's anchor step, in the row
    space of `align`. For `"episode"` it is the one row of the sample's episode, and `lo, hi` are 0, 1.

    Rows lie inside their episode: `0 : T + end`, where `end` is 1 for boundary rows that may be the observation
    after the last step, and 0 otherwise.
    """

    align: Align
    lo: int
    hi: int
    every: int = 1
    end: int = 0

    @property
    def steps(self) -> range:
        """The rows, counted from the anchor."""
        return range(self.lo, self.hi, self.every)


@dataclass(frozen=True)
class Read:
    """One output column: `name` in the batch is `column` of the source, read through view number `view`.

    `squeeze` drops the step axis, for views of one row where a batch is `[n, ...]` and not `[n, 1, ...]`.
    """

    name: str
    column: str
    view: int
    squeeze: bool = False


class Plan(ABC):
    """A pure function from positions to selections: `resolve(a ++ b) = resolve(a) ++ resolve(b)`.

    Position `k` is sample `k % len` of epoch `k // len`. Planning is done for many positions at once (a few
    thousand or more): the cost of a call is spread over them.
    """

    @property
    @abstractmethod
    def views(self) -> tuple[View, ...]:
        """The distinct views; `resolve` gives one selection for each."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Read, ...]:
        """The output columns."""

    @property
    @abstractmethod
    def masks(self) -> tuple[tuple[str, int], ...]:
        """Output name and view number of every mask that the batch carries; empty where nothing is padded."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of the episodes, the parameters and the seed: equal plans give equal selections."""

    @abstractmethod
    def __len__(self) -> int:
        """Samples in one epoch."""

    @abstractmethod
    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """One `Selection` for each view, with the samples of `[n]` int64 `positions`, in their order.

        Raises `PlanError` for negative positions, and for any position of an empty plan.
        """


class Reordered(Plan):
    """A plan that only says where its positions lie in another: `positions` is all that a subclass defines."""

    def __init__(self, upstream: Plan, transform: object) -> None:
        self.upstream = upstream
        self._fingerprint = chained(upstream.fingerprint, transform)

    @property
    def views(self) -> tuple[View, ...]:
        """Those of the plan below."""
        return self.upstream.views

    @property
    def reads(self) -> tuple[Read, ...]:
        """Those of the plan below."""
        return self.upstream.reads

    @property
    def masks(self) -> tuple[tuple[str, int], ...]:
        """Those of the plan below."""
        return self.upstream.masks

    @property
    def fingerprint(self) -> str:
        """Digest of the plan below and this transform."""
        return self._fingerprint

    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """The selections of the plan below, at its own positions."""
        return self.upstream.resolve(self.positions(checked(self, positions)))

    @abstractmethod
    def positions(self, k: Int) -> Int:
        """`[n]` int64 positions in the plan below for `[n]` positions `k >= 0` in this one (epochs count on)."""


class EpisodeTransform(ABC):
    """Episodes to episodes: `Where`, `Split`. A frozen dataclass."""

    @abstractmethod
    def choose(self, episodes: Episodes) -> Episodes:
        """The episodes that stay."""


class SampleTransform(ABC):
    """Episodes to a plan: `Steps`, `Windows`, `Pairs`. A frozen dataclass; one a chain."""

    @abstractmethod
    def plan(self, episodes: Episodes) -> Plan:
        """The plan over these episodes."""


class PlanTransform(ABC):
    """Plan to plan: `Shuffle`, `Repeat`, `Shard`. A frozen dataclass."""

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
    if len(k) and len(plan) == 0:
        raise PlanError(
            "expected a plan with samples, got an empty one; check the filters and the window lengths: "
            "no episode that is left has room for one sample"
        )
    return k


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
            f"expected {transform!r} after Steps, Windows or Pairs, got it after {before!r}, which has no samples yet"
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
