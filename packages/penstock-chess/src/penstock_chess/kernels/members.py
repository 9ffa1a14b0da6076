"""Walk over the plain members of a tar archive, up to the first header that is not plain.

It reads headers with the system's `pread`, so that a member costs one call and other threads run meanwhile. A header
that is not plain (a link, a long name, a damaged checksum) ends the walk, and the caller reads it with a general
reader. The caller owns the file descriptor and all arrays. Format: POSIX.1-1988 (ustar).
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, IntScalar
from penstock.kernels.jit import external, helper, kernel

_BLANK = 32
_DOT = 46
_SLASH = 47
_ZERO = 48
_BLOCK, _NAME = 512, 100  # bytes of a header, and of the name in it


def plain_members(
    fd: int, position: int, end: int, payload: IntArray, size: IntArray, name: ByteArray
) -> tuple[int, int]:
    """List members until the arrays are full or a header is not plain.

    A plain member is a regular file that ends within the archive. Its header has a valid checksum, octal numbers, and a
    name in one field without `..`, a leading `.` or `/`, or a trailing `/`.
    """
    if not len(payload) == len(size) == len(name) or name.shape[1:] != (_NAME,):
        raise ValueError(
            f"expected n places, n sizes and names [n, {_NAME}], got {len(payload)}, {len(size)}, {name.shape}"
        )
    n, after = _plain_members(fd, position, end, np.empty(_BLOCK, np.uint8), payload, size, name)
    return n, int(after)


@external("i4 i8 i8 i8", "i8")
def pread(fd: int, buffer: int, size: int, position: IntScalar) -> int:
    """Read `size` bytes of a file to an address. Returns how many bytes were read."""
    raise NotImplementedError


@kernel("i8 i8 i8 u1[1C] i8[1C] i8[1C] u1[2C]")
def _plain_members(
    fd: int, position: IntScalar, end: int, block: ByteArray, payload: IntArray, size: IntArray, name: ByteArray
) -> tuple[int, IntScalar]:
    """`block` is room for a header."""
    for i in range(len(payload)):
        if pread(fd, block.ctypes.data, _BLOCK, position) < _BLOCK:
            return i, position
        stored = _octal(block, 124, 136)
        fits = stored >= 0 and _octal(block, 148, 156) == _checksum(block) and position + _BLOCK + stored <= end
        plain = fits and (block[156] == _ZERO or block[156] == 0) and block[345] == 0
        if not plain or not _name(block, name[i]):
            return i, position
        payload[i], size[i] = position + _BLOCK, stored
        position += _BLOCK + (stored + _BLOCK - 1) // _BLOCK * _BLOCK
    return len(payload), position


@helper
def _checksum(block: ByteArray) -> IntScalar:
    """The sum of all bytes; the field of the checksum itself counts as blanks."""
    total = 0
    for offset in range(_BLOCK):
        total += block[offset]
    for offset in range(148, 156):
        total += _BLANK - np.int64(block[offset])
    return total


@helper
def _octal(block: ByteArray, first: int, last: int) -> IntScalar:
    """Return the octal number of a field, or -1."""
    value, offset = 0, first
    while offset < last and _ZERO <= block[offset] < _ZERO + 8:
        value, offset = value * 8 + np.int64(block[offset]) - _ZERO, offset + 1
    digits = offset - first
    while offset < last and block[offset] == _BLANK:
        offset += 1
    return value if digits > 0 and (offset == last or block[offset] == 0) else -1


@helper
def _name(block: ByteArray, out: ByteArray) -> bool:
    """Copy a plain name. Returns False for another name."""
    n = 0
    while n < _NAME and block[n] != 0:
        if block[n] == _DOT and (n == 0 or block[n - 1] == _DOT):
            return False
        out[n] = block[n]
        n += 1
    for offset in range(n, _NAME):
        out[offset] = 0
    return n > 0 and block[0] != _SLASH and block[n - 1] != _SLASH
