"""Compiled checksum and digest over 32-bit and 64-bit words.

`lookup3` is the checksum of newer HDF5 structures (Bob Jenkins, `hashlittle`). Each step depends on the step before.
`digest` adds words that are mixed with their position. All arithmetic wraps around, so both results equal the
definitions in `checksum_reference` and `reference` to the last bit. The caller owns all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock.kernels.reference import DIGEST_1, DIGEST_2, DIGEST_STEP


@uncounted_helper
def _turned(x: Any, k: int) -> Any:
    return np.uint32(np.uint32(x << np.uint32(k)) | np.uint32(x >> np.uint32(32 - k)))


@uncounted_helper
def _mixed(x: Any, y: Any, k: int) -> Any:
    """Return `x - y`, combined with `y` rotated."""
    return np.uint32(np.uint32(x - y) ^ _turned(y, k))


@uncounted_helper
def _folded(x: Any, y: Any, k: int) -> Any:
    """Return `x` xor `y`, minus `y` rotated."""
    return np.uint32((x ^ y) - _turned(y, k))


@uncounted_kernel
def lookup3(words: Any, size: int) -> Any:
    """See `checksum_reference.lookup3`."""
    a = b = c = np.uint32((0xDEADBEEF + size) & 0xFFFFFFFF)
    if size == 0:
        return c
    end = len(words) - 3
    for i in range(0, end, 3):
        a, b, c = np.uint32(a + words[i]), np.uint32(b + words[i + 1]), np.uint32(c + words[i + 2])
        a, c = _mixed(a, c, 4), np.uint32(c + b)
        b, a = _mixed(b, a, 6), np.uint32(a + c)
        c, b = _mixed(c, b, 8), np.uint32(b + a)
        a, c = _mixed(a, c, 16), np.uint32(c + b)
        b, a = _mixed(b, a, 19), np.uint32(a + c)
        c, b = _mixed(c, b, 4), np.uint32(b + a)
    a, b, c = np.uint32(a + words[end]), np.uint32(b + words[end + 1]), np.uint32(c + words[end + 2])
    c = _folded(c, b, 14)
    a = _folded(a, c, 11)
    b = _folded(b, a, 25)
    c = _folded(c, b, 16)
    a = _folded(a, c, 4)
    b = _folded(b, a, 14)
    return _folded(c, b, 24)


@uncounted_kernel
def digest(words: Any, sums: Any) -> None:
    """See `reference.digest`."""
    first, second = np.uint64(0), np.uint64(0)
    for i in range(len(words)):
        x = words[i] + np.uint64(i) * np.uint64(DIGEST_STEP)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(DIGEST_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(DIGEST_2)
        first += x ^ (x >> np.uint64(31))
        second += (x ^ (x >> np.uint64(29))) * np.uint64(DIGEST_STEP)
    sums[0], sums[1] = first, second
