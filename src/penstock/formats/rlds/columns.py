"""Columns of episodes, read from the lists of records.

A column reads rows `a : b` of one record at a time. Where the values of all records are in one piece in the files, as
float32 and small booleans mostly are, a `RowMap` copies them in place. Numbers of other types are decoded an episode at
a time and kept in a cache. Encoded images and tensors are decoded for each wanted row; the cache has their places.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.containers.cache import Cache
from penstock.containers.images import decode_rows
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Align, Field
from penstock.errors import FormatError
from penstock.formats.rlds.features import RLDSFeature
from penstock.formats.rlds.records import (
    FeatureList,
    RLDSRecords,
    blob_places,
    blobs_at,
    numbers_of,
    require_values,
    text_of,
)
from penstock.kernels.examples import FLOATS, INTEGERS, packed_bits, packed_floats
from penstock.kernels.rows import RowMap

MOST_BYTES = 1 << 30  # of one compressed tensor whose size varies


@dataclass(frozen=True, eq=False)
class FeatureColumn(ABC):
    """One feature of all records.

    Args:
        records: The records.
        feature: The feature.
        key: Number of its first list in the index.
        cache: Cache of decoded episodes, shared by all columns.
    """

    records: RLDSRecords
    feature: RLDSFeature
    key: int
    cache: Cache

    def steps(self, record: int) -> int:
        """Return the number of values that a record has: its steps, or 1 for a feature of the episode."""
        return int(self.records.index.steps[record]) if self.feature.of_step else 1

    def list_of(self, record: int, number: int = 0) -> FeatureList:
        """Return a list of the feature in a record."""
        return self.records.find(record, self.key + number)

    def field(self, align: Align) -> Field:
        """Return the field of the column."""
        feature = self.feature
        if feature.kind == "text":
            return Field(feature.dtype, (), align, "text")
        sizes = (*feature.within, *feature.shape)
        inner = tuple(size or 0 for size in sizes[None in sizes :])
        return Field(feature.dtype, inner, align, "ragged" if None in sizes else "array")

    @abstractmethod
    def rows(self, record: int, a: int, b: int) -> Array:
        """Return values `a : b` of a record that was verified. Raises `ValueError` and `FormatError`."""

    def read_into(self, record: int, a: int, b: int, out: AnyArray) -> None:
        """Read values `a : b` of a record into an array."""
        out[...] = self.rows(record, a, b)


@dataclass(frozen=True, eq=False)
class NumberColumn(FeatureColumn):
    """Numbers of a fixed shape, as a list of floats or integers."""

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
        """Return a map of rows in place, or None if values have to be decoded.

        Args:
            first: The first row of each record that the map has.
            rows: `[R]` int64 rows of each record from there on.
        """
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
        """Return the bytes of values `a : b`."""
        places = self.cache.peek((self.key, record))
        if places is None:
            found = self.list_of(record)
            places = self.cache.array((self.key, record), lambda: blob_places(found, self.steps(record)))
        return blobs_at(self.records.bytes_of(record)[0], places[a:b])


@dataclass(frozen=True, eq=False)
class EncodedText(BlobColumn):
    """Text."""

    @override
    def rows(self, record: int, a: int, b: int) -> Ragged:
        return text_of(self.blobs(record, a, b))


@dataclass(frozen=True, eq=False)
class EncodedImages(BlobColumn):
    """Encoded images of one shape.

    Args:
        shape: `(height, width, channels)`.
    """

    shape: tuple[int, int, int] = (0, 0, 3)

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
        # A float32 image is stored as four channels of uint8: the bytes of each float.
        pixels = out.view(np.uint8) if out.dtype == np.float32 else out
        decode_rows(blobs, pixels, convert=out.dtype == np.uint8, where=self.feature.path, first=a)


@dataclass(frozen=True, eq=False)
class TensorColumn(BlobColumn):
    """Bytes of tensors, plain or compressed with zlib. The first size of the shape may vary; then rows are ragged."""

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
            made = self._decoded(record)
            return made, made.nbytes

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
