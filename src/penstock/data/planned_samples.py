"""`PlannedSamples`: the samples of a plan, read from its sources and passed through functions.

`MapDataset` is what people use; loaders, replay, mixes and pictures of plans use these.

The origin of samples says how they were made. It is a chain: each origin has the samples before and one transform or
function, and the first one has the episodes or the mix. `as_of` makes the samples again over the first episodes of
their sources, for states that were saved before the sources grew. `remade` makes them again over another root, for a
mix that changes in mid-run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns, LazyColumns
from penstock.core.ragged import Array
from penstock.core.selection import Selection
from penstock.data.fetch import Empty, Fetch
from penstock.data.map_function import ColumnFunction, Mapped
from penstock.data.names import source_text, step_text
from penstock.data.progress import tracked
from penstock.errors import PlanError, SpecError, suggestion
from penstock.files.remote import Wanted
from penstock.formats.base.source import Source
from penstock.plan.anchored import AnchoredPlan
from penstock.plan.base import DerivedPlan, Plan, chained
from penstock.plan.episodes import Episodes
from penstock.plan.select import Select, Take, check_takable
from penstock.plan.sequences import SequencePlan
from penstock.plan.transform import PlanTransform
from penstock.plan.weighted import Weighted
from penstock.plan.without import Without

BLOCK = 4096  # samples of a scan that are read at a time, and how many bytes of them
BLOCK_BYTES = 32 << 20

By = Literal["sample", "episode"]
WeightFn = Callable[[Any], Any]


def scan(samples: PlannedSamples, fn: Callable[[Columns], AnyArray], name: str, progress: bool | None) -> AnyArray:
    """Return the values of a function for all samples of the first epoch, `[len(samples)]`."""
    check_takable(samples.plan, name)
    size = max(1, min(BLOCK, BLOCK_BYTES // max(samples.row_bytes(), 1)))
    selected: list[AnyArray] = []
    narrowed: dict[tuple[str, ...], PlannedSamples] = {}
    for lo in tracked(range(0, len(samples), size), name, progress):
        positions = np.arange(lo, min(lo + size, len(samples)))
        selected.append(fn(samples.at(positions) if samples.maps else _lazy(samples, positions, narrowed)))
    return np.concatenate(selected) if selected else np.zeros(0)


def _lazy(samples: PlannedSamples, positions: IntArray, narrowed: dict[tuple[str, ...], PlannedSamples]) -> LazyColumns:
    """Columns of samples, of which those are read that the function uses. `narrowed` keeps the samples with these."""

    def read(names: Sequence[str]) -> dict[str, Array]:
        key = tuple(names)
        if key not in narrowed:
            narrowed[key] = samples.reordered(Select(key))
        return {path: array for path, array in narrowed[key].at(positions).flat.items() if path in key}

    return LazyColumns(
        [read.name for read in samples.plan.reads] + [mark.name for mark in samples.plan.marks], len(positions), read
    )


def sample_weights(
    samples: PlannedSamples, weights: Any, fn: WeightFn | None, by: By, progress: bool | None
) -> AnyArray:
    """Return a weight for each sample of the first epoch, `[len(samples)]`."""
    if by not in ("sample", "episode"):
        raise PlanError(f"expected by to be 'sample' or 'episode', got {by!r}")
    if by == "episode":
        check_takable(samples.plan, "weighted")
        episodes, owner = _owners(samples.plan)
        values = weights
        if isinstance(weights, str):
            values = _column(episodes.described(), weights)
        elif callable(weights):
            values = weights(episodes.described())
        return _sized(values, fn, len(episodes), "episode")[owner]
    if isinstance(weights, str):
        narrow = samples if samples.maps else samples.reordered(Select((weights,)))
        return scan(
            narrow, lambda columns: _sized(_column(columns, weights), fn, columns.n, "sample"), "weighted", progress
        )
    if callable(weights):
        return scan(samples, lambda columns: _sized(weights(columns), fn, columns.n, "sample"), "weighted", progress)
    return _sized(weights, fn, len(samples), "sample")


def _column(columns: Columns, name: str) -> Any:
    if name not in columns:
        known = list(columns)
        raise SpecError(f"expected a column among {known}, got {name!r}{suggestion(name, known)}")
    return columns[name]


def _sized(values: Any, fn: WeightFn | None, n: int, unit: str) -> AnyArray:
    array = np.asarray(values if fn is None else fn(values))
    if array.shape != (n,):
        reduce = "; reduce the steps of a sample, as in lambda a: np.exp(a[:, 0])" if array.shape[:1] == (n,) else ""
        raise PlanError(
            f"expected one weight for each {unit}, [{n}], got an array of shape {list(array.shape)}{reduce}"
        )
    return array


def _owners(plan: Plan) -> tuple[Episodes, IntArray]:
    """The episodes that samples were made of, and the row of each sample's episode in their table."""
    k = np.arange(len(plan))
    while isinstance(plan, DerivedPlan):
        k, plan = plan.positions(k), plan.upstream
    if not isinstance(plan, AnchoredPlan | SequencePlan):
        raise PlanError(
            f"expected samples of one dataset to weight by episode, got {type(plan).__name__}; weight the datasets "
            "before they are mixed or packed"
        )
    return plan.episodes, plan.owners(k)


class SamplesOrigin(Protocol):
    """How samples were made, so that they can be made again over other episodes."""

    @property
    def chain(self) -> tuple[str, ...]:
        """The source, and the transforms that were applied, in order, as text."""
        ...

    def as_of(self, episodes: Sequence[int]) -> PlannedSamples | None:
        """Return the samples over earlier sources, or None if a source does not know its earlier fingerprint."""
        ...

    def remade(self, make: Callable[[object], PlannedSamples | None]) -> PlannedSamples | None:
        """Return the samples over another root, with the same transforms and functions, or None."""
        ...


@runtime_checkable
class MixOrigin(Protocol):
    """How a mix was made."""

    def with_parts(self, change: Callable[[PlannedSamples], PlannedSamples]) -> PlannedSamples: ...


class PlannedSamples:
    """Samples of a plan. `origin` says how to make them again; without it they cannot be."""

    def __init__(
        self,
        sources: Sequence[Source],
        plan: Plan,
        maps: Sequence[ColumnFunction] = (),
        origin: SamplesOrigin | None = None,
    ) -> None:
        self.sources = tuple(sources)
        self.plan = plan
        self.maps = tuple(maps)
        self.origin = origin
        self._fetch = Fetch(self.sources, plan)

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def outputs(self) -> dict[str, str]:
        """What each output is read or derived from. Functions may change them."""
        derived = {mark.name: f"({mark.kind})" for mark in self.plan.marks}
        return {read.name: read.column for read in self.plan.reads} | derived

    @property
    def chain(self) -> tuple[str, ...]:
        """The source, and the transforms and functions that were applied, in order, as text."""
        if self.origin is None:
            return (" + ".join(map(source_text, self.sources)), type(self.plan).__name__)
        return self.origin.chain

    @property
    def fingerprint(self) -> str:
        """SHA-256 hex digest of the data, the plan and the functions."""
        digest = self.plan.fingerprint
        for stage in self.maps:
            digest = chained(digest, stage.fingerprint)
        return digest

    def at(self, positions: IntArray) -> Columns:
        """Read samples by position, which continues through all epochs, and apply the functions."""
        positions = np.asarray(positions, np.int64)
        return self.mapped(self.read(self.resolve(positions)), positions)

    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """Plan samples without reading them: one selection of rows for each view of the plan."""
        if len(positions) and self.plan.empty:
            raise PlanError(f"expected a dataset with samples, got an empty one: {self.plan.why_empty()}")
        return self.plan.resolve(positions)

    def read(self, selections: Sequence[Selection], empty: Empty = np.empty) -> Columns:
        """Read selections without applying the functions. `empty` allocates each output array."""
        return self._fetch(selections, empty)

    def mapped(self, columns: Columns, positions: IntArray) -> Columns:
        """Apply the functions to rows that were read, to which nothing else refers: the first may overwrite them."""
        positions = self.plan.originals(positions) if self.maps else positions
        for number, fn in enumerate(self.maps):
            if number == 0 and isinstance(fn, Mapped):
                columns = fn.overwrite(columns, positions)
            else:
                columns = fn(columns, positions)
        return columns

    def remote_ranges(self, selections: Sequence[Selection]) -> list[Wanted]:
        """Return the bytes behind URLs that `read` would fetch, as far as the formats know them in advance."""
        return self._fetch.remote_ranges(selections)

    def ranges_by_column(self, selections: Sequence[Selection]) -> Iterator[tuple[int, str, list[Wanted]]]:
        """Yield the output of `remote_ranges` in parts: number of the source, name of the column, and its bytes."""
        return self._fetch.ranges_by_column(selections)

    def row_bytes(self) -> int:
        """Return the approximate size of one sample in bytes, before the functions."""
        return self._fetch.row_bytes()

    def reordered(self, transform: PlanTransform, stages: Sequence[ColumnFunction] = ()) -> PlannedSamples:
        """Return the samples after a transform of the plan, and the functions that belong to it."""
        origin = _Derived(self, transform, tuple(stages))
        return PlannedSamples(self.sources, transform.reorder(self.plan), (*self.maps, *stages), origin)

    def through(self, function: Mapped) -> PlannedSamples:
        return PlannedSamples(self.sources, self.plan, (*self.maps, function), _Derived(self, function))

    def as_of(self, episodes: Sequence[int]) -> PlannedSamples | None:
        """Return the samples as they were when each source had so many episodes, with the same transforms.

        None if a source does not know its earlier fingerprint. Raises `StateError` if a source has fewer episodes now.
        """
        return None if self.origin is None else self.origin.as_of(episodes)

    def remade(self, make: Callable[[object], PlannedSamples | None]) -> PlannedSamples | None:
        """Return the samples over another root, with the same transforms and functions.

        `make` is called with the origin of the root, the samples of episodes or a mix, and returns the new root or
        None. None also if a transform fits only these samples.
        """
        return None if self.origin is None else self.origin.remade(make)

    def with_parts(self, change: Callable[[PlannedSamples], PlannedSamples]) -> PlannedSamples | None:
        """Return a mix of changed datasets, also of datasets in mixes inside of it, with the same transforms.

        None if there is no mix, or a transform fits only these samples.
        """

        def within(part: PlannedSamples) -> PlannedSamples:
            return part.with_parts(change) or change(part)

        return self.remade(lambda origin: origin.with_parts(within) if isinstance(origin, MixOrigin) else None)


@dataclass(frozen=True)
class _Derived:
    """The samples before, the transform or function that was applied to them, and functions that belong to it."""

    parent: PlannedSamples
    step: PlanTransform | Mapped
    stages: tuple[ColumnFunction, ...] = ()

    @property
    def chain(self) -> tuple[str, ...]:
        return *self.parent.chain, step_text(self.step)

    def as_of(self, episodes: Sequence[int]) -> PlannedSamples | None:
        return self._repeated(self.parent.as_of(episodes))

    def remade(self, make: Callable[[object], PlannedSamples | None]) -> PlannedSamples | None:
        return self._repeated(self.parent.remade(make))

    def _repeated(self, parent: PlannedSamples | None) -> PlannedSamples | None:
        if parent is None or isinstance(self.step, Take | Weighted):  # a table of samples fits only these samples
            return None
        if isinstance(self.step, Without) and parent.sources != self.parent.sources:  # it names them by number
            return None
        return parent.through(self.step) if isinstance(self.step, Mapped) else parent.reordered(self.step, self.stages)
