"""Read selections into columns: one gather for each column and source.

`Fetch` allocates each output once, for the whole grid of samples and rows, and passes it to the sources, which fill the
places of their spans. It writes padding only where no span is: zeros by the gaps between spans, because packs are
nearly full, and other values by filling the array first. Sources check spans before the first write, so that damaged
selections raise an error instead of reading elsewhere.

The caller owns the arrays. `empty` may reuse memory (`Recycler`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field
from penstock.data.marks import Empty, marked
from penstock.errors import PenstockError, SpecError
from penstock.files.remote import Wanted, remote_files_known
from penstock.formats.base.source import Source
from penstock.kernels.spans import zero_gaps
from penstock.plan.base import Plan
from penstock.plan.outputs import Read, padding_value


class Fetch:
    """Reader of the selections of a plan. It is stateless between calls, and thread-safe."""

    def __init__(self, sources: Sequence[Source], plan: Plan) -> None:
        self.sources = tuple(sources)
        self.plan = plan
        self.reads = plan.reads
        self.fields = [_common_field(self.sources, read) for read in self.reads]
        for read, field in zip(self.reads, self.fields, strict=True):
            for value in (read.fill, read.head):
                if value:  # every dtype has a zero
                    padding_value(read.name, value, field.dtype)
        # The row space of each view in each source: a column may be aligned in another way in another source.
        self._aligns: dict[tuple[int, int], Align] = {
            (read.view, number): source.spec[column].align
            for read in self.reads
            if plan.views[read.view].align != "values"  # these are checked where they are read
            for number, source in enumerate(self.sources)
            if (column := read.of(number)) is not None
        }
        self._begins: dict[tuple[int, Align], IntArray] = {}

    def row_bytes(self) -> int:
        """Return the approximate bytes of one sample. A ragged row counts as one value."""
        widths = [len(view.steps) for view in self.plan.views]
        return sum(f.row_bytes * widths[r.view] for r, f in zip(self.reads, self.fields, strict=True))

    def __call__(self, selections: Sequence[Selection], empty: Empty = np.empty) -> Columns:
        """Read the columns of samples."""
        parts = [self._parts(selection) for selection in selections]
        self._check(parts)
        batch: dict[str, Array] = {}
        for read, field in zip(self.reads, self.fields, strict=True):
            column = self._read(read, field, selections[read.view], parts[read.view], empty)
            batch[read.name] = _squeezed(column) if read.squeeze else column
        for mark in self.plan.marks:
            batch[mark.name] = marked(mark, selections[mark.view], empty, partial(self._begin, mark.view))
        return Columns.of_flat(batch, selections[0].shape[0] if selections else 0)

    def remote_ranges(self, selections: Sequence[Selection]) -> list[Wanted]:
        """Return the bytes behind URLs that reading the columns of samples would fetch."""
        return [wanted for _, _, ranges in self.ranges_by_column(selections) for wanted in ranges]

    def ranges_by_column(self, selections: Sequence[Selection]) -> Iterator[tuple[int, str, list[Wanted]]]:
        """Yield the number of a source, a column of it, and the bytes behind URLs that reading the column
        would fetch.

        An error, such as of a damaged index, is left to the read: then these bytes are not fetched ahead.
        """
        if not remote_files_known():
            return
        parts = [self._parts(selection) for selection in selections]
        for read in self.reads:
            if self.plan.views[read.view].align == "values":  # numbers of values, and not of rows
                continue
            for number, part in parts[read.view]:
                if (column := read.of(number)) is not None:
                    ranges: list[Wanted] = []
                    with suppress(PenstockError, OSError):
                        ranges = self.sources[number].remote_ranges(column, part)
                    yield number, column, ranges

    def _begin(self, view: int, source: int) -> IntArray:
        """First row of each episode in a view, computed once. A plan names no episode that was appended later."""
        align = self._aligns.get((view, source), "step" if self.plan.views[view].align == "step" else "boundary")
        if (source, align) not in self._begins:
            self._begins[source, align] = self.sources[source].rows(align)
        return self._begins[source, align]

    def _parts(self, selection: Selection) -> list[tuple[int, Selection]]:
        """Each source that is read from, with its spans."""
        if len(self.sources) == 1:
            return [(0, selection)]
        return selection.by_source()

    def _check(self, parts: Sequence[Sequence[tuple[int, Selection]]]) -> None:
        for view, view_parts in enumerate(parts):
            for number, part in view_parts:
                if (align := self._aligns.get((view, number))) is not None:
                    self.sources[number].check(align, part)

    def _read(
        self, read: Read, field: Field, selection: Selection, parts: Sequence[tuple[int, Selection]], empty: Empty
    ) -> Array:
        n, length = selection.shape
        named = [(self.sources[number], column, part) for number, part in parts if (column := read.of(number))]
        values = self.plan.views[read.view].align == "values"
        if field.ragged and not values:
            rows = [source.read_ragged(column, part) for source, column, part in named]
            return _overlaid(rows, field, n * length).reshape(n, length)
        out = empty((n * length, *field.shape), field.dtype)
        if len(named) < len(parts) or (read.fill and not selection.complete):
            out.fill(read.fill)
        elif not selection.complete:
            _zero_gaps(selection, out)
        for source, column, part in named:
            (source.read_values if values else source.read_array)(column, part, out)
        if selection.headed is not None:
            out[selection.destination[selection.headed] - 1] = read.head
        return out.reshape(n, length, *field.shape)


def _zero_gaps(selection: Selection, out: AnyArray) -> None:
    """Set places without a span to zero. Packs are nearly full, so these are few."""
    if out.size:
        row_bytes = out.dtype.itemsize * (out.size // len(out))
        zero_gaps(selection.destination, selection.length, row_bytes, out.reshape(-1).view(np.uint8))


def _squeezed(column: Array) -> Array:
    return column.reshape(len(column)) if isinstance(column, Ragged) else column[:, 0]


def _overlaid(parts: Sequence[Ragged], field: Field, places: int) -> Ragged:
    # Each part has the whole grid and fills its own places, so a place's rows add up.
    if len(parts) == 1:
        return parts[0]
    lengths = np.sum([part.lengths for part in parts], axis=0) if parts else np.zeros(places, np.int64)
    offsets = offsets_of(lengths)
    values = np.empty((int(offsets[-1]), *field.shape), field.dtype)
    for part in parts:
        rows = np.flatnonzero(part.lengths)
        index = np.arange(len(part.values)) + np.repeat(offsets[rows] - part.offsets[rows], part.lengths[rows])
        values[index] = part.values
    return Ragged(values, offsets)


def _described(field: Field) -> str:
    kind = "" if field.kind == "array" else f" as {field.kind}"
    return f"{field.dtype} {field.shape}{kind}"


def _common_field(sources: Sequence[Source], read: Read) -> Field:
    named = [(number, source.spec[column]) for number, source in enumerate(sources) if (column := read.of(number))]
    first = named[0][1]
    for number, field in named:
        if (field.dtype, field.shape, field.kind) != (first.dtype, first.shape, first.kind):
            raise SpecError(
                f"expected {read.name!r} alike in every source, got {_described(first)} in source {named[0][0]} and "
                f"{_described(field)} in source {number}; leave it out of all (select_columns), or make it alike "
                "(with_column), or give it another name in one (penstock.convert(..., rename=...)) and then mix with "
                "union=True"
            )
    return first
