# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled cipher behind `permute`; `cipher_reference.permute` defines it.

Elements are processed in chunks, so that each round is a vectorized loop without branches. A quotient of doubles
replaces the slower quotient of integers; it is exact below 2^52. Results equal the definition's. The caller owns all
arrays, the room for a chunk included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cipher_reference import GOLDEN, MIX_1, MIX_2, ROUNDS, SMALL
from penstock.kernels.jit import uncounted_helper, uncounted_kernel

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))
CHUNK = 512


@uncounted_helper
def mix(z: Any) -> Any:
    """See `cipher_reference.mix`."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@uncounted_helper
def _round(half: Any, other: Any, count: int, radix: Any, key: Any, inverse: bool) -> None:
    """`half` plus a hash of `other`, modulo `radix`, or minus it: one round for a chunk, in vectors."""
    for i in range(count):
        z = (key ^ other[i]) * _MIX_1
        step = ((((z ^ (z >> _32)) * _MIX_2) >> _32) * radix) >> _32
        turned = half[i] + (radix - step if inverse else step)
        half[i] = min(turned, turned - radix)  # below radix, the difference wraps around and is huge


@uncounted_helper
def _cipher(x: Any, count: int, a: Any, b: Any, key: Any, rounds: int, inverse: bool, left: Any, right: Any) -> None:
    """All rounds on the first `count` of `x`, in place; `left` and `right` are room for the halves."""
    for i in range(count):
        # A quotient of doubles is exact below 2^52, and several times faster than one of integers.
        left[i] = np.uint64(np.float64(x[i]) / np.float64(b)) if a * b < 1 << 52 else x[i] // b
        right[i] = x[i] - left[i] * b
    for done in range(rounds):
        number = rounds - 1 - done if inverse else done
        turn_key = key + np.uint64(number + 1) * _GOLDEN
        if number % 2 == 0:
            _round(left, right, count, a, turn_key, inverse)
        else:
            _round(right, left, count, b, turn_key, inverse)
    for i in range(count):
        x[i] = left[i] * b + right[i]


@uncounted_helper
def _walk(x: Any, count: int, n: Any, a: Any, b: Any, key: Any, rounds: int, inverse: bool, room: Any) -> None:
    """The cipher on the first `count` of `x`, again and again where it gives `n` or more."""
    _cipher(x, count, a, b, key, rounds, inverse, room[0], room[1])
    one = room[2]
    for i in range(count):
        while x[i] >= n:
            one[0] = x[i]
            _cipher(one, 1, a, b, key, rounds, inverse, room[0], room[1])
            x[i] = one[0]


@uncounted_helper
def _radix(n: int) -> Any:
    """`ceil(sqrt(n))`, and 1 for 0."""
    a = np.int64(np.sqrt(np.float64(n)))
    a = a if a > 1 else np.int64(1)
    while a * a < n:
        a += 1
    while a > 1 and (a - 1) * (a - 1) >= n:
        a -= 1
    return a


def permute(x: Any, size: Any, stream: Any, seed: Any, inverse: bool, out: Any) -> None:
    """See `cipher_reference.permute`."""
    permute_in(x, size, stream, seed, inverse, np.empty((4, CHUNK), np.uint64), out)


@uncounted_kernel
def permute_in(x: Any, size: Any, stream: Any, seed: Any, inverse: bool, room: Any, out: Any) -> None:
    """See `permute`; `room` is `[4, CHUNK]` uint64. Chunks end where size or stream change, and have one key each."""
    base = mix(seed + _GOLDEN)
    value = room[3]
    begin = 0
    while begin < len(x):
        n, number = size[begin], stream[begin]
        a = _radix(n)
        b = (n + a - 1) // a if n > 0 else np.int64(1)
        key = mix(base ^ mix(np.uint64(number)))
        rounds = ROUNDS + 2 * (SMALL // a)
        count = 0
        while count < CHUNK and begin + count < len(x) and size[begin + count] == n and stream[begin + count] == number:
            value[count] = np.uint64(x[begin + count])
            count += 1
        _walk(value, count, np.uint64(n), np.uint64(a), np.uint64(b), key, rounds, inverse, room)
        for i in range(count):
            out[begin + i] = np.int64(value[i])
        begin += count
