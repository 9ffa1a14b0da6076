"""Chunks of an array, by how they are compressed: each gives its rows in pieces that are decoded together."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.blosc import MOST_BYTES, BloscBuffer
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.core.arrays import ByteArray
from penstock.errors import FormatError, require


class Chunk(ABC):
    """`piece_rows` rows, perhaps fewer in the last piece, are decoded together. `decoded` says that nothing is to do.

    `nbytes` is what keeping the chunk costs in memory.
    """

    piece_rows: int
    nbytes: int
    decoded: bool = False

    @abstractmethod
    def piece(self, p: int) -> ByteArray:
        """The bytes of piece `p`. Raises `FormatError`."""

    @abstractmethod
    def whole(self, out: ByteArray) -> None:
        """All bytes into `out`. Raises `FormatError`."""


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


class BloscChunk(Chunk):
    """Blocks of whole rows are pieces; where the blocks cut rows, the chunk is one piece."""

    def __init__(self, buffer: BloscBuffer, rows: int, row_bytes: int, nbytes: int) -> None:
        self._buffer, self.nbytes = buffer, nbytes
        self._single = bool(buffer.block_bytes % row_bytes)
        self.piece_rows = rows if self._single else buffer.block_bytes // row_bytes

    @override
    def piece(self, p: int) -> ByteArray:
        if not self._single:
            return self._buffer.block(p)
        out = np.empty(self._buffer.nbytes, np.uint8)
        self._buffer.whole(out)
        return out

    @override
    def whole(self, out: ByteArray) -> None:
        self._buffer.whole(out)


class StreamChunk(Chunk):
    """A stream that is decoded as a whole."""

    def __init__(
        self, raw: ByteArray, decode: Callable[[ByteArray, int], ByteArray], rows: int, size: int, nbytes: int
    ) -> None:
        self._raw = raw
        self._decode = decode
        self._size = size
        self.piece_rows, self.nbytes = rows, nbytes

    @override
    def piece(self, p: int) -> ByteArray:
        found = self._decode(self._raw, self._size)
        if len(found) != self._size:
            raise FormatError(f"expected {self._size} bytes once decoded, got {_size_text(len(found), self._size)}")
        return found

    @override
    def whole(self, out: ByteArray) -> None:
        out[:] = self.piece(0)


def chunk_of(metadata: ArrayMetadata, raw: ByteArray, owned: bool) -> Chunk:
    """The chunk whose bytes are stored as `raw`; `owned` where the chunk owns their memory.

    Raises `FormatError` without a place. Cost: the table of a Blosc buffer is read, nothing is decoded.
    """
    rows = metadata.chunk_rows
    size = metadata.chunk_bytes
    compressor = metadata.compressor
    nbytes = _TABLE + (len(raw) if owned else 0)
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
    return StreamChunk(raw, decoder_of(compressor), rows, size, nbytes)


_TABLE = 4096  # assumed cost of a cached chunk


def decoder_of(compressor: Mapping[str, Any]) -> Callable[[ByteArray, int], ByteArray]:
    """How streams of a codec are decoded: `decode(raw, size)` gives at most `size + 1` bytes. Raises `FormatError`.

    >>> decoder_of({"id": "zlib"})(np.frombuffer(zlib.compress(b"ab"), np.uint8), 2).tobytes()
    b'ab'
    """
    try:
        return _DECODERS[compressor["id"]]
    except KeyError:
        known = ["blosc", *_DECODERS]
        raise FormatError(f"expected a compressor among {known}, got {str(compressor['id'])[:100]!r}") from None


def _standard(make: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Callable[[ByteArray, int], ByteArray]:
    def decode(raw: ByteArray, size: int) -> ByteArray:
        stream = make()
        try:
            found = np.frombuffer(stream.decompress(raw.tobytes(), size + 1), np.uint8)
        except errors as error:
            raise FormatError(f"expected a sound stream: {error}") from error
        if len(found) == size and not stream.eof:
            raise FormatError("expected the end of the stream, which has its checksum, got none")
        return found

    return decode


def _sized(name: str, told: Callable[[bytes], int | None]) -> Callable[[ByteArray, int], ByteArray]:
    """Of the library; `told` is the size that a stream claims, which must be right before memory is taken for it."""

    def decode(raw: ByteArray, size: int) -> ByteArray:
        codec: Any = require(f"numcodecs.{name}", "zarr")
        claimed = told(raw[:18].tobytes())
        if claimed != size:
            raise FormatError(f"expected a stream that holds {size} bytes, got one that says {claimed}")
        out = np.empty(size, np.uint8)
        try:
            codec.decompress(raw, out)
        except (RuntimeError, ValueError) as error:
            raise FormatError(f"expected a sound stream: {error}") from error
        return out

    return decode


def _lz4_size(head: bytes) -> int | None:
    return struct.unpack("<i", head[:4])[0] if len(head) >= 4 else None


def _zstd_size(head: bytes) -> int | None:
    """The decoded size in a frame's header (RFC 8878, 3.1.1.1); None where it has none."""
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flags = head[4]
    width = (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    at = 5 + (0 if flags & 0x20 else 1) + (0, 1, 2, 4)[flags & 3]
    if not width or len(head) < at + width:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


_DECODERS: dict[str, Callable[[ByteArray, int], ByteArray]] = {
    "zlib": _standard(zlib.decompressobj, (zlib.error,)),
    "gzip": _standard(lambda: zlib.decompressobj(31), (zlib.error,)),
    "bz2": _standard(bz2.BZ2Decompressor, (OSError, ValueError)),
    "lzma": _standard(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), (lzma.LZMAError,)),
    "lz4": _sized("lz4", _lz4_size),
    "zstd": _sized("zstd", _zstd_size),
}


def _size_text(found: int, expected: int) -> str:
    return f"{found}" if found <= expected else "more"
