"""ArrayRecord files: records in chunks of a Riegeli file, with a postscript in the last block.

Every 64 KiB a block header of 24 bytes interrupts the chunks. A chunk has a header of 40 bytes and its data: the kind
of compression, the compressed sizes of all records, and the compressed values. Hashes are HighwayHash.

Format: `riegeli/records/records_file_format.md` of github.com/google/riegeli, and `layout.proto` of ArrayRecord.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, read_only
from penstock.core.ragged import offsets_of
from penstock.errors import ChecksumError, FormatError, UnsafeDataError, require
from penstock.files.mapping import check_mapped
from penstock.kernels.highwayhash import highway_hash

BLOCK = 1 << 16
BLOCK_HEADER = 24
HEADER = 40  # bytes of the header of a chunk
MAGIC = 0x71930E704FDAE05E
START = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000")  # of every Riegeli file
MOST_BYTES = 1 << 31  # of a decoded chunk


@dataclass(frozen=True)
class RiegeliChunk:
    """Header of a chunk at byte `position`; the next one is at byte `end`."""

    position: int
    end: int
    size: int
    digest: int
    kind: bytes
    records: int
    decoded: int


def is_riegeli(data: ByteArray) -> bool:
    """Return whether a file begins like a Riegeli file."""
    return data[: len(START)].tobytes() == START


def read_span(data: ByteArray, position: int, size: int) -> tuple[ByteArray, int]:
    """Return bytes without the block headers in between, read-only, and the position behind them."""
    parts: list[ByteArray] = []
    while size:
        if position % BLOCK == 0:
            position += BLOCK_HEADER
        part = data[position : position + min(size, BLOCK - position % BLOCK)]
        if not len(part):
            raise FormatError("expected a whole chunk, got the end of the file")
        parts.append(part)
        position += len(part)
        size -= len(part)
    return read_only(parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.uint8), *parts])), position


def chunk_at(data: ByteArray, position: int) -> RiegeliChunk:
    raw, after = read_span(data, position, HEADER)
    words = raw.view("<u8").tolist() if raw.ctypes.data % 8 == 0 else raw.copy().view("<u8").tolist()
    stored, size, digest, kind, decoded = words
    if stored != highway_hash(read_only(raw[8:])) or size > len(data):
        raise FormatError("expected the header of a chunk, got bytes of another hash", where=f"byte {position}")
    records = kind >> 8
    room = -after % BLOCK  # bytes up to the next block header
    full = BLOCK - BLOCK_HEADER
    headers = max(-(-(size - room) // full), 0)
    end = after + size + headers * BLOCK_HEADER
    return RiegeliChunk(position, max(end, position + records), size, digest, bytes([kind & 255]), records, decoded)


def decode_chunk(data: ByteArray, chunk: RiegeliChunk, *, verify: bool = True) -> tuple[ByteArray, IntArray]:
    check_mapped(data)
    where = f"byte {chunk.position}"
    raw, _ = read_span(data, chunk.position, HEADER + chunk.size)
    raw = read_only(raw[HEADER:])
    if verify and highway_hash(raw) != chunk.digest:
        raise ChecksumError("expected the bytes of the chunk as they were written", where=where)
    if chunk.kind != b"r" or not len(raw) or chunk.decoded > MOST_BYTES:
        raise FormatError(f"expected a chunk of simple records, got {chunk}", where=where)
    kind = raw[:1].tobytes()
    size, offset = _varint(raw, 1)
    sizes = _unpacked(kind, read_only(raw[offset : offset + size]), chunk.records * 10)
    lengths = np.zeros(chunk.records, np.int64)
    place = 0
    for i in range(chunk.records):
        length, place = _varint(sizes, place)
        lengths[i] = min(length, MOST_BYTES + 1)
    offsets = offsets_of(lengths)
    values = _unpacked(kind, read_only(raw[offset + size :]), chunk.decoded)
    if offsets[-1] != len(values) or len(values) != chunk.decoded:
        raise FormatError(f"expected {chunk.decoded} bytes of records, got {len(values)}", where=where)
    return values, offsets


def record_chunks(data: ByteArray) -> tuple[list[RiegeliChunk], str | None]:
    """List the chunks of records, up to the first one with a damaged header."""
    check_mapped(data)
    damaged = None
    try:
        end = _records_end(data)
    except FormatError as error:
        damaged = f"no postscript, so the file was cut off or not closed: {error}"
        end = len(data)
    chunks: list[RiegeliChunk] = []
    position = 0
    while position < len(data) - BLOCK or position < end:  # behind the records are a footer and padding
        if position and position % BLOCK == 0 and is_riegeli(data[position:]):
            raise FormatError(f"expected one file, got several; another one begins at byte {position}; split them")
        try:
            chunk = chunk_at(data, position)
        except FormatError as error:
            return chunks, damaged if position >= end else damaged or f"chunks behind byte {position}: {error}"
        if chunk.kind == b"r" and position < end:
            chunks.append(chunk)
        position = chunk.end
    return chunks, damaged


def _records_end(data: ByteArray) -> int:
    """Return the byte at which the records end, from the postscript."""
    if len(data) < 2 * BLOCK or len(data) % BLOCK:
        raise FormatError(f"expected whole blocks of {BLOCK} bytes, got {len(data)} bytes")
    values, offsets = decode_chunk(data, chunk_at(data, len(data) - BLOCK))
    fields: dict[int, int] = {}
    offset = 0
    while len(offsets) > 1 and offset < offsets[1]:
        tag, offset = _varint(values, offset)
        fields[tag], offset = _varint(values, offset)
    if fields.get(16) != MAGIC or not 0 <= fields.get(8, -1) <= len(data):
        raise FormatError(f"expected a postscript, got the fields {fields}")
    return fields[8]


def _varint(data: ByteArray, offset: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        if offset >= len(data):
            raise FormatError("expected a number, got the end of the chunk")
        byte = int(data[offset])
        value |= (byte & 127) << shift
        offset += 1
        if byte < 128:
            return value, offset
        shift += 7
    raise FormatError("expected a number of 64 bits, got a longer one")


def _unpacked(kind: bytes, raw: ByteArray, most: int) -> ByteArray:
    """Return decompressed bytes, read-only."""
    if kind == b"\0":
        return raw
    if kind != b"z":
        raise FormatError(f"expected records that are plain or compressed with zstd, got {kind!r}")
    size, offset = _varint(raw, 0)
    if size > most:
        raise UnsafeDataError(f"expected at most {most} bytes decompressed, got {size}")
    zstd: Any = require("zstandard", "zstd")
    try:
        if size and zstd.frame_content_size(raw[offset:].tobytes()) not in (-1, size):
            raise FormatError(f"expected a frame of {size} bytes, got one of another size")
        blob = zstd.ZstdDecompressor().decompress(raw[offset:].tobytes(), max_output_size=size) if size else b""
    except zstd.ZstdError as error:
        raise FormatError(f"expected data compressed with zstd, got {error}") from error
    if len(blob) != size:
        raise FormatError(f"expected {size} bytes decompressed, got {len(blob)}")
    return np.frombuffer(blob, np.uint8)
