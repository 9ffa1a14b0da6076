"""Column functions for goals: choose between drawn and recorded goals, and compute rewards again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged
from penstock.data.map_function import Mapped
from penstock.data.names import name_of
from penstock.errors import SpecError


@dataclass(frozen=True)
class GoalChoice:
    """Make one column of drawn and recorded goals."""

    name: str

    @property
    def fingerprint(self) -> str:
        return repr(self)

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        """Replace the two columns of goals by one."""
        drawn, original = columns[f"{self.name}/drawn"], columns[f"{self.name}/original"]
        if (drawn.dtype, drawn.shape) != (original.dtype, original.shape):
            raise SpecError(
                f"expected recorded goals like drawn ones, {drawn.dtype}{list(drawn.shape)}, got {original.dtype}"
                f"{list(original.shape)}; choose another column as original"
            )
        parts = {f"{self.name}/drawn", f"{self.name}/original"}
        flat = {name: array for name, array in columns.flat.items() if name not in parts}
        return Columns.of_flat({**flat, self.name: _chosen(columns[f"{self.name}_drawn"], drawn, original)}, columns.n)


@dataclass(frozen=True)
class Relabelled(Mapped):
    """A function that computes some columns again, for the samples whose goal was drawn."""

    goal: str = "goal"

    @property
    @override
    def fingerprint(self) -> str:
        return f"relabel({self.digest.text}, goal={self.goal})"

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        """Replace or add the columns that the function returns."""
        if self.goal not in columns.flat:
            raise SpecError(
                f"expected goals to relabel, got no column {self.goal!r}; call goals() first, select_columns() last"
            )
        outputs = Columns(self.fn(columns))
        drawn = columns.flat.get(f"{self.goal}_drawn")
        flat = dict(columns.flat)
        for name, new in outputs.flat.items():
            old = flat.get(name)
            if old is not None and (new.dtype, new.shape) != (old.dtype, old.shape):
                raise SpecError(
                    f"expected {name!r} from {self!r} as {old.dtype}{list(old.shape)}, got {new.dtype}"
                    f"{list(new.shape)}; convert it, or choose another name"
                )
            if old is None and len(new) != columns.n:
                raise SpecError(f"expected {columns.n} rows of {name!r} from {self!r}, got {len(new)}")
            flat[name] = new if old is None or drawn is None else _chosen(drawn, new, old)
        return Columns.of_flat(flat, columns.n)

    def __repr__(self) -> str:
        return f"relabel({name_of(self.fn)})"


def _chosen(drawn: Array, one: Array, other: Array) -> Array:
    """Rows of `one` where `drawn` is True, and of `other` elsewhere."""
    if isinstance(one, Ragged) or isinstance(other, Ragged):
        raise SpecError("expected columns of arrays of one shape to choose rows from, got a ragged column")
    return np.where(np.asarray(drawn).reshape(-1, *(1,) * (one.ndim - 1)), one, other)
