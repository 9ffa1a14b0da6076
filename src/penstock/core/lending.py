"""Memory that is used again once no array uses it."""

from __future__ import annotations

import weakref

import numpy as np

from penstock.core.arrays import ByteArray


class LentMemory:
    """Memory that one array after another uses.

    Slices, views and tensors of a lent array refer to that array and keep it alive. When it is gone, so are they all.
    Counts of references would not say that: their meaning depends on the interpreter and its version.

    Args:
        memory: The memory. Nothing else may use it.
    """

    __slots__ = ("_user", "memory")

    def __init__(self, memory: ByteArray) -> None:
        self.memory = memory
        self._user: weakref.ref[ByteArray] | None = None

    @property
    def is_free(self) -> bool:
        """Whether no array uses the memory."""
        return self._user is None or self._user() is None

    def lend(self) -> ByteArray:
        """Return an array of the whole memory, which must be free."""
        array = np.asarray(self.memory.data)  # its base is no array, so it is the base of its views
        self._user = weakref.ref(array)
        return array
