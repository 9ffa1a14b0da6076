"""Cutting spans of rows where the storage changes, and putting ragged rows into a grid."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, IntArray
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.files.remote import Wanted


class RowReader(Protocol):
    """Rows of one width, gathered into a buffer: what `RowMap`, `TileMap` and the rows of formats do."""

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Copy rows `start[j] : start[j] + length[j]` to rows `destination[j]` on of `out`, for every span `j`."""
        ...


@runtime_checkable
class RemoteRows(Protocol):
    """Rows that say which bytes behind a URL a gather of them fetches."""

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        """Return the bytes of rows `start[j] : start[j] + length[j]`, for every span `j`."""
        ...


class RowPieces(NamedTuple):
    """Piece `j`: `length[j]` rows from row `start[j]` on, all in run `run[j]`, to `destination[j]`; `[m]` int64."""

    run: IntArray
    start: IntArray
    length: IntArray
    destination: IntArray

    def take(self, chosen: BoolArray | IntArray | slice) -> RowPieces:
        """Some of the pieces."""
        return RowPieces(*(array[chosen] for array in self))


def cut(first: IntArray, start: IntArray, length: IntArray, destination: IntArray) -> RowPieces:
    """Cut spans at the edges of runs: run `r` owns the rows `first[r] : first[r + 1]`, and may own none."""
    real = length > 0
    start = start[real]
    length = length[real]
    destination = destination[real]
    low = np.searchsorted(first, start, side="right") - 1
    high = np.searchsorted(first, start + length - 1, side="right") - 1
    counts = high - low + 1
    span = np.repeat(np.arange(len(start)), counts)
    run = np.arange(len(span)) - np.repeat(offsets_of(counts)[:-1] - low, counts)
    begin = np.maximum(start[span], first[run])
    end = np.minimum(start[span] + length[span], first[run + 1])
    pieces = RowPieces(run, begin, end - begin, destination[span] + begin - start[span])
    return pieces.take(pieces.length > 0)


def expand(start: IntArray, length: IntArray) -> IntArray:
    """Every row of the spans, in order."""
    offsets = offsets_of(length)
    return np.arange(offsets[-1], dtype=np.int64) + np.repeat(start - offsets[:-1], length)


def spread(rows: Ragged, selection: Selection) -> Ragged:
    """The selection's grid, given the rows of its spans in order; uncovered places are empty."""
    lengths = np.zeros(selection.shape[0] * selection.shape[1], np.int64)
    lengths[expand(selection.destination, selection.length)] = rows.lengths
    return Ragged(rows.values, offsets_of(lengths))
