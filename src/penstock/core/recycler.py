"""Reuse of the memory of released batches.

Fresh memory costs a page fault for every 4 kB. The recycler keeps the blocks that it allocated, and gives a block to a
new array when nothing refers to the block. CPython's reference count says that exactly: arrays refer to the block they
are a view of. So a consumer may keep a batch for as long as it likes, and needs no call to release it.

Blocks of up to twice the requested size are used again. The oldest blocks are forgotten above the limit. Smaller arrays
than `LEAST` come from the allocator, which reuses them itself.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray
from penstock.core.turns import ForkSafeLock

LEAST = 1 << 18  # smaller arrays come from the allocator's own free lists, without page faults
_UNUSED = 3  # references to a listed block that no array uses: the list's, the loop's, and getrefcount's own


class Recycler:
    """Allocator of uninitialised arrays that reuses memory without references. Thread-safe.

    The kernel zeroes new memory page by page at first use, which takes as long as copying a batch. A block is free when
    its reference count says so. An array may therefore be kept, sliced or shared with a framework for any time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[ByteArray] = []
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[type[Recycler], tuple[int]]:
        return Recycler, (self._limit,)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
        """Return an uninitialised array, like `np.empty`."""
        size = math.prod(shape) * dtype.itemsize
        if size < LEAST:
            return np.empty(shape, dtype)
        return self._block(size)[:size].view(dtype).reshape(shape)

    def raise_limit(self, limit: int) -> None:
        """Raise the limit, if the new one is higher."""
        with self._lock:
            self._limit = max(self._limit, limit)

    def _block(self, size: int) -> ByteArray:
        with self._lock:
            for block in self._held:
                if size <= block.nbytes <= 2 * size and sys.getrefcount(block) == _UNUSED:
                    return block
            fresh = np.empty(size, np.uint8)
            if self._make_room(size):
                self._held.append(fresh)
            return fresh

    def _make_room(self, size: int) -> bool:
        """Forget the oldest blocks until `size` more bytes fit."""
        while self._held and sum(block.nbytes for block in self._held) + size > self._limit:
            self._held.pop(0)
        return size <= self._limit
