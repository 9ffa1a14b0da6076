"""TFRecord files: where the records are, and whether their bytes are as they were written.

Nothing marks the start of a record, so the records behind a damaged size are lost. Of a remote file that is mapped
lazily, the heads of records are fetched alone, one small request each, which pays where records are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, UInt32Array, read_only
from penstock.files.mapping import FetchedParts, check_mapped, is_lazy, map_file
from penstock.kernels.crc32c import HEAD, TAIL, crc32c, masked, walk_records
from penstock.kernels.examples import PART

AT_ONCE = 4096  # records that are listed in one call


@dataclass(frozen=True, eq=False)
class TFRecordIndex:
    """The records of a file."""

    begin: IntArray
    size: IntArray
    checksum: UInt32Array
    end: int


def map_records(path: Path, *, lazy: bool = False) -> ByteArray:
    """Return the bytes of a file as a read-only map, `[n]` uint8."""
    return read_only(map_file(path, lazy=lazy))


def index_records(data: ByteArray) -> TFRecordIndex:
    """List the records of a file, up to the first one that is damaged or cut off."""
    check_mapped(data)
    begins: list[IntArray] = []
    sizes: list[IntArray] = []
    step = 1 if is_lazy(data) else AT_ONCE
    end, n = 0, step
    with FetchedParts(data, PART) as parts:
        while n == step:
            parts.fetch(np.array([end - TAIL]), np.array([end + HEAD]))
            begin, size = np.zeros((2, step), np.int64)
            n, end = walk_records(data, end, begin, size)
            begins.append(begin[:n])
            sizes.append(size[:n])
        begin, size = np.concatenate(begins), np.concatenate(sizes)
        tail = data[(begin + size)[:, None] + np.arange(TAIL)] if len(begin) else np.zeros((0, TAIL), np.uint8)
    return TFRecordIndex(begin, size, np.ascontiguousarray(tail).view("<u4").reshape(-1), end)


def record_of(data: bytes) -> bytes:
    """Return data as a record, with sizes and checksums."""
    size = len(data).to_bytes(8, "little")
    return b"".join((size, _checksum(size), data, _checksum(data)))


def _checksum(raw: bytes) -> bytes:
    return masked(crc32c(np.frombuffer(raw, np.uint8))).to_bytes(4, "little")
