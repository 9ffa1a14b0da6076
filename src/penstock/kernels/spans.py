"""Fill arrays by spans: `paint` writes ids or positions, `zero_gaps` clears the rows that no span covers.

Spans are ordered and do not overlap, so one pass over `out` writes each element once, also the elements between spans;
clearing the whole array first would write most elements twice. The loops stop at the first span that begins within the
span before it or ends outside `out`. Nothing outside `out` is written. The caller owns all arrays.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Int32Array, IntArray
from penstock.kernels.intrinsics import zero_bytes
from penstock.kernels.jit import kernel


def paint(start: IntArray, length: IntArray, value: IntArray, slope: int, out: Int32Array) -> None:
    """Write `value[j] + slope * i` to row `i` of span `j`, and 0 to the elements between spans."""
    if not len(start) == len(length) == len(value):
        raise ValueError(f"expected columns of equal length, got {len(start)}, {len(length)} and {len(value)}")
    _require_written(_paint(start, length, value, slope, out), start, length, len(out))


def zero_gaps(start: IntArray, length: IntArray, row_bytes: int, out: ByteArray) -> None:
    """Zero the rows of `out` that no span covers."""
    if len(start) != len(length):
        raise ValueError(f"expected columns of equal length, got {len(start)} and {len(length)}")
    if row_bytes < 1 or len(out) % row_bytes:
        raise ValueError(f"expected a whole number of rows of {row_bytes} bytes, got {len(out)} bytes")
    _require_written(_zero_gaps(start, length, row_bytes, out), start, length, len(out) // row_bytes)


def _require_written(stopped: int, start: IntArray, length: IntArray, rows: int) -> None:
    if stopped >= 0:
        raise ValueError(
            f"expected spans in order, apart and within {rows} rows, got span {stopped} of {length[stopped]} rows "
            f"at {start[stopped]}"
        )


@kernel("i8[1C] i8[1C] i8[1C] i8 i4[1C]")
def _paint(start: IntArray, length: IntArray, value: IntArray, slope: int, out: Int32Array) -> int:
    end = 0
    for j in range(len(start)):
        begin = start[j]
        if begin < end or begin > len(out) or not 0 <= length[j] <= len(out) - begin:
            return j
        for i in range(end, begin):
            out[i] = 0
        first = value[j]
        end = begin + length[j]
        for i in range(begin, end):
            out[i] = first + slope * (i - begin)
    for i in range(end, len(out)):
        out[i] = 0
    return -1


@kernel("i8[1C] i8[1C] i8 u1[1C]")
def _zero_gaps(start: IntArray, length: IntArray, row_bytes: int, out: ByteArray) -> int:
    base, rows = np.int64(out.ctypes.data), len(out) // row_bytes
    end = 0  # of the rows before
    for j in range(len(start)):
        begin, count = start[j], length[j]
        if begin < end or begin > rows or count < 0 or count > rows - begin:
            return j
        zero_bytes(base + end * row_bytes, (begin - end) * row_bytes)
        end = begin + count
    zero_bytes(base + end * row_bytes, (rows - end) * row_bytes)
    return -1
