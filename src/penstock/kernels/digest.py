"""Digest of values in memory, at memory speed. It detects accidental differences, not deliberate ones.

The digest is two sums of 64-bit words, each mixed with its position by the multipliers of SplitMix64, so the loop has
no step that waits for the one before and is vectorized. Sums wrap around. It is stored in fingerprints: constants may
not change. The caller owns the array.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, UInt64Array
from penstock.kernels.jit import kernel
from penstock.kernels.permute import GOLDEN, MIX_1, MIX_2


def digest_of(array: AnyArray) -> bytes:
    """Return 32 bytes that stand for the values of an array in their order; dtype and shape do not count.

    Not cryptographic: do not use it against forged data. Cost: one pass, and a copy of arrays that are not contiguous.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = len(data) // 8 * 8
    tail = np.zeros(8, np.uint8)
    tail[: len(data) - whole] = data[whole:]
    sums = np.zeros(2, np.uint64)
    words = data[:whole]
    if words.ctypes.data % 8:
        words = words.copy()  # a view may begin between words
    words = words.view(np.uint64)
    words.flags.writeable = False  # of this view; the kernel takes one type
    _digest(words, sums)
    return sums.astype("<u8").tobytes() + tail.tobytes() + len(data).to_bytes(8, "little")


@kernel("u8[1Cr] u8[1C]")
def _digest(words: UInt64Array, sums: UInt64Array) -> None:
    first, second = np.uint64(0), np.uint64(0)
    for i in range(len(words)):
        x = words[i] + np.uint64(i) * GOLDEN
        x = (x ^ (x >> np.uint64(30))) * MIX_1
        x = (x ^ (x >> np.uint64(27))) * MIX_2
        first += x ^ (x >> np.uint64(31))
        second += (x ^ (x >> np.uint64(29))) * GOLDEN
    sums[0], sums[1] = first, second
