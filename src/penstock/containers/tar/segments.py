"""Compressed archives in segments, which are joined to one archive without compressing them again.

A segment of zstd is a frame. A segment of gzip is a run of deflate blocks that refers to no byte before it and ends on
a whole byte (`Z_FULL_FLUSH`), as pigz writes them. The file has a single gzip member, whose checksum follows from those
of its segments. One member for each segment would be simpler, and gzip reads it, but `tarfile` in stream mode, which
webdataset uses, stops behind the first member.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Literal, NamedTuple

from penstock.containers.tar.compress import PIECE, compressor
from penstock.files import atomic_file
from penstock.files.remote import open_file

HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
"""Of a gzip member without a name and a time, from an unknown system."""
LAST_BLOCK = b"\x03\x00"
"""A deflate block without bytes that ends a stream."""
_LEVEL = 6
_POLYNOMIAL = 0xEDB88320


class PackedSegment(NamedTuple):
    """A part of a compressed file that stands for itself."""

    begin: int
    end: int
    length: int
    checksum: int


def pack_segments(
    source: Path, target: Path, kind: Literal["gzip", "zstd"], cuts: Sequence[int]
) -> list[PackedSegment]:
    """Compress a file to another one, which appears when it is complete."""
    segments: list[PackedSegment] = []
    with open_file(source) as file, atomic_file(target, durable="file") as out:
        out.write(HEADER if kind == "gzip" else b"")
        for begin, end in pairwise(cuts):
            place = out.tell()
            checksum = _pack_range(file, begin, end, out, kind)
            segments.append(PackedSegment(place, out.tell(), end - begin, checksum))
        out.write(_trailer(segments) if kind == "gzip" else b"")
    return segments


def _pack_range(file: IO[bytes], begin: int, end: int, out: IO[bytes], kind: Literal["gzip", "zstd"]) -> int:
    """Write a range of a file as one segment; return its CRC-32."""
    checksum = 0
    if kind == "zstd":
        with compressor(out, kind) as frame:
            for part in _pieces(file, begin, end):
                frame.write(part)
        return checksum
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    for part in _pieces(file, begin, end):
        checksum = zlib.crc32(part, checksum)
        out.write(deflate.compress(part))
    out.write(deflate.flush(zlib.Z_FULL_FLUSH))
    return checksum


def join_segments(segments: Iterable[tuple[Path, PackedSegment]], target: Path, kind: Literal["gzip", "zstd"]) -> None:
    """Copy segments into one compressed file, which appears when it is complete. One from an earlier call
    is replaced.
    """
    copied: list[PackedSegment] = []
    with atomic_file(target, durable="folder") as out:
        out.write(HEADER if kind == "gzip" else b"")
        for path, segment in segments:
            with open_file(path) as file:
                for part in _pieces(file, segment.begin, segment.end):
                    out.write(part)
            copied.append(segment)
        out.write(_trailer(copied) if kind == "gzip" else b"")


def _pieces(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    file.seek(begin)
    for place in range(begin, end, PIECE):
        yield file.read(min(PIECE, end - place))


def _trailer(segments: Sequence[PackedSegment]) -> bytes:
    """Return the end of a gzip member: the last block, the CRC-32 of all unpacked bytes, and their number."""
    checksum = length = 0
    for segment in segments:
        checksum = _times(_power(8 * segment.length), checksum) ^ segment.checksum
        length += segment.length
    return LAST_BLOCK + checksum.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little")


def _power(exponent: int) -> int:
    """Return `x ** exponent` modulo the polynomial of CRC-32. The coefficient of `x ** 0` is the highest bit.

    `n` bytes behind others multiply the checksum of those by `x ** 8n`, so checksums of pieces give the one of all (the
    method of zlib's `crc32_combine`).
    """
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _times(square, result)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(a: int, b: int) -> int:
    """Return the product of two polynomials modulo the one of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
