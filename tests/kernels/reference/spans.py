"""Definitions of `penstock.kernels.spans`, written to be read."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Int32Array, IntArray


def paint(start: IntArray, length: IntArray, value: IntArray, slope: int, out: Int32Array) -> None:
    out[:] = 0
    for begin, rows, first in zip(start.tolist(), length.tolist(), value.tolist(), strict=True):
        out[begin : begin + rows] = first + slope * np.arange(rows)


def zero_gaps(start: IntArray, length: IntArray, row_bytes: int, out: ByteArray) -> None:
    edges = np.concatenate([np.zeros(1, np.int64), np.stack([start, start + length], axis=1).ravel()]) * row_bytes
    for begin, end in zip(edges[::2].tolist(), [*edges[1::2].tolist(), len(out)], strict=True):
        out[begin:end] = 0
