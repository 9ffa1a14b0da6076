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

from penstock.kernels.reference import GOLDEN, MIX_1, MIX_2, ROUNDS

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


@_jit
def locate(cuts: Any, guide: Any, shift: int, index: Any, group: Any, place: Any) -> None:
    """See `reference.locate`; the guide bounds each search to the groups that begin within `1 << shift` indices."""
    for i in range(len(index)):
        lo, hi = guide[index[i] >> shift], guide[(index[i] >> shift) + 1]
        while lo < hi:
            middle = (lo + hi + 1) >> 1
            if cuts[middle] <= index[i]:
                lo = middle
            else:
                hi = middle - 1
        group[i] = lo
        place[i] = index[i] - cuts[lo]


_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))


@_jit
def _mix(z: Any) -> Any:
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@_jit
def _turn(half: Any, other: Any, radix: Any, key: Any) -> Any:
    """One round forwards: `half` plus a hash of `other`, modulo `radix`."""
    half = half + (((_mix(key ^ other) >> _32) * radix) >> _32)
    return half - radix if half >= radix else half


@_jit
def _back(half: Any, other: Any, radix: Any, key: Any) -> Any:
    """One round backwards."""
    step = ((_mix(key ^ other) >> _32) * radix) >> _32
    return half - step if half >= step else half + radix - step


@_jit
def _forward(x: Any, a: Any, b: Any, key: Any) -> Any:
    left = x // b
    right = x - left * b
    for _ in range(ROUNDS // 2):
        key += _GOLDEN
        left = _turn(left, right, a, key)
        key += _GOLDEN
        right = _turn(right, left, b, key)
    return left * b + right


@_jit
def _backward(x: Any, a: Any, b: Any, key: Any) -> Any:
    left = x // b
    right = x - left * b
    key += np.uint64(ROUNDS) * _GOLDEN
    for _ in range(ROUNDS // 2):
        right = _back(right, left, b, key)
        key -= _GOLDEN
        left = _back(left, right, a, key)
        key -= _GOLDEN
    return left * b + right


@_jit
def _radix(n: int) -> int:
    """`ceil(sqrt(n))`, and 1 for 0."""
    a = max(np.int64(np.sqrt(np.float64(n))), 1)
    while a * a < n:
        a += 1
    while a > 1 and (a - 1) * (a - 1) >= n:
        a -= 1
    return a


@_jit
def permute(x: Any, size: Any, stream: Any, seed: Any, inverse: bool, out: Any) -> None:
    """See `reference.permute`; radix and key are derived anew only where size or stream change."""
    base = _mix(seed + _GOLDEN)
    i = 0
    while i < len(x):
        n, number = size[i], stream[i]
        a = np.uint64(_radix(n))
        b = np.uint64((n + _radix(n) - 1) // _radix(n))
        key = _mix(base ^ _mix(np.uint64(number)))
        limit = np.uint64(n)
        while i < len(x) and size[i] == n and stream[i] == number:
            value = np.uint64(x[i])
            if inverse:
                value = _backward(value, a, b, key)
                while value >= limit:
                    value = _backward(value, a, b, key)
            else:
                value = _forward(value, a, b, key)
                while value >= limit:
                    value = _forward(value, a, b, key)
            out[i] = np.int64(value)
            i += 1
