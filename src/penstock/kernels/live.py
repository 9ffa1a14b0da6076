# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled kernels of live data (numba, GIL released, cached on disk). Their definitions: `live_reference`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from penstock.kernels.cipher_reference import GOLDEN, MIX_1, MIX_2

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
