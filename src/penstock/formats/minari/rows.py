"""Rows of one column in any storage: mapped, tiled, compressed, as images, of unequal length, or missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from penstock.containers.hdf5 import Dataset, File
from penstock.containers.hdf5.filters import decode
from penstock.core.arrays import BoolArray, ByteArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import Ragged, offsets_of, ranges
from penstock.errors import FormatError
from penstock.files.mapping import MappedFiles, read_mapped
from penstock.files.remote import Wanted
from penstock.formats.base.pieces import RemoteRows, RowPieces, RowReader, cut
from penstock.formats.minari.hdf5_index import ColumnRuns
from penstock.kernels.rows import RowMap
from penstock.kernels.tiles import TileMap

DECODED = 64 << 20  # bytes of decoded chunks that a source keeps
AT_ONCE = 32 << 20  # bytes of chunks that one gather decodes before it copies


def mapped(part: ColumnRuns, buffers: Sequence[ByteArray]) -> RowReader:
    """The rows of an uncompressed part, in place."""
    item, width = part.dtype.itemsize, part.dtype.itemsize * math.prod(part.shape)
    counts = np.diff(part.tile_first)
    run = np.repeat(np.arange(len(counts)), counts)
    whole = bool((part.tile_shape[:, 1:] == np.array(part.shape, np.int64)).all() and (part.tile_offset >= 0).all())
    try:
        if width == 0:
            return RowMap.build(buffers, part.rows, part.rows * 0, part.rows * 0, 0)
        if whole:
            height = part.tile_shape[run, 0]
            rows = np.minimum(height, part.rows[run] - (np.arange(len(run)) - part.tile_first[run]) * height)
            return RowMap.build(buffers, rows, part.file[run], part.tile_offset, width)
        places = (part.tile_first, part.file[run], part.tile_offset, bytes(item))
        return TileMap.build(buffers, part.shape, item, offsets_of(part.rows), part.tile_shape, *places)
    except IndexError as error:
        raise FormatError(f"expected values within their file: {error}", where=part.column) from error


class FilteredRows:
    """Rows in compressed chunks: each chunk that a gather needs is decoded once, in the order of the file.

    A band is one row of a run's grid of tiles, that is, all chunks that hold the same rows. `cuts` `[B + 1]` are
    the rows at which bands begin.
    """

    def __init__(self, part: ColumnRuns, buffers: Sequence[ByteArray], cache: Cache) -> None:
        self._part = part
        self._buffers = buffers
        self._files = MappedFiles(buffers)
        self._cache = cache
        height = part.tile_shape[:, 0]
        bands = -(-part.rows // height)
        self._across = np.diff(part.tile_first) // np.maximum(bands, 1)
        self._run = np.repeat(np.arange(len(bands)), bands)
        number = np.arange(len(self._run)) - np.repeat(offsets_of(bands)[:-1], bands)
        rows = np.minimum(height[self._run], part.rows[self._run] - number * height[self._run])
        self.cuts = offsets_of(rows)
        self._tile = part.tile_first[self._run] + number * self._across[self._run]
        self._plain = part.tile_shape.prod(axis=1) * part.dtype.itemsize

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Decode and copy. Memory: at most 32 MB of chunks at once, or one band."""
        pieces = cut(self.cuts, start, length, destination)
        pieces = pieces.take(np.argsort(pieces.run, kind="stable"))
        bands, where = np.unique(pieces.run, return_inverse=True)
        cost = (self._plain * self._across)[self._run[bands]]
        group = np.cumsum(cost) // AT_ONCE
        for number in np.unique(group):
            chosen = np.flatnonzero(group == number)
            mine = pieces.take((where >= chosen[0]) & (where <= chosen[-1]))
            rows = self._decoded(bands[chosen])
            local = offsets_of(np.diff(self.cuts)[bands[chosen]])
            band = np.searchsorted(bands[chosen], mine.run)
            rows.gather(local[band] + mine.start - self.cuts[mine.run], mine.length, mine.destination, out)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        if not self._files.lazy:
            return []
        bands = np.unique(cut(self.cuts, start, length, start).run)
        owner, stored, tiles = self._chunks(bands)
        tile = tiles[stored]
        end = self._part.tile_offset[tile] + self._part.tile_nbytes[tile]
        return self._files.remote_ranges(self._part.file[owner[stored]], self._part.tile_offset[tile], end)

    def _chunks(self, bands: IntArray) -> tuple[IntArray, BoolArray, IntArray]:
        """Return run, whether it is stored, and number of each chunk of bands."""
        counts = self._across[self._run[bands]]
        tiles = ranges(self._tile[bands], counts)
        return np.repeat(self._run[bands], counts), self._part.tile_offset[tiles] >= 0, tiles

    def _decoded(self, bands: IntArray) -> TileMap:
        part, run = self._part, self._run[bands]
        counts = self._across[run]
        owner, stored, tiles = self._chunks(bands)
        tile = tiles[stored]
        release = self._files.fill(
            part.file[owner[stored]], part.tile_offset[tile], part.tile_offset[tile] + part.tile_nbytes[tile]
        )
        try:
            chunks = [self._chunk(int(r), int(t)) for r, t in zip(owner[stored], tile, strict=True)]
        finally:
            release()
        buffer = np.maximum(np.cumsum(stored) - 1, 0)
        offset = np.where(stored, 0, -1).astype(np.int64)
        first = offsets_of(np.diff(self.cuts)[bands])
        shape = part.tile_shape[run]
        item = part.dtype.itemsize
        return TileMap.build(chunks, part.shape, item, first, shape, offsets_of(counts), buffer, offset, bytes(item))

    def _chunk(self, run: int, tile: int) -> ByteArray:
        part = self._part
        file = int(part.file[run])
        offset = int(part.tile_offset[tile])
        nbytes = int(part.tile_nbytes[tile])

        def decoded() -> ByteArray:
            raw = read_mapped(self._buffers[file][offset : offset + nbytes]).tobytes()
            return self._decode(raw, int(part.tile_mask[tile]), int(self._plain[run]), run, offset)

        return self._cache.array((file, offset), decoded)

    def _decode(self, raw: bytes, mask: int, plain: int, run: int, offset: int) -> ByteArray:
        try:
            return np.frombuffer(decode(raw, self._part.filters, mask, plain), np.uint8)
        except (ValueError, IndexError, OSError, ArithmeticError) as error:
            where = f"episode {self._part.episode[run]}, {self._part.column}, chunk at byte {offset}"
            kind = type(error) if isinstance(error, FormatError) else FormatError
            raise kind(f"expected a chunk that decodes, got {error}", where=where) from error


@dataclass(frozen=True, eq=False)
class FillRows:
    """Rows that all hold the same value, for episodes that lack the column."""

    value: ByteArray

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        out.reshape(-1, len(self.value))[ranges(destination, length)] = self.value


def owners_of(first: IntArray, runs: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """`[E]` the share of each run, and `[E]` the first row of the run in its share, by the runs of each share."""
    owner, local = np.zeros((2, len(first) - 1), np.int64)
    lengths = np.diff(first)
    for number, mine in enumerate(runs):
        owner[mine], local[mine] = number, offsets_of(lengths[mine])[:-1]
    return owner, local


@dataclass(frozen=True, eq=False)
class ColumnPart:
    """One part of a joined column: its rows, their dtype and shape, and its runs in the order it holds them."""

    rows: RowReader
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    runs: IntArray


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """A column whose episodes are stored in different ways: each run belongs to one share.

    `first` `[E + 1]` are the column's rows at which episodes begin. Values of another dtype are converted. Rows of a
    smaller shape are at the start of each axis of a row of `fill`, the bytes of a missing row.
    """

    first: IntArray
    shares: tuple[ColumnPart, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fill: ByteArray

    @cached_property
    def _runs(self) -> tuple[IntArray, IntArray]:
        return owners_of(self.first, [share.runs for share in self.shares])

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        for share, mine, begin in self._by_share(start, length, destination):
            if share.dtype == self.dtype and share.shape == self.shape:
                share.rows.gather(begin, mine.length, mine.destination, out)
            else:
                self._convert(share, begin, mine.length, mine.destination, out)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        return [
            wanted
            for share, mine, begin in self._by_share(start, length, start)
            if isinstance(share.rows, RemoteRows)
            for wanted in share.rows.remote_ranges(begin, mine.length)
        ]

    def _by_share(
        self, start: IntArray, length: IntArray, destination: IntArray
    ) -> Iterator[tuple[ColumnPart, RowPieces, IntArray]]:
        """Each share that has rows of spans, these rows, and their first rows in the share."""
        pieces = cut(self.first, start, length, destination)
        owner, local = self._runs
        owners: list[int] = np.unique(owner[pieces.run]).tolist()
        for number in owners:
            mine = pieces.take(owner[pieces.run] == number)
            yield self.shares[number], mine, local[mine.run] + mine.start - self.first[mine.run]

    def _convert(
        self, share: ColumnPart, begin: IntArray, length: IntArray, destination: IntArray, out: ByteArray
    ) -> None:
        places = offsets_of(length)
        raw = np.empty((int(places[-1]), *share.shape), share.dtype)
        share.rows.gather(begin, length, places[:-1], raw.reshape(-1).view(np.uint8))
        values = raw.astype(self.dtype)
        if share.shape != self.shape:
            row = self.fill.view(self.dtype).reshape(self.shape)
            values = np.broadcast_to(row, (len(raw), *self.shape)).copy()
            values[(slice(None), *map(slice, share.shape))] = raw
        out.view(self.dtype).reshape(-1, *self.shape)[ranges(destination, length)] = values


class RaggedRows(Protocol):
    """Ragged rows, read span by span."""

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        """The rows of all spans, in order."""
        ...


@dataclass(frozen=True, eq=False)
class VlenRows:
    """Variable-length elements of a part, or its `item` of rows of lists; a read parses the header of each dataset."""

    part: ColumnRuns
    files: Sequence[File]

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        first = offsets_of(self.part.rows)
        pieces = cut(first, start, length, start)
        begin = pieces.start - first[pieces.run]
        opened = {run: self._dataset(run) for run in np.unique(pieces.run).tolist()}
        values = [
            self._piece(opened[run], row, rows)
            for run, row, rows in zip(pieces.run.tolist(), begin.tolist(), pieces.length.tolist(), strict=True)
        ]
        return Ragged.concatenate(values) if values else _empty(self.part.dtype)

    def blobs(self, start: IntArray, length: IntArray) -> list[bytes]:
        """The rows of all spans as bytes."""
        return self.read(start, length).blobs()

    def _dataset(self, run: int) -> Dataset:
        where = f"episode {self.part.episode[run]}/{self.part.column}"
        file = self.files[int(self.part.file[run])]
        dataset = file.open_object(int(self.part.header[run]), where)
        if not isinstance(dataset, Dataset):
            raise FormatError("expected a dataset, got a group", path=file.path, where=where)
        return dataset

    def _piece(self, dataset: Dataset, start: int, rows: int) -> Ragged:
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

    @classmethod
    def of(cls, part: ColumnRuns, rows: RowReader) -> StringRows:
        width = part.dtype.itemsize
        return cls(rows, width, max(part.item, 0) * width, width * math.prod(part.shape))

    def read(self, start: IntArray, length: IntArray) -> Ragged:
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
        return Ragged(np.empty(0, self.dtype), np.zeros(int(length.sum()) + 1, np.int64))


@dataclass(frozen=True, eq=False)
class JoinedRagged:
    """A ragged column whose run `r` is in share `owner[r]`, from row `local[r]` on; episodes begin at rows `first`."""

    first: IntArray
    shares: tuple[RaggedRows, ...]
    owner: IntArray
    local: IntArray
    dtype: np.dtype[Any]

    def read(self, start: IntArray, length: IntArray) -> Ragged:
        pieces = cut(self.first, start, length, start)
        begin = self.local[pieces.run] + pieces.start - self.first[pieces.run]
        values = [
            self.shares[int(owner)].read(begin[i : i + 1], pieces.length[i : i + 1])
            for i, owner in enumerate(self.owner[pieces.run])
        ]
        if not values:
            return _empty(self.dtype)
        return Ragged.concatenate([Ragged(r.values.astype(self.dtype, copy=False), r.offsets) for r in values])


def _empty(dtype: np.dtype[Any]) -> Ragged:
    return Ragged(np.empty(0, dtype), np.zeros(1, np.int64))


@dataclass(frozen=True, eq=False)
class RawBlobs:
    """Rows of bytes as `bytes`: how JPEG frames of equal length are stored."""

    rows: RowReader
    width: int

    def blobs(self, start: IntArray, length: IntArray) -> list[bytes]:
        """The rows of all spans."""
        places = offsets_of(length)
        raw = np.zeros((int(places[-1]), self.width), np.uint8)
        self.rows.gather(start, length, places[:-1], raw.reshape(-1))
        return [row.tobytes() for row in raw]
