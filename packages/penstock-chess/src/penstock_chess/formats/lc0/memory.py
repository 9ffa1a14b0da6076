"""Memory for frames: memory of a thread's last game, once nothing refers to it."""

from __future__ import annotations

import sys
import threading

import numpy as np

from penstock.core.arrays import ByteArray

LEAST, MOST = 1 << 17, 16 << 20  # bytes of what is kept: 16 to 2000 frames
WASTE = 4  # times the memory that is needed, at most


class _Spare(threading.local):
    block: ByteArray | None = None


_SPARE = _Spare()


def _holders(spare: _Spare) -> int:
    block = spare.block
    return sys.getrefcount(block)


def _unused() -> int:
    """References to a block that no array uses, counted for a block in use by no array: not every interpreter counts a
    local name."""
    spare = _Spare()
    spare.block = np.empty(1, np.uint8)
    return _holders(spare)


_UNUSED = _unused()


def empty(n: int, width: int) -> ByteArray:
    """As `np.empty((n, width), np.uint8)`: fresh memory costs as much as filling it twice, as the kernel clears it page
    by page.

    Memory is used again only when nothing refers to what was given before, by this thread, so callers may keep arrays.
    """
    size, spare_bytes = n * width, 0 if _SPARE.block is None else _SPARE.block.nbytes
    if not LEAST <= size <= MOST or spare_bytes > WASTE * size:
        return np.empty((n, width), np.uint8)
    if spare_bytes < size or _holders(_SPARE) != _UNUSED:
        _SPARE.block = np.empty(size, np.uint8)
    block = _SPARE.block
    assert block is not None
    return block[:size].reshape(n, width)
