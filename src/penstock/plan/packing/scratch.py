"""Buffers that each thread keeps and uses again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray

MOST = 4 << 20  # bytes; larger buffers are allocated each time, so that they do not stay


class Scratch(threading.local):
    """Arrays by name, handed out again and again: the first touch of a fresh page costs more than the work in it."""

    def __init__(self) -> None:
        self._held: dict[str, ByteArray] = {}

    def empty(self, name: str, n: int, dtype: type[Any]) -> AnyArray:
        """`[n]` of any values, good until this thread asks for the name again."""
        nbytes = n * np.dtype(dtype).itemsize
        buffer = self._held.get(name)
        if buffer is None or len(buffer) < nbytes:
            buffer = np.empty(nbytes, np.uint8)
            if nbytes <= MOST:
                self._held[name] = buffer
        return buffer[:nbytes].view(dtype)


SCRATCH = Scratch()
