"""The checksum of newer HDF5 structures, in Python: see `checksum`."""

from __future__ import annotations

from typing import Any

_MASK = 0xFFFFFFFF


def lookup3(words: Any, size: int) -> int:
    """Jenkins' lookup3 hash (`hashlittle` with 0) of `size` bytes, given as `[3 k]` uint32 words with zeros behind."""
    a = b = c = (0xDEADBEEF + size) & _MASK
    if not size:
        return c
    held: list[int] = words.tolist()
    for i in range(0, len(held) - 3, 3):
        a += held[i]
        b += held[i + 1]
        c = c + held[i + 2] & _MASK
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
    return _final(a + held[-3] & _MASK, b + held[-2] & _MASK, c + held[-1] & _MASK)


def _final(a: int, b: int, c: int) -> int:
    c = (c ^ b) - (b << 14 & _MASK | b >> 18) & _MASK
    a = (a ^ c) - (c << 11 & _MASK | c >> 21) & _MASK
    b = (b ^ a) - (a << 25 & _MASK | a >> 7) & _MASK
    c = (c ^ b) - (b << 16 & _MASK | b >> 16) & _MASK
    a = (a ^ c) - (c << 4 & _MASK | c >> 28) & _MASK
    b = (b ^ a) - (a << 14 & _MASK | a >> 18) & _MASK
    return (c ^ b) - (b << 24 & _MASK | b >> 8) & _MASK
