"""Streams of standard compressors, decoded with the size that must come out."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray
from penstock.errors import FormatError, require


def decoder_of(compressor: Mapping[str, Any]) -> Callable[[ByteArray, int], ByteArray]:
    """How streams of a codec are decoded: `decode(raw, size)` gives at most `size + 1` bytes. Raises `FormatError`."""
    try:
        return _DECODERS[compressor["id"]]
    except KeyError:
        known = ["blosc", *_DECODERS]
        raise FormatError(f"expected a compressor among {known}, got {str(compressor['id'])[:100]!r}") from None


def _standard(make: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Callable[[ByteArray, int], ByteArray]:
    def decode(raw: ByteArray, size: int) -> ByteArray:
        stream = make()
        try:
            decoded = np.frombuffer(stream.decompress(raw.tobytes(), size + 1), np.uint8)
        except errors as error:
            raise FormatError(f"expected a sound stream: {error}") from error
        if len(decoded) == size and not stream.eof:
            raise FormatError("expected the end of the stream, which has its checksum, got none")
        return decoded

    return decode


def _sized(name: str, stated_size: Callable[[bytes], int | None]) -> Callable[[ByteArray, int], ByteArray]:
    """Of the library; `told` is the size that a stream claims, which must be right before memory is taken for it."""

    def decode(raw: ByteArray, size: int) -> ByteArray:
        codec: Any = require(f"numcodecs.{name}", "zarr")
        claimed = stated_size(raw[:18].tobytes())
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
    offset = 5 + (0 if flags & 0x20 else 1) + (0, 1, 2, 4)[flags & 3]
    if not width or len(head) < offset + width:
        return None
    return int.from_bytes(head[offset : offset + width], "little") + (256 if width == 2 else 0)


_DECODERS: dict[str, Callable[[ByteArray, int], ByteArray]] = {
    "zlib": _standard(zlib.decompressobj, (zlib.error,)),
    "gzip": _standard(lambda: zlib.decompressobj(31), (zlib.error,)),
    "bz2": _standard(bz2.BZ2Decompressor, (OSError, ValueError)),
    "lzma": _standard(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), (lzma.LZMAError,)),
    "lz4": _sized("lz4", _lz4_size),
    "zstd": _sized("zstd", _zstd_size),
}
