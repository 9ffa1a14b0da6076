"""Anonymous memory of a process in small pages."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray

LEAST = 1 << 20  # bytes; smaller arrays come from NumPy's allocator


def small_pages(shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return zeroed memory that becomes resident in pages of 4 kB, as it is written to.

    NumPy asks for huge pages for arrays from 4 MB on. Where only a part of an array is used, these make unused rows
    resident, and clearing them takes longer than filling the used ones: frames were added to a replay 3 times faster
    with small pages. The memory is private, also after a fork, and is freed with the last view of the array.

    Args:
        shape: Shape of the array.
        dtype: Dtype of the array.

    Example:
        >>> small_pages((2, 1 << 20), np.dtype(np.uint8)).sum().item()
        0
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LEAST:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype).reshape(shape)
