"""`TensorGenerator`: decodes batches of rows to arrays, and reuses the memory of released batches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.ragged import Array
from penstock.flow.metrics import StageMetrics
from penstock_live.sampler import SampledBatch

Arrays = dict[str, Any]
Decode = Callable[[Array, Arrays | None], Arrays]
"""`decode(rows, out)` returns arrays of `n` rows each, by name.

`out` is its result for an earlier batch of equal length, to be filled and returned, or None for new arrays.
"""

_UNUSED = 3  # references to an array that is not in use: the dict's, the loop's, and getrefcount's own


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
        self._kept: list[tuple[int, Arrays]] = []

    def decode(self, batch: SampledBatch) -> Decoded:
        """Return the arrays of a batch.

        Args:
            batch: Frames of the batch.
        """
        block = batch.block
        if self._decode is None:
            arrays: Arrays = {"rows": block.rows}
        else:
            arrays = self._decode(block.rows, self._free(len(block)))
            self._keep(len(block), arrays)
        self._metrics.add(batches=1, frames=len(block))
        extra = {"chunk": block.chunk, "place": block.place} if self._references else {}
        return Decoded(batch.index, {**arrays, **extra})

    def _free(self, n: int) -> Arrays | None:
        with self._lock:
            for i, (rows, arrays) in enumerate(self._kept):
                if rows == n and all(sys.getrefcount(array) <= _UNUSED for array in arrays.values()):
                    return self._kept.pop(i)[1]
        return None

    def _keep(self, n: int, arrays: Arrays) -> None:
        if not all(isinstance(array, np.ndarray) and array.base is None for array in arrays.values()):
            return  # of a view, it is the base that somebody may hold
        with self._lock:
            self._kept.append((n, dict(arrays)))
            del self._kept[: -self._buffers]
