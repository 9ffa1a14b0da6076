"""Chunks of an array, by how they are compressed: each gives its rows in pieces that are decoded together.

A Blosc buffer consists of blocks that are decoded alone, so a random row costs a block and not a chunk. If blocks cut
rows, a piece has the number of rows that a block has room for, and needs two blocks or more. Other codecs decode a
chunk as a whole. A chunk has its compressed bytes, a view of a memory map or owned (`nbytes` counts them).
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.blosc import MOST_BYTES, BloscBuffer
from penstock.containers.zarr.codecs import ChunkCodecs, decoder_of, unpacked
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.core.arrays import ByteArray
from penstock.errors import FormatError

TABLE_BYTES = 4096  # assumed cost of a cached chunk
_FILLED = 1 << 20  # bytes of a piece of rows where nothing was written
_FEW_BLOCKS = 2  # that cut rows are decoded as one piece


class Chunk(ABC):
    """`piece_rows` rows, perhaps fewer in the last piece, are decoded together; `nbytes` is what keeping it costs."""

    piece_rows: int
    nbytes: int
    decoded: bool = False

    @abstractmethod
    def piece(self, p: int) -> ByteArray:
        """The bytes of piece `p`."""

    @abstractmethod
    def whole(self, out: ByteArray) -> None:
        """All bytes into `out`."""


class PlainChunk(Chunk):
    """Bytes stored as they are: a memory map, most of the time."""

    decoded = True

    def __init__(self, raw: ByteArray, rows: int, nbytes: int) -> None:
        self._raw = raw
        self.piece_rows = rows
        self.nbytes = nbytes

    @override
    def piece(self, p: int) -> ByteArray:
        return self._raw

    @override
    def whole(self, out: ByteArray) -> None:
        out[:] = self._raw


class _LastBlock(threading.local):
    """The block that a thread decoded last. Memory: one block for each thread; the chunk itself is not kept."""

    chunk: weakref.ref[Chunk] | None = None
    number = -1
    decoded: ByteArray

    def block(self, chunk: Chunk, b: int, buffer: BloscBuffer) -> ByteArray:
        """Block `b` of the buffer of a chunk."""
        if self.chunk is None or self.chunk() is not chunk or self.number != b:
            self.chunk = None
            self.decoded = buffer.block(b)
            self.chunk, self.number = weakref.ref(chunk), b
        return self.decoded


_LAST = _LastBlock()


class BloscChunk(Chunk):
    """A chunk in Blosc. Each thread keeps the block that it decoded last, in which the next piece may begin."""

    def __init__(self, buffer: BloscBuffer, rows: int, row_bytes: int, nbytes: int) -> None:
        self._buffer, self._row_bytes = buffer, row_bytes
        self._aligned = buffer.block_bytes % row_bytes == 0
        self.nbytes = nbytes
        self.piece_rows = max(buffer.block_bytes // row_bytes, 1)
        if not self._aligned and len(buffer.first) <= _FEW_BLOCKS:
            self.piece_rows = rows

    @override
    def piece(self, p: int) -> ByteArray:
        buffer = self._buffer
        if self._aligned:
            return buffer.block(p)
        size, begin = self.piece_rows * self._row_bytes, p * self.piece_rows * self._row_bytes
        out = np.empty(min(size, buffer.nbytes - begin), np.uint8)
        if len(out) == buffer.nbytes:
            buffer.whole(out)
            return out
        end, width = begin + len(out), buffer.block_bytes
        for b in range(begin // width, (end - 1) // width + 1):
            first = b * width
            block = _LAST.block(self, b, buffer)
            a, z = max(begin, first), min(end, first + width)
            out[a - begin : z - begin] = block[a - first : z - first]
        return out

    @override
    def whole(self, out: ByteArray) -> None:
        self._buffer.whole(out)


class StreamChunk(Chunk):
    """A stream that is decoded as a whole."""

    def __init__(self, raw: ByteArray, compressor: Mapping[str, Any], rows: int, size: int, nbytes: int) -> None:
        decoder_of(compressor)  # an unknown one is an error now
        self._raw = raw
        self._compressor = compressor
        self._size = size
        self.piece_rows, self.nbytes = rows, nbytes

    @override
    def piece(self, p: int) -> ByteArray:
        return unpacked(self._compressor, self._raw, self._size)

    @override
    def whole(self, out: ByteArray) -> None:
        out[:] = self.piece(0)


class FilledChunk(Chunk):
    """A chunk that is not stored: every row is the fill value. Memory: at most 1 MiB, or one row."""

    decoded = True

    def __init__(self, metadata: ArrayMetadata) -> None:
        self._row, self._rows = np.frombuffer(metadata.fill, np.uint8), metadata.chunk_rows
        self.piece_rows = min(self._rows, max(_FILLED // metadata.row_bytes, 1))
        self._piece = np.tile(self._row, self.piece_rows)
        self.nbytes = self._piece.nbytes

    @override
    def piece(self, p: int) -> ByteArray:
        rows = min(self.piece_rows, self._rows - p * self.piece_rows)
        return self._piece[: rows * len(self._row)]

    @override
    def whole(self, out: ByteArray) -> None:
        out.reshape(-1, len(self._row))[:] = self._row


class ShardChunk(Chunk):
    """A shard whose chunks hold whole rows: each is a piece."""

    def __init__(self, codecs: ChunkCodecs, raw: ByteArray, nbytes: int) -> None:
        shards = codecs.shards
        if shards is None:
            raise FormatError("expected a shard, got a chunk")
        self._inner, self._raw = shards.inner, raw
        self._places = shards.places(raw)
        self.piece_rows, self.nbytes = shards.inner.shape[0], nbytes + 120 * len(self._places)

    @override
    def piece(self, p: int) -> ByteArray:
        place = self._places[p]
        rows = self._inner.empty() if place is None else self._inner.decode(self._raw[place[0] : place[1]])
        return np.ascontiguousarray(rows).reshape(-1).view(np.uint8)

    @override
    def whole(self, out: ByteArray) -> None:
        size = self._inner.nbytes
        for p in range(len(self._places)):
            out[p * size : (p + 1) * size] = self.piece(p)


class AssembledChunk(Chunk):
    """Rows that several stored chunks have a part of, or one whose values have to be put in order."""

    def __init__(self, metadata: ArrayMetadata, parts: Sequence[tuple[Any, ByteArray | None]], nbytes: int) -> None:
        self._metadata, self._parts = metadata, parts
        self.piece_rows, self.nbytes = metadata.chunk_rows, nbytes + 200 * len(parts)

    @override
    def piece(self, p: int) -> ByteArray:
        metadata = self._metadata
        rows = np.empty((metadata.chunk_rows, *metadata.shape[1:]), metadata.dtype)
        for place, raw in self._parts:
            part = rows[(slice(None), *place)]
            values = metadata.codecs.empty() if raw is None else metadata.codecs.decode(raw)
            part[...] = values[tuple(slice(n) for n in part.shape)]
        return rows.reshape(-1).view(np.uint8)

    @override
    def whole(self, out: ByteArray) -> None:
        out[:] = self.piece(0)


def chunk_of(metadata: ArrayMetadata, raw: ByteArray, owned: bool) -> Chunk:
    """The chunk whose bytes are stored as `raw`; `owned` where the chunk owns their memory."""
    rows = metadata.chunk_rows
    size = metadata.chunk_bytes
    compressor = metadata.compressor
    nbytes = TABLE_BYTES + (len(raw) if owned else 0)
    if not metadata.codecs.plain:
        shards = metadata.codecs.shards
        if shards is not None and shards.inner.shape[1:] == metadata.shape[1:]:
            return ShardChunk(metadata.codecs, raw, nbytes)
        whole = (slice(None),) * (len(metadata.shape) - 1)
        return AssembledChunk(metadata, [(whole, raw)], nbytes)
    if compressor is None:
        if len(raw) != size:
            raise FormatError(f"expected {size} bytes, got {len(raw)}")
        return PlainChunk(raw, rows, nbytes)
    if size > MOST_BYTES:
        raise FormatError(f"expected compressed chunks of at most {MOST_BYTES} bytes, got {size}")
    if compressor["id"] == "blosc":
        buffer = BloscBuffer.of(raw, size)
        if (copied := buffer.copied) is not None:
            return PlainChunk(copied, rows, nbytes)
        return BloscChunk(buffer, rows, metadata.row_bytes, nbytes + 80 * len(buffer.first))
    return StreamChunk(raw, compressor, rows, size, nbytes)
