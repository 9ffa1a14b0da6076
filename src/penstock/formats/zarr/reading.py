"""Readers of columns: gathers from Zarr arrays, in the row space of each alignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.containers.zarr import ZarrArray
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.pieces import RowPieces, cut, expand


@dataclass(frozen=True, eq=False)
class RowsColumn:
    """A row of the array for each step, or for each episode."""

    rows: ZarrArray

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Gather rows; each piece of a chunk is decoded once."""
        gather(self.rows, selection.start, selection.length, selection.destination, out)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the bytes of the chunks that `read` would fetch."""
        return self.rows.remote_ranges(selection.start, selection.length)


class EmptyColumn:
    """Rows without bytes."""

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Nothing is to be read."""


@dataclass(frozen=True, eq=False)
class BoundaryColumn:
    """T + 1 rows for an episode of T steps: T rows of one array, and a row of another."""

    rows: ZarrArray
    final: ZarrArray
    first: IntArray

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Gather rows of steps, then the last rows of episodes."""
        pieces, length, ends = self._stored(selection)
        some = length > 0
        gather(self.rows, (pieces.start - pieces.run)[some], length[some], pieces.destination[some], out)
        last = pieces.run[ends]
        gather(self.final, last, np.ones_like(last), (pieces.destination + length)[ends], out)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the bytes of the chunks that `read` would fetch."""
        pieces, length, ends = self._stored(selection)
        last = pieces.run[ends]
        steps = self.rows.remote_ranges(pieces.start - pieces.run, length)
        return [*steps, *self.final.remote_ranges(last, np.ones_like(last))]

    def _stored(self, selection: Selection) -> tuple[RowPieces, IntArray, BoolArray]:
        """Pieces of episodes, how many rows of each are rows of steps, and which end with the last row."""
        pieces = cut(self.first, selection.start, selection.length, selection.destination)
        ends = pieces.start + pieces.length == self.first[pieces.run + 1]
        return pieces, pieces.length - ends, ends


@dataclass(frozen=True, eq=False)
class RaggedArrays:
    """Rows of unequal length: the values of all of them, and where each begins."""

    values: ZarrArray
    value_offsets: IntArray

    def read_ragged(self, selection: Selection) -> Ragged:
        """Read the values of each span at once."""
        offsets = self.value_offsets
        rows = expand(selection.start, selection.length)
        lengths = np.zeros(selection.shape[0] * selection.shape[1], np.int64)
        lengths[expand(selection.destination, selection.length)] = np.diff(offsets)[rows]
        first = offsets[selection.start]
        counts = offsets[selection.start + selection.length] - first
        order = np.argsort(selection.destination, kind="stable")
        values = np.empty(int(counts.sum()), self.values.dtype.newbyteorder("="))
        gather(self.values, first[order], counts[order], offsets_of(counts[order])[:-1], values)
        return Ragged(values, offsets_of(lengths))

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the bytes of the chunks that `read_ragged` would fetch."""
        first = self.value_offsets[selection.start]
        return self.values.remote_ranges(first, self.value_offsets[selection.start + selection.length] - first)

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        """Gather values."""
        gather(self.values, selection.start, selection.length, selection.destination, out)


def gather(rows: ZarrArray, start: IntArray, length: IntArray, destination: IntArray, out: AnyArray) -> None:
    """Copy rows to `out`, in the dtype that it has."""
    if rows.dtype == out.dtype:
        rows.gather(start, length, destination, out.reshape(-1).view(np.uint8))
    else:  # stored in the other order of bytes
        out[expand(destination, length)] = rows.take(expand(start, length))


def ends_in(rows: ZarrArray, count: int, most: int, where: str, path: object) -> IntArray:
    """`[count + 1]` int64 offsets from the first `count` ends, which rise up to `most`. Raises `FormatError`."""
    if len(rows.shape) != 1 or rows.dtype.kind not in "iu":
        raise FormatError(f"expected [n] whole numbers, got {rows.dtype}{list(rows.shape)}", path=path, where=where)
    ends = rows[:count].astype(np.int64)
    offsets = np.append(np.zeros(1, np.int64), ends)
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        i = int(falls.argmax())
        raise FormatError(
            f"expected ends that rise, got {offsets[i]} and then {ends[i]}", path=path, where=f"{where}[{i}]"
        )
    if len(ends) and ends[-1] > most:
        raise FormatError(f"expected ends up to {most}, the number of rows, got {ends[-1]}", path=path, where=where)
    return offsets
