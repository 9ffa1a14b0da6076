"""Values computed from all samples of a dataset, block by block: conditions and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.core.lazy_columns import LazyColumns
from penstock.core.ragged import Array
from penstock.data.planned_samples import PlannedSamples
from penstock.data.progress import tracked
from penstock.errors import PlanError, SpecError, suggestion
from penstock.plan.anchored import AnchoredPlan
from penstock.plan.base import DerivedPlan, Plan
from penstock.plan.episodes import Episodes
from penstock.plan.select import Select, check_takable
from penstock.plan.sequences import SequencePlan

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
