"""Columns of episodes, read from the lists of records.

Where the values of all records are in one piece in the files, a `RowMap` copies them in place. A kernel reads the rows
of many other records with one call (`read_pieces`). Unusual or damaged records are left to `read_into`, which reads
rows of one record and says what is wrong with them.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from penstock.containers.images import decode_each, decode_into, decode_rows
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray, UInt32Array
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, offsets_of, ranges
from penstock.core.spec import Align, Field
from penstock.errors import FormatError
from penstock.formats.base.pieces import RowPieces
from penstock.formats.rlds.features import RLDSFeature
from penstock.formats.rlds.records import (
    FeatureList,
    RLDSRecords,
    as_dtype,
    blob_places,
    blobs_at,
    numbers_of,
    require_values,
    text_of,
)
from penstock.kernels.example_rows import copy_places, read_floats, read_integers, read_places
from penstock.kernels.examples import BYTES, FLOATS, INTEGERS, packed_bits, packed_floats
from penstock.kernels.rows import RowMap

MOST_BYTES = 1 << 30  # of one compressed tensor whose size varies


@dataclass(frozen=True, eq=False)
class FeatureColumn(ABC):
    """One feature of all records."""

    records: RLDSRecords
    feature: RLDSFeature
    key: int
    cache: Cache

    def steps(self, record: int) -> int:
        """Return the number of values that a record has: its steps, or 1 for a feature of the episode."""
        return int(self.records.index.steps[record]) if self.feature.of_step else 1

    @property
    def keys(self) -> range:
        """Numbers of its lists in the index."""
        return range(self.key, self.key + len(self.feature.keys))

    def list_of(self, record: int, number: int = 0) -> FeatureList:
        return self.records.find(record, self.key + number)

    def field(self, align: Align) -> Field:
        feature = self.feature
        if feature.kind == "text":
            return Field(feature.dtype, (), align, "text")
        sizes = (*feature.within, *feature.shape)
        inner = tuple(size or 0 for size in sizes[None in sizes :])
        return Field(feature.dtype, inner, align, "ragged" if None in sizes else "array")

    @abstractmethod
    def rows(self, record: int, a: int, b: int) -> Array:
        """Return values `a : b` of a record that was verified."""

    def read_into(self, record: int, a: int, b: int, out: AnyArray) -> None:
        """Read values `a : b` of a record into an array."""
        out[...] = self.rows(record, a, b)

    def read_pieces(self, pieces: RowPieces, out: AnyArray) -> IntArray:
        """Read values of many records, which were verified, into rows of an array."""
        return np.arange(len(pieces.run))

    def _lists(self, pieces: RowPieces) -> _Lists:
        index = self.records.index
        data, message = self.records.messages(pieces.run)
        spans = index.spans[pieces.run, self.key]
        sound = (spans[:, 0] >= 0) & (spans[:, 0] <= spans[:, 1]) & (spans[:, 1] <= index.size[pieces.run])
        begin, end = message + spans[:, 0], message + spans[:, 1]
        return _Lists(data, message, begin, end, spans[:, 2].copy(), index.kinds[pieces.run, self.key], sound)

    def _counts(self, pieces: RowPieces) -> IntArray:
        """Return the number of values that each record of the pieces must have."""
        steps = self.records.index.steps[pieces.run]
        return steps if self.feature.of_step else np.ones_like(steps)


class _Lists(NamedTuple):
    """Lists of the pieces of a read: in bytes `begin : end` of `data`, `total` values of a kind."""

    data: ByteArray
    message: IntArray
    begin: IntArray
    end: IntArray
    total: IntArray
    kind: ByteArray
    sound: BoolArray

    def take(self, chosen: IntArray) -> _Lists:
        places = self.message[chosen], self.begin[chosen], self.end[chosen], self.total[chosen]
        return _Lists(self.data, *places, self.kind[chosen], self.sound[chosen])


@dataclass(frozen=True, eq=False)
class NumberColumn(FeatureColumn):
    """Numbers of a fixed shape, as a list of floats or integers."""

    @override
    def read_pieces(self, pieces: RowPieces, out: AnyArray) -> IntArray:
        shape = tuple(size or 0 for size in (*self.feature.within, *self.feature.shape))
        width = math.prod(shape)
        if len(self.feature.keys) > 1 or not width or not len(pieces.run):
            return super().read_pieces(pieces, out)
        lists = self._lists(pieces)
        usual = lists.sound & (lists.kind == lists.kind[0]) & (lists.total == width * self._counts(pieces))
        if lists.kind[0] not in (INTEGERS, FLOATS) or not usual.any():
            return super().read_pieces(pieces, out)
        chosen = np.flatnonzero(usual)
        lists, wanted = lists.take(chosen), pieces.take(chosen)
        offsets = offsets_of(wanted.length)
        values = np.empty((offsets[-1], *shape), np.int64 if lists.kind[0] == INTEGERS else np.dtype("<f4"))
        skip = width * wanted.start
        count = width * wanted.length
        place = width * offsets[:-1]
        where = lists.data, lists.begin, lists.end
        if lists.kind[0] == INTEGERS:
            failed = read_integers(*where, lists.total, skip, count, place, values.reshape(-1))
        else:
            failed = read_floats(*where, skip, count, place, values.reshape(-1).view(np.uint8))
        out[ranges(wanted.destination, wanted.length)] = as_dtype(values, self.feature.dtype)
        return np.concatenate([np.flatnonzero(~usual), chosen[failed]])

    @override
    def rows(self, record: int, a: int, b: int) -> AnyArray:
        return self.cache.array((self.key, record), lambda: self._decoded(record))[a:b]

    def _decoded(self, record: int) -> AnyArray:
        shape = tuple(size or 0 for size in (*self.feature.within, *self.feature.shape))
        steps = self.steps(record)
        values = numbers_of(self.list_of(record), self.feature.dtype)
        require_values(self.feature, len(values), steps * math.prod(shape))
        for number in range(1, len(self.feature.keys)):
            lengths = numbers_of(self.list_of(record, number), np.dtype(np.int64))
            if (lengths != self.feature.within[number - 1 if self.feature.of_step else number]).any():
                raise FormatError(f"expected sequences of {self.feature.within}, got {lengths[:8].tolist()}")
        return values.reshape(steps, *shape)

    def placed(self, first: int, rows: IntArray) -> RowMap | None:
        """Return a map of rows in place, or None if values have to be decoded."""
        index, dtype = self.records.index, self.feature.dtype
        width = math.prod(size or 0 for size in self.feature.shape)
        kind = index.kinds[:, self.key]
        wanted = {np.dtype(np.float32): FLOATS, np.dtype(np.bool_): INTEGERS}.get(dtype)
        if wanted is None or self.feature.within or not width or not self.records.in_place:
            return None
        begin = index.begin + index.spans[:, self.key, 0]
        size = index.spans[:, self.key, 1] - index.spans[:, self.key, 0]
        count = index.spans[:, self.key, 2]
        if (kind[rows > 0] != wanted).any() or (count != width * (index.steps if self.feature.of_step else 1)).any():
            return None
        place = np.zeros(len(rows), np.int64)
        for shard, data in enumerate(self.records.buffers):
            mine = index.shard == shard
            lists = begin[mine], size[mine]
            place[mine] = packed_floats(data, *lists) if wanted == FLOATS else packed_bits(data, *lists, count[mine])
        if (place[rows > 0] < 0).any():
            return None
        row_bytes = dtype.itemsize * width
        offset = np.where(rows > 0, place + first * row_bytes, 0)
        return RowMap.build(self.records.buffers, rows, index.shard.astype(np.int64), offset, row_bytes)


@dataclass(frozen=True, eq=False)
class BlobColumn(FeatureColumn):
    """Values of bytes: one a row."""

    def blobs(self, record: int, a: int, b: int) -> list[bytes]:
        feature_list = self.list_of(record)
        return blobs_at(feature_list.data, blob_places(feature_list, self.steps(record))[a:b])

    @cached_property
    def _first(self) -> IntArray:
        """Number of the first value of each record."""
        steps = self.records.index.steps
        return offsets_of(steps if self.feature.of_step else np.ones_like(steps))

    @cached_property
    def _known(self) -> UInt32Array:
        """Places of values that were found. Memory is taken where an entry is written."""
        return np.zeros(int(self._first[-1]), np.uint32)

    def places(self, pieces: RowPieces) -> tuple[ByteArray, IntArray, IntArray, BoolArray]:
        """Find values of many records, which were verified."""
        lists = self._lists(pieces)
        total = self._counts(pieces)
        offsets = offsets_of(pieces.length)
        byte_ranges = np.zeros((offsets[-1], 2), np.int64)
        failed = ~lists.sound | (lists.kind != BYTES) | (pieces.start + pieces.length > total)
        chosen = np.flatnonzero(~failed)
        lists, wanted = lists.take(chosen), pieces.take(chosen)
        lacking = read_places(
            lists.data,
            lists.message,
            lists.begin,
            lists.end,
            self._first[wanted.run],
            total[chosen],
            wanted.start,
            wanted.length,
            offsets[chosen],
            self._known,
            byte_ranges,
        )
        failed[chosen[lacking]] = True
        if failed.any():
            byte_ranges[np.repeat(failed, pieces.length)] = 0
        return lists.data, byte_ranges, ranges(pieces.destination, pieces.length), failed


@dataclass(frozen=True, eq=False)
class EncodedText(BlobColumn):
    """Text."""

    def read_texts(self, pieces: RowPieces) -> Ragged | None:
        """Return texts of many records, which were verified, or None where one is damaged."""
        data, places, _, failed = self.places(pieces)
        if failed.any():
            return None
        offsets = offsets_of(places[:, 1] - places[:, 0])
        values = np.empty(offsets[-1], np.uint8)
        copy_places(data, places, offsets[:-1], values)
        return Ragged(values, offsets)

    @override
    def rows(self, record: int, a: int, b: int) -> Ragged:
        return text_of(self.blobs(record, a, b))


@dataclass(frozen=True, eq=False)
class EncodedImages(BlobColumn):
    """Encoded images of one shape."""

    shape: tuple[int, int, int] = (0, 0, 3)
    fast_jpeg: bool = False

    @override
    def field(self, align: Align) -> Field:
        return Field(self.feature.dtype, self.shape, align)

    @override
    def rows(self, record: int, a: int, b: int) -> AnyArray:
        out = np.empty((b - a, *self.shape), self.feature.dtype)
        self.read_into(record, a, b, out)
        return out

    @override
    def read_into(self, record: int, a: int, b: int, out: AnyArray) -> None:
        blobs = self.blobs(record, a, b)
        options = {"convert": out.dtype == np.uint8, "fast_jpeg": self.fast_jpeg}
        decode_rows(blobs, _pixels(out), **options, where=self.feature.path, first=a)

    @override
    def read_pieces(self, pieces: RowPieces, out: AnyArray) -> IntArray:
        data, places, rows, failed = self.places(pieces)
        pixels, options = _pixels(out), {"convert": out.dtype == np.uint8, "fast_jpeg": self.fast_jpeg}
        piece = np.repeat(np.arange(len(failed)), pieces.length)
        sound = ~failed[piece]
        wanted = list(zip(piece[sound].tolist(), rows[sound].tolist(), *places[sound].T.tolist(), strict=True))

        def decode_one(i: int) -> None:
            owner, row, begin, end = wanted[i]
            try:
                decode_into(data[begin:end].tobytes(), pixels[row], **options)
            except FormatError:  # `read_into` says where
                failed[owner] = True

        decode_each(decode_one, len(wanted), len(wanted) * math.prod(out.shape[1:]) * out.dtype.itemsize)
        return np.flatnonzero(failed)


def _pixels(out: AnyArray) -> AnyArray:
    """Return images as an array to decode into. A float32 image is stored as four channels: the bytes of each float."""
    return out.view(np.uint8) if out.dtype == np.float32 else out


@dataclass(frozen=True, eq=False)
class TensorColumn(BlobColumn):
    """Bytes of tensors, plain or compressed with zlib. The first size of the shape may vary; then rows are ragged."""

    @override
    def read_pieces(self, pieces: RowPieces, out: AnyArray) -> IntArray:
        size = math.prod(out.shape[1:]) * out.dtype.itemsize
        if not size:
            return super().read_pieces(pieces, out)
        data, places, rows, failed = self.places(pieces)
        piece = np.repeat(np.arange(len(failed)), pieces.length)
        raw = out.reshape(-1).view(np.uint8)
        if not self.feature.zipped:
            failed[piece[places[:, 1] - places[:, 0] != size]] = True
            sound = ~failed[piece]
            copy_places(data, places[sound], size * rows[sound], raw)
            return np.flatnonzero(failed)
        target = raw.data
        spans = zip(piece.tolist(), rows.tolist(), *places.T.tolist(), strict=True)
        for owner, row, begin, end in spans:
            try:
                target[row * size : (row + 1) * size] = self._unpacked(data[begin:end].tobytes(), size)
            except (FormatError, zlib.error):  # `read_into` says where
                failed[owner] = True
        return np.flatnonzero(failed)

    @override
    def rows(self, record: int, a: int, b: int) -> Array:
        shape = self.feature.shape
        fixed = math.prod(size for size in shape if size is not None) * self.feature.dtype.itemsize
        parts = [self._unpacked(blob, fixed if None not in shape else None) for blob in self.blobs(record, a, b)]
        values = np.frombuffer(b"".join(parts), self.feature.dtype)
        if None not in shape:
            return values.reshape(b - a, *(size or 0 for size in shape))
        if any(len(part) % max(fixed, 1) for part in parts) or not fixed:
            raise FormatError(f"expected whole rows of {fixed} bytes, got {[len(part) for part in parts][:8]} bytes")
        inner = tuple(size or 0 for size in shape[1:])
        return Ragged(values.reshape(-1, *inner), offsets_of([len(part) // fixed for part in parts]))

    def _unpacked(self, blob: bytes, size: int | None) -> bytes:
        if self.feature.zipped:
            unpacker = zlib.decompressobj()
            blob = unpacker.decompress(blob, MOST_BYTES if size is None else size + 1)
            if unpacker.unconsumed_tail and size is None:
                raise FormatError(f"expected at most {MOST_BYTES} bytes of a tensor, got more")
        if size is not None and len(blob) != size:
            raise FormatError(f"expected {size} bytes of a tensor, got {len(blob)}")
        return blob


@dataclass(frozen=True, eq=False)
class ListColumn(FeatureColumn):
    """Lists of numbers whose length varies."""

    @override
    def rows(self, record: int, a: int, b: int) -> Ragged:
        def decoded() -> tuple[Ragged, int]:
            rows = self._decoded(record)
            return rows, rows.nbytes

        return self.cache.get((self.key, record), decoded)[a:b]

    def _decoded(self, record: int) -> Ragged:
        shape = tuple(size or 0 for size in self.feature.shape)
        values = numbers_of(self.list_of(record), self.feature.dtype).reshape(-1, *shape)
        if not self.feature.of_step:
            return Ragged(values, np.array([0, len(values)]))
        lengths = numbers_of(self.list_of(record, 1), np.dtype(np.int64))
        require_values(self.feature, len(lengths), self.steps(record))
        if len(lengths) and (lengths.min() < 0 or lengths.max() > len(values) or lengths.sum() != len(values)):
            raise FormatError(f"expected lengths of lists with {len(values)} values, got {lengths[:8].tolist()}")
        return Ragged(values, offsets_of(lengths))


def column_of(records: RLDSRecords, feature: RLDSFeature, key: int, cache: Cache) -> FeatureColumn | None:
    """Return the column of a feature, without images; None for a feature that no column can hold."""
    common = records, feature, key, cache
    varying = any(size is None for size in feature.within)
    if feature.kind == "number" and (not varying or len(feature.within) == 1):
        return ListColumn(*common) if varying else NumberColumn(*common)
    if feature.within:
        return None
    if feature.kind == "bytes":
        return TensorColumn(*common)
    return EncodedText(*common) if feature.kind == "text" else None
