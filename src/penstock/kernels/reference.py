"""What each kernel computes, in NumPy. The compiled ones must equal these, at the seams too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def gather_rows(
    buffers: Sequence[Bytes], first: Int, buffer: Int, offset: Int, start: Int, length: Int, at: Int, out: Bytes
) -> None:
    """Copy row spans out of runs of rows; `out` is `[places, row_bytes]`.

    >>> out = np.zeros((1, 2), np.uint8)
    >>> zero = np.zeros(1, np.int64)
    >>> gather_rows([np.arange(6, dtype=np.uint8)], np.array([0, 3]), zero, zero, zero + 2, zero + 1, zero, out)
    >>> out.tolist()
    [[4, 5]]
    """
    width = out.shape[1]
    for span_start, span_length, place in zip(start.tolist(), length.tolist(), at.tolist(), strict=True):
        rows = np.arange(span_start, span_start + span_length)
        runs = np.searchsorted(first, rows, side="right") - 1
        for i, (row, run) in enumerate(zip(rows.tolist(), runs.tolist(), strict=True)):
            byte = int(offset[run]) + (row - int(first[run])) * width
            out[place + i] = buffers[int(buffer[run])][byte : byte + width]
