"""`Select`: some of the output columns; `Take`: some of the samples, by a table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.core.columns import under
from penstock.errors import PlanError, SpecError
from penstock.plan.base import Plan, PlanTransform, Reordered, SameEpochs

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Select(PlanTransform):
    """Only the outputs at or below the names in `columns`; the others are not read. Marks stay.

    Raises `SpecError` for a name that no output has.

    >>> Select(("observations",))
    Select(columns=('observations',))
    """

    columns: tuple[str, ...]

    def reorder(self, plan: Plan) -> Plan:
        """The same samples with fewer columns."""
        for name in self.columns:
            if not any(under(name, read.name) for read in plan.reads):
                raise SpecError(f"expected a column among {[r.name for r in plan.reads]}, got {name!r}")
        return Selected(plan, self)


class Selected(SameEpochs):
    """What `Select` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Select) -> None:
        super().__init__(upstream, transform)
        self.reads = tuple(r for r in upstream.reads if any(under(name, r.name) for name in transform.columns))

    def length_table(self, view: int) -> Int | None:
        """As the plan below."""
        return self.upstream.length_table(view)

    def positions(self, k: Int) -> Int:
        """The same ones."""
        return k


@dataclass(frozen=True, eq=False)
class Take(PlanTransform):
    """The samples at `rows` `[n]` int64 of the first epoch, in that order, every epoch alike: shuffle afterwards.

    Raises `PlanError` for rows outside the epoch, or on a mix whose epochs have other samples. Memory: 8 bytes each.

    >>> Take(np.array([2, 5]))
    Take(n=2, sha256='26cfbb315c316a0b')
    """

    rows: Int = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", np.ascontiguousarray(self.rows, np.int64))

    def __repr__(self) -> str:
        return f"Take(n={len(self.rows)}, sha256={hashlib.sha256(self.rows.tobytes()).hexdigest()[:16]!r})"

    def reorder(self, plan: Plan) -> Plan:
        """The plan of these samples alone."""
        if not plan.steady:
            raise PlanError(
                f"expected {self!r} on a plan with the same samples every epoch, got a mix; take before mixing"
            )
        if len(self.rows) and not (self.rows.min() >= 0 and self.rows.max() < len(plan)):
            raise PlanError(f"expected rows within 0:{len(plan)}, got {self.rows.min()}:{self.rows.max() + 1}")
        return Taken(plan, self)


class Taken(Reordered):
    """What `Take` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Take) -> None:
        super().__init__(upstream, transform)
        self._rows = transform.rows

    def __len__(self) -> int:
        return len(self._rows)

    def positions(self, k: Int) -> Int:
        """Out of the table, in the first epoch below."""
        _, place = self.locate(k)
        return self._rows[place]
