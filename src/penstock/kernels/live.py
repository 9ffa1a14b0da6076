# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled kernels of live data (numba, GIL released, cached on disk). Their definitions: `live_reference`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from penstock.kernels import live_reference
from penstock.kernels.cipher_reference import GOLDEN, MIX_1, MIX_2
from penstock.kernels.intrinsics import memcpy

_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
_27, _30, _31 = (np.uint64(bits) for bits in (27, 30, 31))


@_jit
def _mix(z: Any) -> Any:
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@_jit
def draw_ranges(left: Any, key: Any, counter: Any, out: Any) -> Any:
    """See `live_reference.draw_ranges`; the running sums are a Fenwick tree, so a draw costs `log(S)`."""
    ranges = len(left)
    tree = np.zeros(ranges + 1, np.int64)
    total = np.int64(0)
    for s in range(ranges):
        total += left[s]
        tree[s + 1] += left[s]
        above = s + 1 + ((s + 1) & -(s + 1))
        if above <= ranges:
            tree[above] += tree[s + 1]
    top = 1
    while top * 2 <= ranges:
        top *= 2
    n = min(len(out), total)
    for i in range(n):
        draw = _mix(key + (np.uint64(counter) + np.uint64(i)) * _GOLDEN)
        place = np.int64(draw % np.uint64(total - i))
        s, step = 0, top
        while step > 0:
            if s + step <= ranges and tree[s + step] <= place:
                s += step
                place -= tree[s]
            step //= 2
        out[i] = s
        left[s] -= 1
        s += 1
        while s <= ranges:
            tree[s] -= 1
            s += s & -s
    return n


exchange_references: Any = _jit(live_reference.exchange_references)


@_jit
def exchange(
    pages: Any,
    link: Any,
    free: Any,
    head: Any,
    length: Any,
    slots: Any,
    given: Any,
    given_ends: Any,
    taken: Any,
    taken_ends: Any,
    begin: Any,
) -> Any:
    """See `live_reference.exchange`."""
    size = pages.shape[1]
    base, source, to = pages.ctypes.data, given.ctypes.data, taken.ctypes.data
    for i in range(begin, len(slots)):
        slot = slots[i]
        old, new, out = length[slot], given_ends[i + 1] - given_ends[i], taken_ends[i]
        spare, needed = (old + size - 1) // size + len(pages) - free[1], (new + size - 1) // size
        page = free[0]
        while page >= 0 and spare < needed:
            spare, page = spare + 1, np.int64(link[page])
        if out + old > len(taken) or spare < needed:
            return i
        _take(base, size, link, free, np.int64(head[slot]), to + out, old)
        head[slot] = _put(base, size, link, free, source + given_ends[i], new)
        taken_ends[i + 1], length[slot] = out + old, new
    return len(slots)


@_jit
def _take(base: Any, size: Any, link: Any, free: Any, page: Any, to: Any, n: Any) -> None:
    for lo in range(0, n, size):
        memcpy(to + lo, base + page * size, min(size, n - lo))
        following = np.int64(link[page])
        link[page] = free[0]
        free[0] = page
        page = following


@_jit
def _put(base: Any, size: Any, link: Any, free: Any, source: Any, n: Any) -> Any:
    first, last = np.int64(0), np.int64(-1)
    for lo in range(0, n, size):
        page = free[0]
        if page >= 0:
            free[0] = link[page]
        else:
            page = free[1]
            free[1] += 1
        memcpy(base + page * size, source + lo, min(size, n - lo))
        if last < 0:
            first = page
        else:
            link[last] = page
        last = page
    return first
