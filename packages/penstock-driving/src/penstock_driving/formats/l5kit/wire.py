"""Protobuf's wire format, read as data: no schema compiler, no code from the file, nothing read out of bounds.

A message is a sequence of fields: a varint `number << 3 | type`, then a varint (type 0), 8 bytes (1), a varint length
and that number of bytes (2), or 4 bytes (5). Types 3 and 4 are groups, which nothing has written for twenty years.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from penstock.core.arrays import IntArray
from penstock.errors import FormatError

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
Span = tuple[int, int]  # [low, high) within the buffer
Field = tuple[int, int, int, int]  # number, wire type, low, high: of a varint its own bytes


def fields(buffer: bytes, span: Span) -> Iterator[Field]:
    """The fields of the message in `buffer[low:high]`, in order."""
    place, high = span
    while place < high:
        start = place
        tag, place = varint(buffer, place, high)
        number, kind = tag >> 3, tag & 7
        if kind == BYTES:
            length, place = varint(buffer, place, high)
        elif kind == VARINT:
            length = varint(buffer, place, high)[1] - place
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise FormatError(f"expected wire type 0, 1, 2 or 5, got {kind}", where=f"byte {start}")
        if number == 0 or length > high - place:
            raise FormatError(
                f"expected a field within its message of {high - place} more bytes, got field {number} of {length} "
                "bytes",
                where=f"byte {start}",
            )
        yield number, kind, place, place + length
        place += length


def varint(buffer: bytes, offset: int, high: int) -> tuple[int, int]:
    """The unsigned number at `buffer[at]` and where it ends."""
    value = 0
    for shift, place in enumerate(range(offset, min(high, offset + 10))):
        byte = buffer[place]
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + 1
    raise FormatError("expected a number of at most 10 bytes, got one that does not end", where=f"byte {offset}")


def signed32(buffer: bytes, field: Field) -> int:
    """The value of an `sfixed32` field."""
    number, kind, low, _ = field
    if kind != FIXED32:
        raise FormatError(f"expected 4 bytes in field {number}, got wire type {kind}", where=f"byte {low}")
    return struct.unpack_from("<i", buffer, low)[0]


def zigzags(payload: bytes) -> tuple[IntArray, IntArray]:
    """All `sint32` numbers in `payload`, adjacent varints, and the byte `[n + 1]` where each begins.

    Cost: some passes over the bytes, no loop.
    """
    values = np.frombuffer(payload, np.uint8)
    ends = np.flatnonzero(values < 0x80) + 1
    begins = np.concatenate([[0], ends]).astype(np.int64)
    if begins[-1] != len(values):
        raise FormatError("expected whole numbers, got one that is cut off")
    length = np.diff(begins)
    if np.any(length > 10):
        raise FormatError(f"expected numbers of at most 10 bytes, got one of {length.max()}")
    shift = 7 * (np.arange(len(values)) - np.repeat(begins[:-1], length))
    parts = np.where(
        shift < 64, (values & np.uint8(0x7F)).astype(np.uint64) << np.minimum(shift, 63).astype(np.uint64), 0
    )
    value = np.add.reduceat(parts, begins[:-1]) if len(ends) else np.empty(0, np.uint64)
    if np.any(value > 0xFFFFFFFF):
        raise FormatError("expected numbers of 32 bits, got a larger one")
    number = value.astype(np.int64)
    return (number >> 1) ^ -(number & 1), begins
