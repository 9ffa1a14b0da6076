# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled kernels of mixing (numba, GIL released, cached on disk). Their definitions: `mixing_reference`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.kernels import mixing_reference

_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")

earliest_deadline: Any = _jit(mixing_reference.earliest_deadline)


@_jit
def mix_table(k: Any, table: Any, step: Any, source: Any, rank: Any) -> None:
    """See `mixing_reference.mix_table`; divides only where the period changes."""
    period = len(table)
    turn, base = np.int64(0), np.int64(0)
    for i in range(len(k)):
        place = k[i] - base
        if place < 0 or place >= period:
            turn = k[i] // period
            base = turn * period
            place = k[i] - base
        s = np.int64(table[place, 0])
        source[i] = s
        rank[i] = turn * step[s] + np.int64(table[place, 1])


@intrinsic
def _scaled(_context: Any, n: Any, slope: Any, frac: Any) -> Any:  # noqa: ARG001 - named for the caller alone
    """`(n * slope + frac) >> 63` in 128 bits: one multiplication."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        a, b, c = (builder.zext(arg, wide) for arg in args)
        shifted = builder.lshr(builder.add(builder.mul(a, b), c), ir.Constant(wide, 63))
        return builder.trunc(shifted, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64, types.uint64), codegen


_LOW = np.uint64((1 << 63) - 1)
_ONE = np.uint64(1)


@_jit
def _piece_of(pieces: Any, lo: int, hi: int, n: Any) -> Any:
    """The last piece among `lo : hi + 1` that begins at or before `n`."""
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if pieces[middle, 0] <= n:
            lo = middle
        else:
            hi = middle - 1
    return lo


@_jit
def mix_tree(k: Any, first: Any, child: Any, pieces: Any, source: Any, rank: Any) -> None:
    """See `mixing_reference.mix_tree`; one multiplication a level."""
    for i in range(len(k)):
        node, n = np.int64(0), np.uint64(k[i])
        while node >= 0:
            q = first[node]
            if pieces[q + 1, 0] <= n:
                q = _piece_of(pieces, q + 1, first[node + 1] - 2, n)
            done, slope, frac = n - pieces[q, 0], pieces[q, 3], pieces[q, 2]
            left = pieces[q, 1] + _scaled(done, slope, frac)
            if n + _ONE == pieces[q + 1, 0]:
                takes = np.int64(pieces[q + 1, 1] > left)
            else:
                takes = np.int64(((done * slope + frac) & _LOW) + slope > _LOW)
            n = left if takes else n - left
            node = child[node, 1 - takes]
        source[i] = ~node
        rank[i] = np.int64(n)
