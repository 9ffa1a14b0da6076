"""The checksum of newer HDF5 structures: Bob Jenkins' lookup3 hash (`hashlittle` with 0), from his lookup3.c of 2006.

Each step depends on the step before, so the hash cannot be vectorized. All arithmetic wraps around at 32 bits, in
numba as in the Python loop, so both give the same 32 bits. Nothing is kept between calls but the count of bytes.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import UInt32Array
from penstock.kernels.jit import helper, kernel

PATIENCE = 1 << 17  # bytes that a process hashes in Python before it pays to load the compiled loop
_hashed = [0]  # by this process
_MASK = 0xFFFFFFFF


def lookup3(data: bytes) -> int:
    """Return the lookup3 hash of bytes.

    Cost: 0.1 µs a byte for the first 128 KiB of a process, and a hundredth of that afterwards. Opening a small file
    hashes a few KiB, so it neither imports numba nor compiles.
    """
    _hashed[0] += len(data)
    words = np.frombuffer(data.ljust(-(-len(data) // 12) * 12, b"\0"), "<u4")
    return int(_lookup3(words, len(data))) if _hashed[0] > PATIENCE else lookup3_in_python(words, len(data))


def lookup3_in_python(words: UInt32Array, size: int) -> int:
    """Return the hash of `size` bytes as `lookup3` does, 100 times slower but without compiled code."""
    a = b = c = (0xDEADBEEF + size) & _MASK
    if not size:
        return c
    values: list[int] = words.tolist()
    for i in range(0, len(values) - 3, 3):
        a += values[i]
        b += values[i + 1]
        c = c + values[i + 2] & _MASK
        a = (a - c ^ (c << 4 | c >> 28)) & _MASK  # only what is rotated next has to be cut to 32 bits
        c += b
        b = (b - a ^ (a << 6 | a >> 26)) & _MASK
        a += c
        c = (c - b ^ (b << 8 | b >> 24)) & _MASK
        b += a
        a = (a - c ^ (c << 16 | c >> 16)) & _MASK
        c += b
        b = (b - a ^ (a << 19 | a >> 13)) & _MASK
        a += c
        c = (c - b ^ (b << 4 | b >> 28)) & _MASK
        b += a
    return _final(a + values[-3] & _MASK, b + values[-2] & _MASK, c + values[-1] & _MASK)


def _final(a: int, b: int, c: int) -> int:
    c = (c ^ b) - (b << 14 & _MASK | b >> 18) & _MASK
    a = (a ^ c) - (c << 11 & _MASK | c >> 21) & _MASK
    b = (b ^ a) - (a << 25 & _MASK | a >> 7) & _MASK
    c = (c ^ b) - (b << 16 & _MASK | b >> 16) & _MASK
    a = (a ^ c) - (c << 4 & _MASK | c >> 28) & _MASK
    b = (b ^ a) - (a << 14 & _MASK | a >> 18) & _MASK
    return (c ^ b) - (b << 24 & _MASK | b >> 8) & _MASK


@helper
def _turned(x: np.uint32, k: int) -> np.uint32:
    return np.uint32(np.uint32(x << np.uint32(k)) | np.uint32(x >> np.uint32(32 - k)))


@helper
def _mixed(x: np.uint32, y: np.uint32, k: int) -> np.uint32:
    """Return `x - y`, combined with `y` rotated."""
    return np.uint32(np.uint32(x - y) ^ _turned(y, k))


@helper
def _folded(x: np.uint32, y: np.uint32, k: int) -> np.uint32:
    """Return `x` xor `y`, minus `y` rotated."""
    return np.uint32((x ^ y) - _turned(y, k))


@kernel("u4[1Cr] i8")
def _lookup3(words: UInt32Array, size: int) -> np.uint32:
    a = b = c = np.uint32((0xDEADBEEF + size) & 0xFFFFFFFF)
    if size == 0:
        return c
    end = len(words) - 3
    for i in range(0, end, 3):
        a = np.uint32(a + words[i])
        b = np.uint32(b + words[i + 1])
        c = np.uint32(c + words[i + 2])
        a, c = _mixed(a, c, 4), np.uint32(c + b)
        b, a = _mixed(b, a, 6), np.uint32(a + c)
        c, b = _mixed(c, b, 8), np.uint32(b + a)
        a, c = _mixed(a, c, 16), np.uint32(c + b)
        b, a = _mixed(b, a, 19), np.uint32(a + c)
        c, b = _mixed(c, b, 4), np.uint32(b + a)
    a = np.uint32(a + words[end])
    b = np.uint32(b + words[end + 1])
    c = np.uint32(c + words[end + 2])
    c = _folded(c, b, 14)
    a = _folded(a, c, 11)
    b = _folded(b, a, 25)
    c = _folded(c, b, 16)
    a = _folded(a, c, 4)
    b = _folded(b, a, 14)
    return _folded(c, b, 24)
