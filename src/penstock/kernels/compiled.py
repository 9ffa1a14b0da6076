# ruff: noqa: ARG001 - an intrinsic names its arguments for the caller alone
# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled kernels (numba, GIL released, cached on disk). Their definitions stand in `reference`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False)


@intrinsic
def _memcpy(_context: Any, dst: Any, src: Any, size: Any) -> Any:
    """`memcpy(dst, src, size)` on int64 addresses: 4 to 6 times a byte loop."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, source = (builder.inttoptr(a, pointer) for a in args[:2])
        cgutils.raw_memcpy(builder, to, source, args[2], 1)

    return types.void(types.int64, types.int64, types.int64), codegen


@_jit
def gather_rows(first: Any, address: Any, row_bytes: int, start: Any, length: Any, at: Any, out: Any) -> None:
    """See `reference.gather_rows`; `address[r]` is where run `r` begins in memory."""
    base = np.int64(out.ctypes.data)
    runs = len(first) - 1
    run = 0
    for j in range(len(start)):
        row, left = start[j], length[j]
        place = base + at[j] * row_bytes
        if left > 0 and not (first[run] <= row < first[run + 1]):
            run = np.searchsorted(first[: runs + 1], row, side="right") - 1
        while left > 0:
            take = min(left, first[run + 1] - row)
            size = take * row_bytes
            _memcpy(place, address[run] + (row - first[run]) * row_bytes, size)
            place += size
            row += take
            left -= take
            if left > 0:
                run += 1
