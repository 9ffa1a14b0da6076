"""Rows of unequal length in HDF5: text and variable-length numbers, read through the headers of their datasets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from penstock.containers.hdf5 import Dataset, File
from penstock.core.arrays import IntArray
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import FormatError
from penstock.formats.base.pieces import RowReader, cut
from penstock.formats.minari.hdf5_index import ColumnRuns


class RaggedRows(Protocol):
    """Ragged rows, read span by span."""

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        """The rows of all spans, in order."""
        ...


@dataclass(frozen=True, eq=False)
class VlenRows:
    """Variable-length elements of a part: the header of a dataset is parsed for each piece that is read. Of rows that
    are lists, the lists of the part's `item`."""

    part: ColumnRuns
    files: Sequence[File]

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        """The elements of all spans."""
        first = offsets_of(self.part.rows)
        pieces = cut(first, start, length, start)
        values = [
            self._piece(run, begin - int(first[run]), rows)
            for run, begin, rows in zip(pieces.run.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)
        ]
        return Ragged.concatenate(values) if values else empty(self.part.dtype)

    def blobs(self, start: int, stop: int) -> Iterator[bytes]:
        """Rows `start` to `stop` as bytes."""
        one = np.ones(1, np.int64)
        yield from self.read(one * start, one * (stop - start)).blobs()

    def _piece(self, run: int, start: int, rows: int) -> Ragged:
        where = f"episode {self.part.episode[run]}/{self.part.column}"
        file = self.files[int(self.part.file[run])]
        dataset = file.open_object(int(self.part.header[run]), where)
        if not isinstance(dataset, Dataset):
            raise FormatError("expected a dataset, got a group", path=file.path, where=where)
        piece = Ragged(*(dataset.read_vlen() if not dataset.shape else dataset.read_vlen(start, start + rows)))
        if self.part.item < 0:
            return piece
        return piece.take(np.arange(rows) * math.prod(self.part.shape) + self.part.item)


@dataclass(frozen=True, eq=False)
class StringRows:
    """Text of fixed length, whose trailing zeros are padding: of `width` bytes, from `first` on in rows of `row`."""

    rows: RowReader
    width: int
    first: int
    row: int

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        """The texts of all spans."""
        places = offsets_of(length)
        raw = np.zeros((int(places[-1]), self.row), np.uint8)
        self.rows.gather(start, length, places[:-1], raw.reshape(-1))
        texts = raw[:, self.first : self.first + self.width]
        return Ragged.from_bytes(text.rstrip(b"\0") for text in (t.tobytes() for t in texts))


@dataclass(frozen=True, eq=False)
class BlankRows:
    """Empty rows, for episodes that lack the column."""

    dtype: np.dtype[Any]

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        """As many empty rows."""
        return Ragged(np.empty(0, self.dtype), np.zeros(int(length.sum()) + 1, np.int64))


@dataclass(frozen=True, eq=False)
class JoinedRagged:
    """A ragged column whose episodes are stored in different ways: `owner[r]` is the share of run `r`, whose rows
    begin at `local[r]` in it. `first` `[E + 1]` are the column's rows at which episodes begin."""

    first: IntArray
    shares: tuple[RaggedRows, ...]
    owner: IntArray
    local: IntArray
    dtype: np.dtype[Any]

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        """Each piece from its share."""
        pieces = cut(self.first, start, length, start)
        begin = self.local[pieces.run] + pieces.start - self.first[pieces.run]
        values = [
            self.shares[int(owner)].read(begin[i : i + 1], pieces.length[i : i + 1])
            for i, owner in enumerate(self.owner[pieces.run])
        ]
        if not values:
            return empty(self.dtype)
        return Ragged.concatenate([Ragged(r.values.astype(self.dtype, copy=False), r.offsets) for r in values])


def empty(dtype: np.dtype[Any]) -> Ragged:
    """No rows."""
    return Ragged(np.empty(0, dtype), np.zeros(1, np.int64))


@dataclass(frozen=True, eq=False)
class RawBlobs:
    """Rows of bytes as `bytes`: how JPEG frames of equal length are stored."""

    rows: RowReader
    width: int

    def blobs(self, start: int, stop: int) -> Iterator[bytes]:
        """Rows `start` to `stop`."""
        raw = np.zeros((stop - start, self.width), np.uint8)
        one = np.ones(1, np.int64)
        self.rows.gather(one * start, one * (stop - start), one * 0, raw.reshape(-1))
        return (row.tobytes() for row in raw)
