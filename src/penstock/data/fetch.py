"""Selections to columns: one gather per column, from one source or many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field
from penstock.errors import SpecError
from penstock.formats.base.source import Source
from penstock.plan.base import Plan, Read

Empty = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]


class Fetch:
    """Reads what a plan's selections name. Stateless between calls, and safe in any number of threads.

    `reads` are those of the plan's outputs that are wanted.

    Raises `SpecError` if two sources disagree about a column.
    """

    def __init__(self, sources: Sequence[Source], plan: Plan, reads: Sequence[Read]) -> None:
        self.sources = tuple(sources)
        self.plan = plan
        self.reads = tuple(reads)
        self.fields = [_common_field(self.sources, read.column) for read in self.reads]

    def row_bytes(self) -> int:
        """About how many bytes one sample takes; ragged columns count as one value a row."""
        widths = [len(view.steps) for view in self.plan.views]
        return sum(f.row_bytes * widths[r.view] for r, f in zip(self.reads, self.fields, strict=True))

    def __call__(self, selections: Sequence[Selection], empty: Empty = np.empty) -> Columns:
        """One row a sample: `[n, L, *shape]` columns, `[n, *shape]` where the plan squeezes, and `[n, L]` bool masks.

        `empty(shape, dtype)` allocates the columns.

        Raises `ExpiredRowError` for rows that a source no longer has.
        """
        self._check(selections)
        batch: dict[str, Array] = {}
        for read, field in zip(self.reads, self.fields, strict=True):
            column = self._read(read.column, field, selections[read.view], empty)
            batch[read.name] = _squeezed(column) if read.squeeze else column
        for name, view in self.plan.masks:
            batch[name] = selections[view].mask()
        return Columns.of_flat(batch, selections[0].shape[0] if selections else 0)

    def _check(self, selections: Sequence[Selection]) -> None:
        for view, selection in zip(self.plan.views, selections, strict=True):
            for number, source in enumerate(self.sources):
                source.check(view.align, selection.of(number) if len(self.sources) > 1 else selection)

    def _read(self, column: str, field: Field, selection: Selection, empty: Empty) -> Array:
        n, length = selection.shape
        if field.ragged:
            return self._read_ragged(column, selection).reshape(n, length)
        out = empty((n * length, *field.shape), field.dtype)
        if not selection.complete:
            out.fill(0)
        for source, part in self._parts(selection):
            source.read_array(column, part, out)
        return out.reshape(n, length, *field.shape)

    def _read_ragged(self, column: str, selection: Selection) -> Ragged:
        parts = [source.read_ragged(column, part) for source, part in self._parts(selection)]
        return parts[0] if len(parts) == 1 else _overlaid(parts)

    def _parts(self, selection: Selection) -> list[tuple[Source, Selection]]:
        if len(self.sources) == 1:
            return [(self.sources[0], selection)]
        return [(self.sources[number], selection.of(number)) for number in np.unique(selection.source).tolist()]


def _squeezed(column: Array) -> Array:
    return column.reshape(len(column)) if isinstance(column, Ragged) else column[:, 0]


def _overlaid(parts: Sequence[Ragged]) -> Ragged:
    # Each part has the whole grid and fills its own places, so a place's rows add up.
    lengths = np.sum([part.lengths for part in parts], axis=0)
    offsets = offsets_of(lengths)
    values = np.empty(int(offsets[-1]), parts[0].dtype)
    for part in parts:
        rows = np.flatnonzero(part.lengths)
        index = np.arange(len(part.values)) + np.repeat(offsets[rows] - part.offsets[rows], part.lengths[rows])
        values[index] = part.values
    return Ragged(values, offsets)


def _common_field(sources: Sequence[Source], column: str) -> Field:
    fields = [source.spec[column] for source in sources]
    for number, field in enumerate(fields):
        if field != fields[0]:
            raise SpecError(f"expected {column} as {fields[0]} in every source, got {field} - in source {number}")
    return fields[0]
