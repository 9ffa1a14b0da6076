"""Cutting spans of rows where the storage changes, and putting ragged rows into a grid.

`BlockRows` are rows in blocks, each decoded as a whole by the caller. Run `r`, the rows `first[r] : first[r + 1]`, is
the rows from `skip[r]` on of block `block[r]`. `FileRows` are rows in many files that are mapped when they are read,
some files at a time, by a `RowMap` that checks every piece against the size of its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.ragged import Array, Ragged, equal_runs, located, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Field
from penstock.files.remote import Wanted
from penstock.kernels.rows import RowMap, check_spans, flat

_HELD = 1 << 20  # bytes of decoded blocks from which on their rows are copied
_SLICES = 16  # pieces of a run that are copied as slices
AT_ONCE = 1024  # files of which the rows are gathered together


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


def by_run(pieces: RowPieces) -> Iterator[tuple[int, RowPieces]]:
    """Consecutive pieces of the same run together."""
    yield from ((run, pieces.take(slice(begin, end))) for run, begin, end in equal_runs(pieces.run))


def each_once(spans: RowPieces | Selection) -> tuple[IntArray, IntArray, tuple[IntArray, IntArray]]:
    """The different rows of spans, ascending, with a place for each, and the other places with those to copy from."""
    stored, places = ranges(spans.start, spans.length), ranges(spans.destination, spans.length)
    rows, first, number = np.unique(stored, return_index=True, return_inverse=True)
    again = np.ones(len(stored), bool)
    again[first] = False
    return rows, places[first], (places[again], places[first][number[again]])


def copy_rows(rows: AnyArray, pieces: RowPieces, out: AnyArray) -> None:
    """Copy pieces of an array to their places. Few slices are copied in a fraction of the time of an index."""
    if len(pieces.start) > _SLICES:
        out[ranges(pieces.destination, pieces.length)] = rows[ranges(pieces.start, pieces.length)]
        return
    for start, length, place in zip(*(part.tolist() for part in pieces[1:]), strict=True):
        out[place : place + length] = rows[start : start + length]


def spread(rows: Ragged, selection: Selection) -> Ragged:
    """The selection's grid, given the rows of its spans in order; uncovered places are empty."""
    lengths = np.zeros(selection.shape[0] * selection.shape[1], np.int64)
    lengths[ranges(selection.destination, selection.length)] = rows.lengths
    return Ragged(rows.values, offsets_of(lengths))


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Where rows are in blocks."""

    first: IntArray
    block: IntArray
    skip: IntArray

    @classmethod
    def whole(cls, first: IntArray) -> BlockRows:
        count = len(first) - 1
        return cls(first, np.arange(count), np.zeros(count, np.int64))

    @classmethod
    def parts(cls, bounds: IntArray, start: IntArray, offsets: IntArray) -> BlockRows:
        """Ranges of the rows of blocks, in order."""
        pieces = cut(bounds, start, np.diff(offsets), offsets[:-1])
        return cls(np.append(pieces.destination, offsets[-1]), pieces.run, pieces.start - bounds[pieces.run])

    def read_array(self, load: Callable[[int], Array], selection: Selection, out: AnyArray) -> None:
        """Gather rows of an array column, as `Source.read_array`. Blocks with many pieces are one gather."""
        raw = out.reshape(-1).view(np.uint8)
        blocks: list[tuple[AnyArray, RowPieces]] = []
        nbytes = 0
        for block, mine in self.pieces(selection):
            rows = load(block)
            if isinstance(rows, Ragged):
                continue
            if len(mine.start) <= _SLICES and rows.nbytes < _HELD:
                copy_rows(rows, mine, out)
                continue
            blocks.append((rows, mine))
            nbytes += rows.nbytes
            if nbytes >= _HELD:
                _gather(blocks, raw)
                blocks, nbytes = [], 0
        _gather(blocks, raw)

    def read_ragged(self, load: Callable[[int], Array], field: Field, selection: Selection) -> Ragged:
        """Read rows of a ragged column, as `Source.read_ragged`."""
        pieces = cut(self.first, selection.start, selection.length, selection.start)
        parts = [Ragged(np.empty((0, *field.shape), field.dtype), np.zeros(1, np.int64))]
        for block, mine in self._by_block(pieces):
            rows = load(block)
            if isinstance(rows, Ragged):
                parts.append(rows.take(ranges(mine.start, mine.length)))
        return spread(Ragged.concatenate(parts), selection)

    def blocks(self, selection: Selection) -> list[int]:
        """Return the blocks that have rows of a selection, in order."""
        pieces = cut(self.first, selection.start, selection.length, selection.destination)
        return np.unique(self.block[pieces.run]).tolist()

    def located(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the block of each row, and its number in that block."""
        run, own = located(self.first, rows)
        return self.block[run], own + self.skip[run]

    def pieces(self, selection: Selection) -> Iterator[tuple[int, RowPieces]]:
        """Yield the pieces of a selection by block, with rows of that block. Each block comes once."""
        pieces = cut(self.first, selection.start, selection.length, selection.destination)
        return self._by_block(pieces.take(np.argsort(self.block[pieces.run], kind="stable")))

    def _by_block(self, pieces: RowPieces) -> Iterator[tuple[int, RowPieces]]:
        """Yield consecutive pieces in the same block together, with `start` counted from the start of the block."""
        start = pieces.start - self.first[pieces.run] + self.skip[pieces.run]
        yield from by_run(pieces._replace(run=self.block[pieces.run], start=start))


def _gather(blocks: Sequence[tuple[AnyArray, RowPieces]], out: ByteArray) -> None:
    """Copy pieces of blocks of rows that are alike."""
    if not blocks:
        return
    arrays = [np.ascontiguousarray(rows) for rows, _ in blocks]
    number = np.arange(len(arrays))
    counts = np.array([len(array) for array in arrays], np.int64)
    row_bytes = arrays[0].dtype.itemsize * math.prod(arrays[0].shape[1:])
    buffers = [array.reshape(-1).view(np.uint8) for array in arrays]
    rows = RowMap.build(buffers, counts, number, np.zeros_like(number), row_bytes)
    start = np.concatenate([mine.start + first for (_, mine), first in zip(blocks, rows.first.tolist(), strict=False)])
    length, destination = (np.concatenate([part[k] for _, part in blocks]) for k in (2, 3))
    rows.gather(start, length, destination, out)


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows of one width in runs: run `r` has rows `first[r] : first[r + 1]`, in file `file[r]` from `offset[r]` on."""

    files: Sequence[ByteArray]
    first: IntArray
    file: IntArray
    offset: IntArray
    row_bytes: int

    @classmethod
    def of(
        cls, files: Sequence[ByteArray], rows: IntArray, file: IntArray, offset: IntArray, row_bytes: int
    ) -> FileRows:
        """Return runs of `rows[R]` rows. Arguments are as of `RowMap.build`; places are checked when they are read."""
        return cls(files, offsets_of(rows), file, offset, row_bytes)

    @property
    def n(self) -> int:
        return int(self.first[-1])

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        if self.row_bytes == 0:
            return
        target = flat(out, self.row_bytes)
        check_spans(start, length, destination, self.n, len(target) // self.row_bytes)
        for pieces, rows in self._mapped(start, length, destination):
            rows.gather(rows.first[:-1], pieces.length, pieces.destination, target)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        if self.row_bytes == 0:
            return []
        parts = self._mapped(start, length, np.zeros_like(start))
        return [wanted for pieces, rows in parts for wanted in rows.remote_ranges(rows.first[:-1], pieces.length)]

    def _mapped(self, start: IntArray, length: IntArray, destination: IntArray) -> Iterator[tuple[RowPieces, RowMap]]:
        """Yield the pieces of spans by groups of files, each with a map in which piece `j` is run `j`."""
        pieces = cut(self.first, start, length, destination)
        pieces = pieces.take(np.argsort(self.file[pieces.run], kind="stable"))
        files, first = np.unique(self.file[pieces.run], return_index=True)
        edges = [*first[::AT_ONCE].tolist(), len(pieces.run)]
        for group, (begin, end) in enumerate(pairwise(edges)):
            mine, chosen = pieces.take(slice(begin, end)), files[group * AT_ONCE : (group + 1) * AT_ONCE]
            wanted: list[int] = chosen.tolist()
            data = [self.files[number] for number in wanted]
            number = np.searchsorted(chosen, self.file[mine.run])
            offset = self.offset[mine.run] + (mine.start - self.first[mine.run]) * self.row_bytes
            yield mine, RowMap.build(data, mine.length, number, offset, self.row_bytes)
