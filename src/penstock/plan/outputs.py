"""Outputs of a plan: the rows that they need, the columns that they are read from, and what is derived from rows alone.

A plan has three tuples of these frozen dataclasses. A `View` is a range of rows around the anchor step of a sample, and
`Plan.resolve` returns one selection for each view. A `Read` is a column that is read through a view. A `DerivedOutput`,
such as a mask, is computed from the selection of a view without reading values. Their `repr` is part of fingerprints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.spec import Align
from penstock.errors import PlanError

RowSpace = Align | Literal["values"]
MarkKind = Literal[
    "mask",
    "segment_ids",
    "positions",
    "lengths",
    "cu_seqlens",
    "sources",
    "source",
    "origin",
    "present",
    "place",
    "drawn",
    "step_numbers",
    "episode_numbers",
    "source_numbers",
]


@dataclass(frozen=True)
class View:
    """Rows of a sample that a read needs: `range(lo, hi, every)`, counted from the anchor step.

    Rows stay inside their episode, `0 : T + end`.
    """

    align: RowSpace
    lo: int
    hi: int
    every: int = 1
    end: int = 0
    column: str = ""
    whole: bool = False
    drawn: str = ""

    @property
    def steps(self) -> Sequence[int]:
        """Rows, relative to the anchor."""
        return range(self.lo, self.hi, self.every)

    @property
    def axis(self) -> tuple[int, int, int, int, str, str]:
        """Key of the axis. Views with equal keys have equal numbers of rows in every sample."""
        return self.lo, self.hi, self.every, self.end, self.column, self.drawn


@dataclass(frozen=True)
class Read:
    """One output column."""

    name: str
    column: str
    view: int
    squeeze: bool = False
    fill: int | float = 0
    head: int | float = 0
    columns: tuple[str | None, ...] = ()

    def of(self, source: int) -> str | None:
        return self.columns[source] if self.columns else self.column


def padding_value(name: str, value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """Return the value of padding or of a start row in the dtype of a column."""
    try:
        with np.errstate(all="ignore"):
            converted = np.asarray(value).astype(dtype)
            fits = np.isfinite(converted) == np.isfinite(value) if dtype.kind in "fc" else converted == value
    except (OverflowError, ValueError, TypeError):
        converted, fits = np.zeros((), dtype), False
    if not fits:
        raise PlanError(
            f"expected a fill or head value that {name}, {dtype}, can hold, got {value!r}; give values by name, "
            f"{{{name!r}: 0}}, or convert the column"
        )
    return converted


@dataclass(frozen=True)
class DerivedOutput:
    """Output that is derived from the spans of a view, without values.

    Kinds:

    * `"mask"` `[n, L]` bool: True for real rows.
    * `"segment_ids"` `[n, L]` int32: number of the row's sequence in its pack, from 1; 0 in padding.
    * `"positions"` `[n, L]` int32: position of the row in its sequence; 0 in padding.
    * `"lengths"` `[n, width]` int32: rows of each sequence.
    * `"cu_seqlens"` `[n, width + 1]` int32: running sum of the lengths, from 0.
    * `"sources"` `[n, width]` int32: source of each sequence, -1 without a sequence.
    * `"source"` `[n]` int32: the part of a mix that each sample is from. `having` has the first source of each part.
    * `"origin"` `[n]` int64: the first source of that part. In a mix of mixes, of the innermost part.
    * `"present"` `[n]` bool: whether the sample's source is in `having`.
    * `"place"` `[n, 2]` int64: number of the sample's episode in its source, and the step of its first row; -1 without
      rows. The view must be one of boundary rows, which tell the end of an episode from the start of the next.
    * `"drawn"` `[n]` bool: whether the sample has a row in the view. In a view of goals: whether its goal was drawn.
    * `"step_numbers"` `[n, L]` int32: number of each row in its episode; `padding` in padding.
    * `"episode_numbers"` `[n, L]` int32: number of each row's episode in its source; `padding` in padding.
    * `"source_numbers"` `[n, L]` int32: number of each row's source; `padding` in padding.
    """

    name: str
    view: int
    kind: MarkKind = "mask"
    width: int = 0
    having: tuple[int, ...] = ()
    squeeze: bool = False
    padding: int = -1
