"""Random draws among ranges of live data, and shuffles of the positions of a chunk.

The seed and the number of a draw alone decide the draw, so results are the same on every machine and after a resume.
`draw_ranges` keeps the running sums of the ranges in a Fenwick tree: a draw among `S` ranges costs `log(S)` steps, and
so does removing its element. Source of the tree: Fenwick, "A new data structure for cumulative frequency
tables" (1994). The caller owns the arguments; the functions make the working arrays, and the compiled loops none.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import IntArray, IntScalar, UInt64Array
from penstock.kernels.jit import kernel
from penstock.kernels.permute import CHUNK, GOLDEN, mix, permute_in


def draw_ranges(left: IntArray, key: np.uint64, counter: int, out: IntArray) -> int:
    """Draw ranges: range `s` with probability `left[s]` by the sum of all, which then is one less."""
    if left.min(initial=0) < 0:
        raise ValueError(f"expected ranges of at least 0 elements, got {left.min()}")
    return int(_draw_ranges(left, key, counter, np.zeros(len(left) + 1, np.int64), out))


def shuffle_places(
    key: np.uint64, number: IntArray, n: IntArray, begin: IntArray, endless: bool, cuts: IntArray, out: IntArray
) -> None:
    """Write positions of chunks in shuffled order, from place `begin` onwards; after the last one, they repeat.

    Positions of chunk `i` go to `out[cuts[i] : cuts[i + 1]]`.
    """
    if not len(number) == len(n) == len(begin) == len(cuts) - 1:
        raise ValueError(f"expected as many values of each kind as chunks, got {len(number)}, {len(n)}, {len(begin)}")
    if n.min(initial=1) < 1 or begin.min(initial=0) < 0:
        raise ValueError(f"expected at least one position and places of at least 0, got {n.min()} and {begin.min()}")
    if cuts[0] != 0 or cuts[-1] != len(out) or (cuts[1:] < cuts[:-1]).any():
        raise ValueError(f"expected cuts from 0 to {len(out)} that never decrease, got {cuts[0]} to {cuts[-1]}")
    room = np.empty((3, len(out)), np.int64)
    _shuffle_places(key, number, n, begin, endless, cuts, room, np.empty((4, CHUNK), np.uint64), out)


@kernel("i8[1C] u8 i8 i8[1C] i8[1C]")
def _draw_ranges(left: IntArray, key: np.uint64, counter: int, tree: IntArray, out: IntArray) -> IntScalar:
    """`tree` is one zero more than there are ranges."""
    ranges = len(left)
    total: IntScalar = np.int64(0)
    for s in range(ranges):
        total += left[s]
        tree[s + 1] += left[s]
        above = s + 1 + ((s + 1) & -(s + 1))
        if above <= ranges:
            tree[above] += tree[s + 1]
    top = 1
    while top * 2 <= ranges:
        top *= 2
    n = total if total < len(out) else len(out)
    for i in range(n):
        draw = mix(key + (np.uint64(counter) + np.uint64(i)) * GOLDEN)
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


@kernel("u8 i8[1C] i8[1C] i8[1C] b1 i8[1C] i8[2C] u8[2C] i8[1C]")
def _shuffle_places(
    key: np.uint64,
    number: IntArray,
    n: IntArray,
    begin: IntArray,
    endless: bool,
    cuts: IntArray,
    room: IntArray,
    chunk: UInt64Array,
    out: IntArray,
) -> None:
    """`room` is `[3, len(out)]`, and `chunk` the room of `permute_in`."""
    place = room[0]
    size = room[1]
    cycle = room[2]
    for c in range(len(number)):
        lo, hi = cuts[c], cuts[c + 1]
        for i in range(lo, hi):
            turn = begin[c] + i - lo
            place[i], size[i] = turn % n[c], n[c]
            cycle[i] = turn // n[c] if endless else 0
        seed = mix(np.uint64(number[c]) * GOLDEN + key)
        permute_in(place[lo:hi], size[lo:hi], cycle[lo:hi], seed, False, chunk, out[lo:hi])
