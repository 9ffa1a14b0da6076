"""Reuse of the memory of released batches.

Fresh memory costs a page fault for every 4 kB. The recycler keeps the blocks that it allocated, and gives a block to a
new array when no other array uses it, see `LentMemory`. So a consumer may keep a batch for as long as it likes, and
needs no call to release it.

Blocks of up to twice the requested size are used again. The oldest blocks are forgotten above the limit. Smaller arrays
than `LEAST` come from the allocator, which reuses them itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray
from penstock.core.lending import LentMemory
from penstock.core.turns import ForkSafeLock

LEAST = 1 << 18  # smaller arrays come from the allocator's own free lists, without page faults


class Recycler:
    """Allocator of uninitialised arrays that reuses memory that no array uses. Thread-safe.

    The kernel zeroes new memory page by page at first use, which takes as long as copying a batch. An array may be
    kept, sliced or shared with a framework for any time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[LentMemory] = []
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
                if size <= block.memory.nbytes <= 2 * size and block.is_free:
                    return block.lend()
            fresh = LentMemory(np.empty(size, np.uint8))
            if self._make_room(size):
                self._held.append(fresh)
            return fresh.lend()

    def _make_room(self, size: int) -> bool:
        """Forget the oldest blocks until `size` more bytes fit."""
        while self._held and sum(block.memory.nbytes for block in self._held) + size > self._limit:
            self._held.pop(0)
        return size <= self._limit
