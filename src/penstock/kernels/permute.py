"""A stateless shuffle: position `x` of a pseudo-random permutation of `0 : n`, without a table.

The cipher is a Feistel network on mixed radix: with `a = ceil(sqrt(n))` and `b = ceil(n / a)`, `x` is the pair
`(x // b, x % b)` in `a` by `b`; each round adds a keyed hash of one half to the other, modulo its radix, which is
invertible for every hash. A result of `n` or more (fewer than `a` of the `a * b` values are) walks on along its cycle.
So the result is an exact bijection at every `n`, and no `n` is rounded up to a power of two. Source: Black and Rogaway,
"Ciphers with Arbitrary Finite Domains" (2002).

Elements are processed in chunks, so that each round is a vectorized loop without branches. A quotient of doubles
replaces the slower quotient of integers; it is exact below 2^52, and larger values take the integers. The orders are
part of saved states: constants and rounds may not change. The caller owns all arrays, the room for a chunk included.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from penstock.core.arrays import IntArray, IntScalar, UInt64Array
from penstock.kernels.jit import helper, kernel

LARGEST = 1 << 62
CHUNK = 512  # elements whose halves and keys stay in the first cache
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, the increment of SplitMix64
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the multipliers of SplitMix64
_ROUNDS = 6
_SMALL = 64  # halves of few values hold little randomness a round, so radices below this get more rounds
_27, _30, _31, _32 = (np.uint64(bits) for bits in (27, 30, 31, 32))

Bits = TypeVar("Bits", np.uint64, UInt64Array)


def permute(x: IntArray, size: IntArray, stream: IntArray, seed: int, *, inverse: bool = False) -> IntArray:
    """Return where each `x[i]` in `0 : size[i]` goes in the permutation number `stream[i]` of `seed`."""
    x = np.ascontiguousarray(x)
    size = np.ascontiguousarray(size)
    stream = np.ascontiguousarray(stream)
    if not len(x) == len(size) == len(stream):
        raise ValueError(f"expected arrays of equal length, got {len(x)}, {len(size)} and {len(stream)}")
    out, room = np.empty(len(x), np.int64), np.empty((4, CHUNK), np.uint64)
    wrong = permute_in(x, size, stream, np.uint64(seed), inverse, room, out)
    if wrong >= 0:
        raise IndexError(f"expected position {wrong} within 0:{size[wrong]}, got {x[wrong]}")
    return out


@helper
def mix(z: Bits) -> Bits:
    """Spread the bits of a uint64, or of an array of them: each input bit changes each output bit with
    probability 1/2.

    The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014). Kernels
    compile it in; called from Python it takes NumPy arrays and scalars.
    """
    z = (z ^ (z >> _30)) * MIX_1
    z = (z ^ (z >> _27)) * MIX_2
    return z ^ (z >> _31)


@helper
def _round(half: UInt64Array, other: UInt64Array, count: int, radix: np.uint64, key: np.uint64, inverse: bool) -> None:
    """`half` plus a hash of `other`, modulo `radix`, or minus it: one round for a chunk, in vectors."""
    for i in range(count):
        z = (key ^ other[i]) * MIX_1
        step = ((((z ^ (z >> _32)) * MIX_2) >> _32) * radix) >> _32
        turned = half[i] + (radix - step if inverse else step)
        reduced = turned - radix  # below radix, the difference wraps around and is huge
        half[i] = reduced if reduced < turned else turned


@helper
def _cipher(
    x: UInt64Array,
    count: int,
    a: np.uint64,
    b: np.uint64,
    key: np.uint64,
    rounds: IntScalar,
    inverse: bool,
    halves: UInt64Array,
) -> None:
    """All rounds on the first `count` of `x`, in place; `halves` is room."""
    left, right = halves[0], halves[1]
    for i in range(count):
        # A quotient of doubles is exact below 2^52, and several times faster than one of integers.
        left[i] = np.uint64(np.float64(x[i]) / np.float64(b)) if a * b < 1 << 52 else x[i] // b
        right[i] = x[i] - left[i] * b
    for done in range(rounds):
        number = rounds - 1 - done if inverse else done
        side = number & 1
        _round(halves[side], halves[1 - side], count, b if side else a, key + np.uint64(number + 1) * GOLDEN, inverse)
    for i in range(count):
        x[i] = left[i] * b + right[i]


@helper
def _walk(
    value: UInt64Array,
    count: int,
    n: np.uint64,
    a: np.uint64,
    b: np.uint64,
    key: np.uint64,
    rounds: IntScalar,
    inverse: bool,
    room: UInt64Array,
    out: IntArray,
) -> None:
    """Write the cipher of the first `count` of `value` to `out`, and encrypt results of `n` or more again, together."""
    place, left = room[3], count
    for i in range(count):
        place[i] = np.uint64(i)
    while left > 0:
        _cipher(value, left, a, b, key, rounds, inverse, room[0:2])
        again = 0
        for i in range(left):
            if value[i] < n:
                out[place[i]] = np.int64(value[i])
            else:
                value[again], place[again] = value[i], place[i]
                again += 1
        left = again


@helper
def _radix(n: int) -> IntScalar:
    """`ceil(sqrt(n))`, and 1 for 0."""
    a = np.int64(np.sqrt(np.float64(n))) if n > 0 else 1
    while a * a < n:
        a += 1
    while a > 1 and (a - 1) * (a - 1) >= n:
        a -= 1
    return a


@kernel("i8[1C] i8[1C] i8[1C] u8 b1 u8[2C] i8[1C]")
def permute_in(
    x: IntArray, size: IntArray, stream: IntArray, seed: np.uint64, inverse: bool, room: UInt64Array, out: IntArray
) -> int:
    """Permute for other kernels; see `permute`. Chunks end where size or stream change, and have one key each.

    `room` is `[4, CHUNK]` uint64. Returns -1, or the first index whose `x` is not in `0 : size`; cycle walking would
    not end there.
    """
    base = mix(seed + GOLDEN)
    value = room[2]
    begin = 0
    while begin < len(x):
        n, number = size[begin], stream[begin]
        a = _radix(n)
        b = (n + a - 1) // a if n > 0 else np.int64(1)
        key = mix(base ^ mix(np.uint64(number)))
        rounds = _ROUNDS + 2 * (_SMALL // a)
        limit, count = np.uint64(n if n > 0 else 0), 0
        while count < CHUNK and begin + count < len(x) and size[begin + count] == n and stream[begin + count] == number:
            value[count] = np.uint64(x[begin + count])  # negative positions become huge
            if value[count] >= limit:
                return begin + count
            count += 1
        _walk(value, count, limit, np.uint64(a), np.uint64(b), key, rounds, inverse, room, out[begin:])
        begin += count
    return -1
