"""Values computed from all samples of a dataset, block by block: conditions and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns
from penstock.core.lazy_columns import LazyColumns
from penstock.core.ragged import Array
from penstock.data.progress import tracked
from penstock.errors import PlanError, SpecError, suggestion
from penstock.plan.anchored import AnchoredPlan
from penstock.plan.base import DerivedPlan, Plan
from penstock.plan.episodes import Episodes
from penstock.plan.select import Select, check_takable
from penstock.plan.sequences import SequencePlan

if TYPE_CHECKING:
    from penstock.core.arrays import IntArray
    from penstock.data.map_dataset import MapDataset

BLOCK = 4096  # samples of a scan that are read at a time, and how many bytes of them
BLOCK_BYTES = 32 << 20

By = Literal["sample", "episode"]
WeightFn = Callable[[Any], Any]


def scan(dataset: MapDataset, fn: Callable[[Columns], AnyArray], name: str, progress: bool | None) -> AnyArray:
    """Return the values of a function for all samples of the first epoch, `[len(dataset)]`."""
    check_takable(dataset.plan, name)
    size = max(1, min(BLOCK, BLOCK_BYTES // max(dataset.row_bytes(), 1)))
    selected: list[AnyArray] = []
    narrowed: dict[tuple[str, ...], MapDataset] = {}
    for lo in tracked(range(0, len(dataset), size), name, progress):
        positions = np.arange(lo, min(lo + size, len(dataset)))
        selected.append(fn(dataset.batch(positions) if dataset.maps else _lazy(dataset, positions, narrowed)))
    return np.concatenate(selected) if selected else np.zeros(0)


def _lazy(dataset: MapDataset, positions: IntArray, narrowed: dict[tuple[str, ...], MapDataset]) -> LazyColumns:
    """Columns of samples, of which those are read that the function uses. `narrowed` keeps the datasets of these."""

    def read(names: Sequence[str]) -> dict[str, Array]:
        key = tuple(names)
        if key not in narrowed:
            narrowed[key] = dataset.apply(Select(key))
        return {path: array for path, array in narrowed[key].batch(positions).flat.items() if path in key}

    return LazyColumns(
        [read.name for read in dataset.plan.reads] + [mark.name for mark in dataset.plan.marks], len(positions), read
    )


def sample_weights(dataset: MapDataset, weights: Any, fn: WeightFn | None, by: By, progress: bool | None) -> AnyArray:
    """Return a weight for each sample of the first epoch, `[len(dataset)]`."""
    if by not in ("sample", "episode"):
        raise PlanError(f"expected by to be 'sample' or 'episode', got {by!r}")
    if by == "episode":
        check_takable(dataset.plan, "weighted")
        episodes, owner = _owners(dataset.plan)
        values = weights
        if isinstance(weights, str):
            values = _column(episodes.described(), weights)
        elif callable(weights):
            values = weights(episodes.described())
        return _sized(values, fn, len(episodes), "episode")[owner]
    if isinstance(weights, str):
        narrow = dataset if dataset.maps else dataset.apply(Select((weights,)))
        return scan(
            narrow, lambda columns: _sized(_column(columns, weights), fn, columns.n, "sample"), "weighted", progress
        )
    if callable(weights):
        return scan(dataset, lambda columns: _sized(weights(columns), fn, columns.n, "sample"), "weighted", progress)
    return _sized(weights, fn, len(dataset), "sample")


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
