"""Reference implementation of the cipher behind `permute`, in NumPy. The compiled cipher must equal it."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]

ROUNDS = 6
SMALL = 64  # halves of few values hold little randomness a round, so small radices get more rounds
GOLDEN = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(z: Any) -> Any:
    """The finaliser of SplitMix64 on a uint64 array: every input bit changes every output bit with probability 1/2.

    >>> hex(mix(np.array([1], np.uint64))[0])
    '0x5692161d100b05e5'
    """
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31))


def permute(x: Int, size: Int, stream: Int, seed: np.uint64, inverse: bool, out: Int) -> None:
    """A Feistel network on radix `a` by `b` with cycle walking; see `penstock.kernels.permute`."""
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
