"""`Select`: some of the columns. `Take`: some of the samples, by a table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import under
from penstock.core.frozen import set_fields
from penstock.core.ragged import ranges
from penstock.errors import PlanError, SpecError, suggestion
from penstock.plan.base import DerivedPlan, FixedPlan, Plan, SameOrder, in_each_epoch
from penstock.plan.transform import PlanTransform


@dataclass(frozen=True)
class Select(PlanTransform):
    """Keep only the columns at or below some names. Other columns are not read.

    Derived outputs, such as masks, stay in every selection, named or not: they cost no reading.
    """

    columns: tuple[str, ...]

    def reorder(self, plan: Plan) -> Plan:
        """Return the same samples with fewer columns."""
        known = [read.name for read in plan.reads] + [mark.name for mark in plan.marks]
        for name in self.columns:
            if not any(under(name, each) for each in known):
                raise SpecError(f"expected a column among {known}, got {name!r}{suggestion(name, known)}")
        return SelectedPlan(plan, self)


class SelectedPlan(SameOrder):
    """Plan of `Select`."""

    def __init__(self, upstream: Plan, transform: Select) -> None:
        super().__init__(upstream, transform)
        self.reads = tuple(r for r in upstream.reads if any(under(name, r.name) for name in transform.columns))


@dataclass(frozen=True, eq=False)
class Take(PlanTransform):
    """Take samples of the first epoch, in a given order that every epoch repeats. Shuffle afterwards."""

    rows: IntArray = field(repr=False)

    def __post_init__(self) -> None:
        set_fields(self, rows=np.ascontiguousarray(self.rows, np.int64))

    def __repr__(self) -> str:
        return f"Take(n={len(self.rows)}, sha256={hashlib.sha256(self.rows.tobytes()).hexdigest()[:16]!r})"

    @override
    def reorder(self, plan: Plan) -> Plan:
        check_takable(plan, repr(self))
        if len(self.rows) and not (self.rows.min() >= 0 and self.rows.max() < len(plan)):
            raise PlanError(f"expected rows within 0:{len(plan)}, got {self.rows.min()}:{self.rows.max() + 1}")
        return SubsetPlan(plan, self)


def check_takable(plan: Plan, what: str) -> None:
    """Raise `PlanError` if the epochs of a plan have different samples."""
    if not plan.steady:
        raise PlanError(
            f"expected {what} on a plan with the same samples every epoch, got one whose epochs differ, such as a mix "
            "or a share of a shuffle; take before mixing, and shuffle after shard"
        )


def rows_of_mask(mask: object, n: int, unit: str) -> IntArray:
    """Return the numbers of the rows that a mask keeps."""
    keep = np.asarray(mask)
    if keep.dtype != np.bool_ or keep.shape != (n,):
        raise PlanError(
            f"expected a condition as text, a function, or a mask of one bool for each {unit} ({n}), got an array of "
            f"{keep.dtype}{list(keep.shape)}"
        )
    return np.flatnonzero(keep)


class SubsetPlan(FixedPlan, DerivedPlan):
    """Plan of `Take`."""

    loses = "left out by filter"

    def __init__(self, upstream: Plan, transform: Take) -> None:
        super().__init__(upstream, transform)
        self._rows = transform.rows
        self._takes = "filter() or an index keeps"

    def __len__(self) -> int:
        return len(self._rows)

    def positions(self, k: IntArray) -> IntArray:
        """The positions of the table, in the first epoch below."""
        _, place = self.locate(k)
        return self._rows[place]

    @override
    def span(self, lo: int, hi: int) -> tuple[int, int]:
        return 0, len(self.upstream)

    @override
    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        """By a search in the sorted table, in which a sample may be several times."""
        first = self._rows.searchsorted(below, sorter=self._sorted)
        last = self._rows.searchsorted(below, "right", sorter=self._sorted)
        places = np.sort(self._sorted[ranges(first, last - first)])
        return in_each_epoch(places, len(self), lo, hi)

    @cached_property
    def _sorted(self) -> IntArray:
        """`[n]` places of the table, in the order of their samples."""
        return np.argsort(self._rows, kind="stable")
