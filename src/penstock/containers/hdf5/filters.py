"""Filters of chunked data: deflate, shuffle, fletcher32 and lzf, decoded with every size bounded.

Decoding stops when a stage exceeds the size of the chunk by more than `SLACK` bytes, and a chunk that could not be
compressed that much (deflate reaches a factor of 1032) is refused before any memory is allocated.

Sources: the filter registry of The HDF Group; LibLZF's format, by Marc Lehmann, as h5py writes it; Fletcher, "An
arithmetic checksum for serial transmissions" (1982), in the variant of libhdf5.
"""

from __future__ import annotations

import zlib

import numpy as np

from penstock.containers.hdf5.image import INFLATION
from penstock.containers.hdf5.messages import Filter
from penstock.errors import ChecksumError, FormatError

DEFLATE = 1
SHUFFLE = 2
FLETCHER32 = 3
LZF = 32000
DECODED = frozenset((DEFLATE, SHUFFLE, FLETCHER32, LZF))
SLACK = 64  # what filters that lengthen their input may add


def decode(raw: bytes, filters: tuple[Filter, ...], mask: int, nbytes: int) -> bytes:
    """Undo `filters` on a stored chunk that must come out as `nbytes`."""
    if nbytes > INFLATION * len(raw) + SLACK:
        raise FormatError(f"a chunk of {nbytes} bytes cannot come from {len(raw)} stored bytes")
    for i in reversed(range(len(filters))):
        if not mask >> i & 1:
            raw = _undo(raw, filters[i], nbytes)
    if len(raw) != nbytes:
        raise FormatError(f"expected a chunk of {nbytes} bytes, got {len(raw)}")
    return raw


def undecodable(filters: tuple[Filter, ...]) -> str | None:
    """The first filter that `decode` does not know, for a message; None if it knows all."""
    return next((f"filter {f.number} ({f.name or 'unnamed'})" for f in filters if f.number not in DECODED), None)


def _undo(raw: bytes, applied: Filter, nbytes: int) -> bytes:
    if applied.number == DEFLATE:
        return _inflate(raw, nbytes + SLACK)
    if applied.number == SHUFFLE:
        return _unshuffle(raw, applied.values[0] if applied.values else 1)
    if applied.number == FLETCHER32:
        return _verify_fletcher32(raw)
    if applied.number == LZF:
        return _unlzf(raw, nbytes + SLACK)
    raise FormatError(f"{undecodable((applied,))} is not supported; rewrite with gzip")


def _inflate(raw: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(raw, limit)
    except zlib.error as error:
        raise FormatError(f"damaged deflated chunk: {error}") from error
    if not stream.eof:
        raise FormatError(f"deflated chunk does not end within {limit} bytes")
    return out


def _unshuffle(raw: bytes, size: int) -> bytes:
    whole = len(raw) // size * size if size else 0
    if size < 2 or not whole:
        return raw
    planes = np.frombuffer(raw, np.uint8, whole).reshape(size, -1)
    return planes.T.tobytes() + raw[whole:]


def fletcher32(data: bytes | memoryview) -> int:
    """Fletcher's checksum of big-endian 16-bit words, as HDF5 takes it."""
    even = bytes(data) + b"\0" if len(data) & 1 else data
    words = np.frombuffer(even, ">u2").astype(np.uint64)
    first = second = 0
    for start in range(0, len(words), 1 << 20):  # sums of at most 2^20 terms below 2^36 fit in 64 bits
        part = words[start : start + (1 << 20)]
        weights = np.arange(len(part), 0, -1, dtype=np.uint64)
        second = _fold(second + len(part) * first + int((part * weights).sum()))
        first = _fold(first + int(part.sum()))
    return second << 16 | first


def _fold(total: int) -> int:
    return (total - 1) % 65535 + 1 if total else 0  # ones' complement: a sum that is not 0 stays so


def _verify_fletcher32(raw: bytes) -> bytes:
    if len(raw) < 4 or fletcher32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise ChecksumError("fletcher32 checksum of a chunk is wrong")
    return raw[:-4]


def _unlzf(raw: bytes, limit: int) -> bytes:
    out = bytearray()
    position = 0
    while position < len(raw):
        control = raw[position]
        position += 1
        if control < 32:
            out += raw[position : position + control + 1]
            position += control + 1
        else:
            length = control >> 5
            if length == 7:
                length += raw[position]
                position += 1
            start = len(out) - (control & 31) * 256 - raw[position] - 1
            position += 1
            _repeat(out, start, length + 2)
        if len(out) > limit:
            raise FormatError(f"lzf chunk does not end within {limit} bytes")
    return bytes(out)


def _repeat(out: bytearray, start: int, length: int) -> None:
    if start < 0:
        raise FormatError("lzf chunk refers to bytes before its start")
    period = len(out) - start
    piece = bytes(out[start : start + length])
    out += piece if len(piece) == length else (piece * (length // period + 1))[:length]
