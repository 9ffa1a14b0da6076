"""`Select`: some of the output columns; `Take`: some of the samples, by a table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.core.columns import under
from penstock.errors import PlanError, SpecError
from penstock.plan.base import DerivedPlan, Plan, PlanTransform, Reordered

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


class Selected(Reordered):
    """What `Select` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Select) -> None:
        super().__init__(upstream, transform)
        self.reads = tuple(r for r in upstream.reads if any(under(name, r.name) for name in transform.columns))

    @property
    def periodic(self) -> bool:
        """As the plan below."""
        return self.upstream.periodic

    def length_table(self, view: int) -> Int | None:
        """As the plan below."""
        return self.upstream.length_table(view)

    def positions(self, k: Int) -> Int:
        """The same ones."""
        return k


@dataclass(frozen=True, eq=False)
class Take(PlanTransform):
    """The samples at `rows` `[n]` int64 of the first epoch, in that order, every epoch alike: shuffle afterwards.

    Raises `PlanError` for rows outside the epoch, or on a plan whose epochs have other samples. Memory: 8 bytes each.

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
        check_takable(plan, repr(self))
        if len(self.rows) and not (self.rows.min() >= 0 and self.rows.max() < len(plan)):
            raise PlanError(f"expected rows within 0:{len(plan)}, got {self.rows.min()}:{self.rows.max() + 1}")
        return Taken(plan, self)


def check_takable(plan: Plan, what: str) -> None:
    """Raise `PlanError` where the first epoch does not tell what samples there are, as `what` would have it."""
    if not plan.steady:
        raise PlanError(
            f"expected {what} on a plan with the same samples every epoch, got one whose epochs differ, such as a mix "
            "or a share of a shuffle; take before mixing, and shuffle after shard"
        )


class Taken(DerivedPlan):
    """What `Take` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Take) -> None:
        super().__init__(upstream, transform)
        self._rows = transform.rows
        self._takes = "where() or take() keeps"

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def steady(self) -> bool:
        """Every epoch is the table."""
        return True

    @property
    def periodic(self) -> bool:
        """Every epoch is the table."""
        return True

    def positions(self, k: Int) -> Int:
        """Out of the table, in the first epoch below."""
        _, place = self.locate(k)
        return self._rows[place]
