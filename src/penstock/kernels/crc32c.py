"""CRC-32C (Castagnoli, RFC 3720), and records framed by it as in TFRecord files.

The checksum is the remainder of the bytes as a polynomial over bits, modulo 0x1EDC6F41, bits reflected. Eight tables
("slicing by 8") give the contribution of each of eight bytes, so that a step takes eight bytes: 1 to 2 GB/s, without
instructions that only some processors have. The tables are computed from the polynomial when they are first used.

A record is its size (8 bytes), the masked checksum of these, the data, and the masked checksum of the data, all
little-endian. A masked checksum is rotated by 15 bits and has a constant added, because the checksum of data that
contain their own checksum says nothing. The caller owns all arrays.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, IntScalar, UInt32Array
from penstock.kernels.intrinsics import load8
from penstock.kernels.jit import helper, kernel

_POLYNOMIAL = 0x82F63B78  # reflected
_MASK = 0xA282EAD8
HEAD, TAIL = 12, 4  # bytes of a record before and after its data


@cache
def _tables() -> UInt32Array:
    """Return `[8, 256]` uint32: entry `[k, b]` is the checksum of byte `b` followed by `k` zeros."""
    table = np.zeros((8, 256), np.uint32)
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(_POLYNOMIAL), crc >> 1)
    table[0] = crc
    for k in range(1, 8):
        table[k] = (table[k - 1] >> 8) ^ table[0][table[k - 1] & 255]
    table.flags.writeable = False
    return table


def crc32c(data: ByteArray) -> int:
    """Return the CRC-32C of bytes."""
    return int(_crc32c(data, 0, len(data), _tables()))


def masked(crc: int) -> int:
    """Return the masked form of a checksum, as records store it."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def walk_records(data: ByteArray, position: int, begin: IntArray, size: IntArray) -> tuple[int, int]:
    """List records until the arrays are full, the data end, or a record does not end within the data.

    The checksum of each size is compared, the checksum of the data is not.
    """
    if len(begin) != len(size) or position < 0:
        raise ValueError(f"expected a position and arrays of one length, got {position}, {len(begin)}, {len(size)}")
    n, after = _walk_records(data, position, begin, size, _tables())
    return int(n), int(after)


def first_damaged(data: ByteArray, begin: IntArray, size: IntArray) -> int:
    """Return which of the records has data that differ from their checksum, or -1."""
    inside = (begin >= HEAD) & (size >= 0) & (begin <= len(data) - TAIL - size)
    if len(begin) != len(size) or not inside.all():
        raise ValueError(f"expected records within {len(data)} bytes")
    return int(_first_damaged(data, begin, size, _tables()))


@helper
def _masked(crc: np.uint32) -> np.uint32:
    return np.uint32(np.uint32(crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8))


@helper
def _word(data: ByteArray, offset: IntScalar) -> np.uint32:
    """Return four bytes as a little-endian number."""
    low = np.uint32(data[offset]) | np.uint32(data[offset + 1]) << np.uint32(8)
    return np.uint32(low | np.uint32(data[offset + 2]) << np.uint32(16) | np.uint32(data[offset + 3]) << np.uint32(24))


@kernel("u1[1Cr] i8 i8 u4[2Cr]")
def _crc32c(data: ByteArray, begin: IntScalar, end: IntScalar, table: UInt32Array) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    byte = np.uint64(255)
    address = data.ctypes.data
    offset: IntScalar = begin
    while offset + 8 <= end:
        word = load8(address + offset) ^ np.uint64(crc)
        low = table[7, word & byte] ^ table[6, word >> np.uint64(8) & byte] ^ table[5, word >> np.uint64(16) & byte]
        low = low ^ table[4, word >> np.uint64(24) & byte] ^ table[3, word >> np.uint64(32) & byte]
        high = table[2, word >> np.uint64(40) & byte] ^ table[1, word >> np.uint64(48) & byte]
        crc = np.uint32(low ^ high ^ table[0, word >> np.uint64(56)])
        offset += 8
    while offset < end:
        crc = np.uint32(table[0, (crc ^ np.uint32(data[offset])) & np.uint32(255)] ^ crc >> np.uint32(8))
        offset += 1
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


@kernel("u1[1Cr] i8 i8[1C] i8[1C] u4[2Cr]")
def _walk_records(
    data: ByteArray, position: int, begin: IntArray, size: IntArray, table: UInt32Array
) -> tuple[IntScalar, IntScalar]:
    end = len(data)
    offset: IntScalar = position
    for i in range(len(begin)):
        if offset > end - 16:  # HEAD + TAIL
            return i, offset
        low, high = np.int64(_word(data, offset)), np.int64(_word(data, offset + 4))
        payload = low | high << 32
        sound = _masked(_crc32c(data, offset, offset + 8, table)) == _word(data, offset + 8)
        if not sound or payload < 0 or payload > end - 16 - offset:
            return i, offset
        begin[i], size[i] = offset + 12, payload
        offset += 16 + payload
    return len(begin), offset


@kernel("u1[1Cr] i8[1C] i8[1C] u4[2Cr]")
def _first_damaged(data: ByteArray, begin: IntArray, size: IntArray, table: UInt32Array) -> int:
    for i in range(len(begin)):
        end = begin[i] + size[i]
        if _masked(_crc32c(data, begin[i], end, table)) != _word(data, end):
            return i
    return -1
