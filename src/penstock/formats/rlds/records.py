"""The records of a split while they are read: their bytes, checked once, and the lists of features in them.

Shards are mapped lazily. Whoever reads a list does so in the block of `RLDSRecords.reading`, which fetches the bytes of
remote records: all of a record whose checksum has to be compared, and the wanted lists of others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from typing_extensions import override

from penstock.containers.array_record import chunk_at, decode_chunk
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import ChecksumError, FormatError
from penstock.files.mapping import MappedFiles, check_mapped
from penstock.files.remote import Wanted, filled
from penstock.formats.rlds.features import RLDSFeature
from penstock.formats.rlds.index import RecordIndex
from penstock.kernels.crc32c import TAIL, first_damaged
from penstock.kernels.example_rows import spanning
from penstock.kernels.examples import ABSENT, BYTES, values_of

PORTION = 64 << 20
"""Bytes of remote records that are fetched at once for their metadata."""

_FAR = 1 << 44  # more than the bytes of a shard


@dataclass(frozen=True, eq=False)
class FeatureList:
    """A list of a record: `count` values in the bytes `begin : end` of `data`. `kind` says of which type."""

    data: ByteArray
    begin: int
    end: int
    count: int
    kind: int


class RLDSRecords:
    """The mapped shards of a split and the index of their records. Safe from any number of threads."""

    def __init__(self, paths: Sequence[Path], buffers: Sequence[ByteArray], index: RecordIndex, verify: bool) -> None:
        self.paths = tuple(paths)
        self.buffers = tuple(buffers)
        self.index = index
        self._unchecked: BoolArray = np.full(len(index.steps), verify)
        self._files = MappedFiles(buffers)
        self._data, bases = spanning(buffers)
        self._begin = bases[index.shard] + index.begin if len(bases) else index.begin

    def where(self, record: int, feature: str = "") -> tuple[Path, str]:
        """Return the file of a record and its place there, for messages."""
        place = f"record {self.index.number[record]}"
        return self.paths[int(self.index.shard[record])], f"{place}, {feature}" if feature else place

    @property
    def in_place(self) -> bool:
        """Whether the lists of records are in `buffers`, so that rows can be copied from there."""
        return not self._files.lazy

    @contextmanager
    def reading(self, records: IntArray, keys: Sequence[int], *, verify: bool = True) -> Generator[None]:
        """Verify records, and have their lists on this machine for the block."""
        wanted = self.remote_ranges(records, keys, verify=verify)
        with filled(wanted) if wanted else nullcontext():
            if verify:
                self.verify(records)
            yield

    def remote_ranges(self, records: IntArray, keys: Sequence[int], *, verify: bool = True) -> list[Wanted]:
        if not self._files.lazy or not len(records):
            return []
        index = self.index
        records = np.unique(records)
        unchecked = self._unchecked[records] & verify
        whole, verified = records[unchecked], records[~unchecked]
        spans = index.begin[verified][:, None, None] + index.spans[verified][:, list(keys), :2]
        return self._files.remote_ranges(
            np.concatenate([index.shard[whole], np.repeat(index.shard[verified], len(keys))]).astype(np.int64),
            np.concatenate([index.begin[whole], spans[:, :, 0].reshape(-1)]),
            np.concatenate([index.begin[whole] + index.size[whole] + TAIL, spans[:, :, 1].reshape(-1)]),
        )

    def portions(self, records: IntArray) -> list[IntArray]:
        """Cut records into portions of `PORTION` bytes, to be fetched one after another. Local records are one."""
        if not self._files.lazy:
            return [records]
        portion = np.cumsum(self.index.size[records]) // PORTION
        return np.split(records, np.flatnonzero(np.diff(portion)) + 1)

    def verify(self, records: IntArray) -> None:
        """Compare the checksums of records that were not compared before."""
        new = np.unique(records[self._unchecked[records]])
        shards: list[int] = np.unique(self.index.shard[new]).tolist()
        for shard in shards:
            mine = new[self.index.shard[new] == shard]
            check_mapped(self.buffers[shard])
            bad = first_damaged(self.buffers[shard], self.index.begin[mine], self.index.size[mine])
            if bad >= 0:
                path, where = self.where(int(mine[bad]))
                raise ChecksumError("expected the bytes of the record as they were written", path=path, where=where)
            self._unchecked[mine] = False

    def bytes_of(self, record: int) -> tuple[ByteArray, int]:
        """Return bytes that have a record, read-only, and where it begins in them."""
        return self.buffers[int(self.index.shard[record])], int(self.index.begin[record])

    def messages(self, records: IntArray) -> tuple[ByteArray, IntArray]:
        """Return an array that has some records, which were verified, and the place in it at which each begins."""
        self._files.check()
        return self._data, self._begin[records]

    def find(self, record: int, key: int) -> FeatureList:
        data, base = self.bytes_of(record)
        begin, end, count = self.index.spans[record, key].tolist()
        return FeatureList(data, base + begin, base + end, count, int(self.index.kinds[record, key]))


class ChunkedRecords(RLDSRecords):
    """Records of ArrayRecord files, decoded a chunk at a time; `cache` has the decoded chunks."""

    def __init__(
        self, paths: Sequence[Path], buffers: Sequence[ByteArray], index: RecordIndex, verify: bool, cache: Cache
    ) -> None:
        super().__init__(paths, buffers, index, verify)
        self._verify = verify
        self._cache = cache

    @cached_property
    def _chunk_end(self) -> IntArray:
        """Where the chunk of each record ends at the latest: at the next chunk with records, or with the file."""
        shard, begin = self.index.shard.astype(np.int64), self.index.begin
        first = np.unique(np.stack([shard, begin]), axis=1)  # of each chunk: its shard, and where it begins
        end = np.append(first[1, 1:], 0)
        last = np.diff(first[0], append=-1) != 0
        end[last] = np.array([len(data) for data in self.buffers], np.int64)[first[0, last]]
        return end[np.searchsorted(first[0] * _FAR + first[1], shard * _FAR + begin)]

    @property
    @override
    def in_place(self) -> bool:
        return False

    @override
    def remote_ranges(self, records: IntArray, keys: Sequence[int], *, verify: bool = True) -> list[Wanted]:
        """The chunks of the records, up to the next chunk or the end of the file."""
        if not self._files.lazy:
            return []
        index = self.index
        records = np.unique(records)
        shard = index.shard[records].astype(np.int64)
        return self._files.remote_ranges(shard, index.begin[records], self._chunk_end[records])

    @override
    def verify(self, records: IntArray) -> None:
        """Do nothing: the hash of a chunk is compared when it is decoded."""

    @override
    def messages(self, records: IntArray) -> tuple[ByteArray, IntArray]:
        different, which = np.unique(records, return_inverse=True)
        numbers: list[int] = different.tolist()
        messages = [self.bytes_of(record) for record in numbers]
        data, bases = spanning([values for values, _ in messages])
        return data, (bases + np.array([begin for _, begin in messages], np.int64))[which.reshape(-1)]

    @override
    def bytes_of(self, record: int) -> tuple[ByteArray, int]:
        shard, position = int(self.index.shard[record]), int(self.index.begin[record])

        def decoded() -> tuple[tuple[ByteArray, IntArray], int]:
            path, where = self.where(record)
            with parsing(path, where):
                data = self.buffers[shard]
                chunk = decode_chunk(data, chunk_at(data, position), verify=self._verify)
            return chunk, chunk[0].nbytes + chunk[1].nbytes

        values, offsets = self._cache.get(("chunk", shard, position), decoded)
        within = int(self.index.within[record])
        if within >= len(offsets) - 1 or offsets[within + 1] - offsets[within] != self.index.size[record]:
            path, where = self.where(record)
            raise FormatError("expected the record that was indexed, got another", path=path, where=where)
        return values, int(offsets[within])


def numbers_of(feature_list: FeatureList, dtype: np.dtype[np.generic]) -> AnyArray:
    """Return the `[count]` numbers of a list as a dtype."""
    if feature_list.kind == BYTES:
        raise ValueError("expected numbers, got bytes")
    if feature_list.kind == ABSENT:
        return np.zeros(0, dtype)
    return as_dtype(
        values_of(feature_list.data, feature_list.kind, feature_list.begin, feature_list.end, feature_list.count), dtype
    )


def as_dtype(values: AnyArray, dtype: np.dtype[np.generic]) -> AnyArray:
    """Return int64 or float32 values of a list as a dtype. A list has uint64 as int64 of the same bits."""
    if dtype == np.uint64 and values.dtype == np.int64:
        return values.view(np.uint64)
    return values.astype(dtype, copy=False)


def blob_places(feature_list: FeatureList, count: int) -> IntArray:
    """Return `[count, 2]` int64, begin and end of each value of a list of bytes."""
    if feature_list.kind == ABSENT and count == 0:
        return np.zeros((0, 2), np.int64)
    if feature_list.kind != BYTES:
        raise ValueError(f"expected {count} values of bytes, got numbers or none")
    return values_of(feature_list.data, BYTES, feature_list.begin, feature_list.end, count)


def blobs_at(data: ByteArray, places: IntArray) -> list[bytes]:
    """Return the bytes of each place, `[n, 2]` begin and end."""
    return [data[begin:end].tobytes() for begin, end in places.tolist()]


def text_of(blobs: Sequence[bytes]) -> Ragged:
    return Ragged(np.frombuffer(b"".join(blobs), np.uint8), offsets_of([len(blob) for blob in blobs]))


def require_values(feature: RLDSFeature, values: int, expected: int) -> None:
    """Raise `FormatError` unless a list has the expected number of values."""
    if values != expected:
        raise FormatError(f"expected {expected} values of {feature.path}, got {values}")
