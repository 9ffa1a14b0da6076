"""Definition of `penstock.kernels.permute`: a Feistel network with cycle walking, written to be read."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray

ROUNDS, SMALL = 6, 64
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31))


def permute(x: IntArray, size: IntArray, stream: IntArray, seed: int, *, inverse: bool = False) -> IntArray:
    out = np.empty(len(x), np.int64)
    base = mix(np.asarray([seed], np.uint64) + np.uint64(GOLDEN))
    key = mix(base ^ mix(stream.astype(np.uint64)))
    for n in np.unique(size).tolist():
        todo = np.flatnonzero(size == n)
        value = x[todo].astype(np.uint64)
        while len(todo):
            value = _cipher(value, n, key[todo], inverse)
            out[todo] = value.astype(np.int64)
            walks = value >= n
            todo, value = todo[walks], value[walks]
    return out


def _cipher(x: Any, n: int, key: Any, inverse: bool) -> Any:
    """One pass of all rounds on uint64 `x < a * b`: rounds turn the left and the right half in turn."""
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    halves, radix = [x // np.uint64(b), x % np.uint64(b)], [a, b]
    rounds = range(ROUNDS + 2 * (SMALL // a))
    for i in reversed(rounds) if inverse else rounds:
        turned, m = i % 2, np.uint64(radix[i % 2])
        z = ((key + np.uint64((i + 1) * GOLDEN & (1 << 64) - 1)) ^ halves[1 - turned]) * np.uint64(MIX_1)
        hashed = ((z ^ (z >> np.uint64(32))) * np.uint64(MIX_2)) >> np.uint64(32)
        step = (hashed * m) >> np.uint64(32)
        halves[turned] = (halves[turned] + (m - step if inverse else step)) % m
    return halves[0] * np.uint64(b) + halves[1]
