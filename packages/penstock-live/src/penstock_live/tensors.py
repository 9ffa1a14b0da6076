"""`TensorGenerator`: decodes batches of rows to arrays, and reuses the memory of released batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.lending import LentMemory
from penstock.core.ragged import Array
from penstock.flow.metrics import StageMetrics
from penstock_live.sampler import SampledBatch

Arrays = dict[str, Any]
Decode = Callable[[Array, Arrays | None], Arrays]
"""`decode(rows, out)` returns arrays of `n` rows each, by name.

`out` is its result for an earlier batch of equal length, to be filled and returned, or None for new arrays.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The arrays of batch number `index`."""

    index: int
    arrays: Arrays

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(array, "nbytes", 0)) for array in self.arrays.values())


class TensorGenerator:
    """Decodes batches, by any thread. Without `decode`, the arrays are `rows` alone.

    At most `buffers` sets of arrays are kept to be used again. A set is free when nothing else refers to its arrays, so
    a consumer may hold, slice or share them for as long as it likes.

    With `references`, `chunk` int64 and `place` int32 say which frame each row is.

    Args:
        decode: Called as `decode(rows, out)`; returns the arrays of a batch. The default None returns the rows.
        references: Whether batches name their frames. The default is False.
        buffers: Sets of arrays to keep for reuse. The default is 8.
        metrics: Counts and times to update. The default None makes new ones.

    Example:
        >>> from penstock_live.block import Block
        >>> generator = TensorGenerator(lambda rows, out: {"first": rows[:, 0].copy()})
        >>> block = Block(np.array([[5, 6], [7, 8]], np.uint8), np.arange(2), np.zeros(2, np.int32))
        >>> generator.decode(SampledBatch(0, block)).arrays
        {'first': array([5, 7], dtype=uint8)}
    """

    def __init__(
        self,
        decode: Decode | None = None,
        *,
        references: bool = False,
        buffers: int = 8,
        metrics: StageMetrics | None = None,
    ) -> None:
        self._decode = decode
        self._references = references
        self._buffers = buffers
        self._metrics = metrics or StageMetrics("tensor_generator")
        self._lock = threading.Lock()
        self._kept: list[tuple[int, Arrays, list[LentMemory]]] = []

    def decode(self, batch: SampledBatch) -> Decoded:
        """Return the arrays of a batch.

        Args:
            batch: Frames of the batch.
        """
        block = batch.block
        if self._decode is None:
            arrays: Arrays = {"rows": block.rows}
        else:
            arrays = self._lent(len(block), self._decode(block.rows, self._free(len(block))))
        self._metrics.add(batches=1, frames=len(block))
        extra = {"chunk": block.chunk, "place": block.place} if self._references else {}
        return Decoded(batch.index, {**arrays, **extra})

    def _free(self, n: int) -> Arrays | None:
        with self._lock:
            for i, (rows, arrays, lent) in enumerate(self._kept):
                if rows == n and all(each.is_free for each in lent):
                    del self._kept[i]
                    return arrays
        return None

    def _lent(self, n: int, arrays: Arrays) -> Arrays:
        """Keep arrays to be filled again, and return others of the same memory in their place."""
        if not all(_owns_memory(array) for array in arrays.values()):
            return arrays  # of a view, it is the base that somebody may hold
        lent = {name: LentMemory(array.reshape(-1).view(np.uint8)) for name, array in arrays.items()}
        given = {name: lent[name].lend().view(array.dtype).reshape(array.shape) for name, array in arrays.items()}
        with self._lock:
            self._kept.append((n, dict(arrays), list(lent.values())))
            del self._kept[: -self._buffers]
        return given


def _owns_memory(array: Any) -> bool:
    return type(array) is np.ndarray and array.flags.c_contiguous and array.base is None and not array.dtype.hasobject
