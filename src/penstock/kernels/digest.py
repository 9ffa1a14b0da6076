"""A digest of values in memory, at the speed of memory: it tells apart what differs by accident, not by design."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.dispatch import kernels


def digest_of(array: npt.NDArray[Any]) -> bytes:
    """32 bytes that stand for the values of a C-contiguous array, in their order; dtype and shape do not count.

    Two sums of mixed words, each word mixed with its place. Not for data that somebody wants to be mistaken for other
    data. Cost: one pass.

    >>> one, other = np.arange(5), np.arange(5)[::-1].copy()
    >>> digest_of(one) == digest_of(one.copy()), digest_of(one) == digest_of(other), len(digest_of(one))
    (True, False, 32)
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = len(data) // 8 * 8
    tail = np.zeros(8, np.uint8)
    tail[: len(data) - whole] = data[whole:]
    sums = np.zeros(2, np.uint64)
    words = data[:whole]
    if words.ctypes.data % 8:
        words = words.copy()  # of a view that begins between words
    kernels().digest(words.view(np.uint64), sums)
    return sums.astype("<u8").tobytes() + tail.tobytes() + len(data).to_bytes(8, "little")
