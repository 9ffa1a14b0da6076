"""Columns as places: the position of each row of a column in the archives, so that reading it is one gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from penstock.containers.on_demand import FilesOnDemand
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field
from penstock.files.remote import Wanted
from penstock.formats.base.pieces import FileRows, expand
from penstock.kernels.rows import RowMap


@dataclass(frozen=True, eq=False)
class Places:
    """Runs of one column: run `r` has `rows[r]` rows (of a ragged column: values), in order, from byte
    `offset[r]` of buffer `buffer[r]` on. The buffers are the archives by number; -1 is `held`, the decoded values.

    Of a ragged column, `cuts` `[rows + 1]` says which values belong to each row.
    """

    field: Field
    rows: IntArray
    buffer: IntArray
    offset: IntArray
    held: ByteArray
    cuts: IntArray | None = None

    @classmethod
    def of(cls, field: Field, array: AnyArray) -> Places:
        """A column that was decoded: `[rows, *shape]`."""
        one = np.ones(1, np.int64)
        raw = np.ascontiguousarray(array, field.dtype).reshape(-1).view(np.uint8)
        return cls(field, one * len(array), -one, one * 0, raw)

    @classmethod
    def of_ragged(cls, field: Field, rows: Ragged) -> Places:
        """A ragged column that was decoded."""
        one = np.ones(1, np.int64)
        raw = np.ascontiguousarray(rows.values, field.dtype).view(np.uint8)
        return cls(field, one * len(rows.values), -one, one * 0, raw, rows.offsets)

    @classmethod
    def of_column(cls, field: Field, rows: AnyArray | Ragged, ragged: Align) -> Places:
        """A column that was decoded; a ragged one is aligned as `ragged` says."""
        return cls.of_ragged(replace(field, align=ragged), rows) if isinstance(rows, Ragged) else cls.of(field, rows)

    def among(self, rows: BoolArray) -> Places:
        """The same as the rows of a longer column where `rows` `[n]` is true; the others are zeros, or empty."""
        n = len(rows)
        if self.cuts is not None:
            lengths = np.zeros(n, np.int64)
            lengths[rows] = np.diff(self.cuts)
            return replace(self, cuts=offsets_of(lengths))
        if len(self.rows) != int(rows.sum()) or (self.rows != 1).any():  # one run of decoded rows
            out = np.zeros((n, *self.field.shape), self.field.dtype)
            out[rows] = self.held.view(self.field.dtype).reshape(-1, *self.field.shape)
            return Places.of(self.field, out)
        buffer, offset = np.full(n, -1), np.full(n, len(self.held))
        buffer[rows], offset[rows] = self.buffer, self.offset
        raw = np.concatenate([self.held, np.zeros(self.field.row_bytes, np.uint8)])
        return replace(self, rows=np.ones(n, np.int64), buffer=buffer, offset=offset, held=raw)

    def on(self, buffers: Sequence[ByteArray]) -> PlacedColumn | PlacedRagged:
        """The column, to be read. Raises `IndexError` if a run leaves its buffer."""
        width = self.field.dtype.itemsize if self.cuts is not None else self.field.row_bytes
        buffer = np.where(self.buffer < 0, len(buffers), self.buffer)
        if isinstance(buffers, FilesOnDemand):
            rows = FileRows.of(_ArchivesAndDecoded(buffers, self.held), self.rows, buffer, self.offset, width)
        else:
            rows = RowMap.build([*buffers, self.held], self.rows, buffer, self.offset, width)
        if self.cuts is None:
            return PlacedColumn(rows)
        if int(self.cuts[-1]) != rows.n:
            raise IndexError(f"expected cuts up to {rows.n}, got {self.cuts[-1]}")
        return PlacedRagged(self.field, rows, self.cuts)


@dataclass(frozen=True, eq=False)
class PlacedColumn:
    """An array column whose places were checked against the archives."""

    rows: RowMap | FileRows

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Rows into the covered places of `out`: one gather."""
        if out.size and self.rows.row_bytes:
            self.rows.gather(selection.start, selection.length, selection.destination, out.reshape(-1).view(np.uint8))

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the bytes that `read` would fetch."""
        return self.rows.remote_ranges(selection.start, selection.length) if self.rows.row_bytes else []


@dataclass(frozen=True, eq=False)
class PlacedRagged:
    """A ragged column whose places were checked against the archives. `rows` are its values."""

    field: Field
    rows: RowMap | FileRows
    value_offsets: IntArray

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        """Values into the covered places of `out`: one gather."""
        PlacedColumn(self.rows).read(selection, out)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the bytes that `read_ragged` would fetch."""
        first = self.value_offsets[selection.start]
        return self.rows.remote_ranges(first, self.value_offsets[selection.start + selection.length] - first)

    def read_ragged(self, selection: Selection) -> Ragged:
        """The rows of the grid, those not covered empty: one gather of values, one span a span."""
        cuts = self.value_offsets
        first, last = cuts[selection.start], cuts[selection.start + selection.length]
        lengths = last - first
        values = np.empty(int(lengths.sum()), self.field.dtype)
        if len(values):
            self.rows.gather(first, lengths, offsets_of(lengths)[:-1], values.view(np.uint8))
        grid = np.zeros(selection.shape[0] * selection.shape[1], np.int64)
        rows = expand(selection.start, selection.length)
        grid[expand(selection.destination, selection.length)] = cuts[rows + 1] - cuts[rows]
        return Ragged(values, offsets_of(grid))


def gathered(buffers: Sequence[ByteArray], buffer: IntArray, offset: IntArray, width: int) -> ByteArray:
    """`[n, width]` bytes from `n` places."""
    one = np.ones(len(offset), np.int64)
    out = np.empty((len(offset), width), np.uint8)
    if out.size:
        build = FileRows.of if isinstance(buffers, FilesOnDemand) else RowMap.build
        build(buffers, one, buffer, offset, width).gather(np.arange(len(offset)), one, np.arange(len(offset)), out)
    return out


class _ArchivesAndDecoded(Sequence[ByteArray]):
    """Archives that are mapped when they are read, and the decoded values of a column behind the last one."""

    def __init__(self, archives: FilesOnDemand, decoded: ByteArray) -> None:
        self._archives, self._decoded = archives, decoded

    def __len__(self) -> int:
        return len(self._archives) + 1

    @overload
    def __getitem__(self, number: int) -> ByteArray: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ByteArray]: ...
    def __getitem__(self, number: int | slice) -> ByteArray | Sequence[ByteArray]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self._decoded if number == len(self._archives) else self._archives[number]
