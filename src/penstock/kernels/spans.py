# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled loops over groups and spans: `locate`, `paint` and `zero_gaps`. Definitions: `reference`.

A guide bounds each search of `locate` to a few groups, and the entries of later indices are prefetched. Nothing is
checked here: the caller owns all arrays, and passes only indices and spans that are within them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import uncounted_kernel


@uncounted_kernel
def locate(table: Any, guide: Any, shift: int, index: Any, out: Any) -> None:
    """See `reference.locate`; the guide bounds each search to the groups that begin within `1 << shift` indices."""
    n, columns = len(index), table.shape[1]
    guides, base = np.int64(guide.ctypes.data), np.int64(table.ctypes.data)
    for i in range(n):
        if i + 32 < n:
            prefetch(guides + 8 * (index[i + 32] >> shift))
            prefetch(base + 8 * columns * guide[index[i + 16] >> shift])
        lo, hi = guide[index[i] >> shift], guide[(index[i] >> shift) + 1]
        while lo < hi:
            middle = (lo + hi + 1) >> 1
            if table[middle, 0] <= index[i]:
                lo = middle
            else:
                hi = middle - 1
        out[0, i] = index[i] - table[lo, 0]
        for c in range(1, columns):
            out[c, i] = table[lo, c]


@uncounted_kernel
def paint(at: Any, length: Any, value: Any, slope: int, out: Any) -> None:
    """See `reference.paint`."""
    end = 0
    for j in range(len(at)):
        begin = at[j]
        for i in range(end, begin):
            out[i] = 0
        first = value[j]
        end = begin + length[j]
        for i in range(begin, end):
            out[i] = first + slope * (i - begin)
    for i in range(end, len(out)):
        out[i] = 0


@uncounted_kernel
def zero_gaps(at: Any, length: Any, row_bytes: int, out: Any) -> None:
    """See `reference.zero_gaps`."""
    end = 0
    for j in range(len(at)):
        for i in range(end, at[j] * row_bytes):
            out[i] = 0
        end = (at[j] + length[j]) * row_bytes
    for i in range(end, len(out)):
        out[i] = 0
