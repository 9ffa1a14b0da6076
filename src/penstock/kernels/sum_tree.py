"""Compiled sum tree for draws in proportion to weights (Schaul et al. 2015, "Prioritized Experience Replay").

`leaves` `[2^k]` float32 are weights of anchors, anchor `a` at `a & (2^k - 1)`; 0 where nothing can be drawn. A node is
the sum of sixteen nodes below it, as float64, and the least positive weight among them, as float32: sixteen leaves are
one cache line, and ten million leaves need six levels. `first[d]` is where level `d` begins in `sums` and `least`; the
last level has one node, the root. Every node is computed from the nodes below it and never by adding a difference, so a
tree is a function of its leaves: no error accumulates, and a tree rebuilt from saved leaves is equal bit for bit.

A draw goes down from the root. A level compares the mass with the sums of four children, then with three single ones,
without a branch: a wrong guess of a branch would cost more than all these sums. Sums are rounded, so the mass left at
a node may reach its sum; the draw then takes the nearest child with a positive weight. The error of a probability is
below `2^-46`. The caller owns all arrays.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import Float32Array, FloatArray, IntArray
from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import helper, kernel
from penstock.kernels.replay import random_bits, unit

FAN = 16


def set_leaves(
    leaves: Float32Array,
    sums: FloatArray,
    least: Float32Array,
    first: IntArray,
    anchors: IntArray,
    weights: Float32Array,
) -> None:
    """Set the weights of anchors, and recompute the nodes above them. Of equal anchors the last one counts."""
    if len(leaves) & (len(leaves) - 1) or len(leaves) < FAN or len(sums) != len(least) or len(anchors) != len(weights):
        raise ValueError(
            f"expected 2^k leaves, one sum for each least weight and one weight for each anchor, got {len(leaves)}, "
            f"{len(sums)}, {len(least)}, {len(anchors)} and {len(weights)}"
        )
    _set_leaves(leaves, sums, least, first, anchors, weights, np.empty(len(anchors), np.int64))


def draw_leaves(
    leaves: Float32Array, sums: FloatArray, first: IntArray, key: np.uint64, number: int, lo: int, n: int
) -> tuple[IntArray, Float32Array]:
    """Draw anchors in proportion to their weights: the sum is cut into `n` equal parts with one draw in each."""
    if not sums[first[-1]] > 0:
        raise ValueError(f"expected a tree with a positive weight, got a sum of {sums[first[-1]]}")
    anchors, weights = np.empty(n, np.int64), np.empty(n, np.float32)
    _draw_leaves(leaves, sums, first, key, number, lo, anchors, weights, np.empty(n))
    return anchors, weights


@helper
def _recompute(
    leaves: Float32Array, sums: FloatArray, least: Float32Array, first: IntArray, level: int, node: int
) -> None:
    begin = node * FAN
    low = np.float32(np.inf)
    a = b = c = d = 0.0
    if level == 0:
        for i in range(begin, begin + FAN, 4):
            a += leaves[i]
            b += leaves[i + 1]
            c += leaves[i + 2]
            d += leaves[i + 3]
        for i in range(begin, begin + FAN):
            low = min(low, leaves[i] if leaves[i] > 0 else np.float32(np.inf))
    else:
        begin += first[level - 1]
        for i in range(begin, begin + FAN, 4):
            a += sums[i]
            b += sums[i + 1]
            c += sums[i + 2]
            d += sums[i + 3]
        for i in range(begin, begin + FAN):
            low = min(low, least[i])
    sums[first[level] + node] = (a + b) + (c + d)
    least[first[level] + node] = low


@kernel("f4[1C] f8[1C] f4[1C] i8[1C] i8[1C] f4[1C] i8[1C]")
def _set_leaves(
    leaves: Float32Array,
    sums: FloatArray,
    least: Float32Array,
    first: IntArray,
    anchors: IntArray,
    weights: Float32Array,
    nodes: IntArray,
) -> None:
    """See `set_leaves`; `nodes` is room for `[n]` int64."""
    mask = len(leaves) - 1
    for i in range(len(anchors)):
        nodes[i] = anchors[i] & mask
        leaves[nodes[i]] = weights[i]
    count = len(anchors)
    for level in range(len(first)):
        kept = 0
        for i in range(count):
            node = nodes[i] // FAN
            if kept and nodes[kept - 1] == node:
                continue
            nodes[kept] = node
            kept += 1
        count = kept
        for i in range(count):
            _recompute(leaves, sums, least, first, level, nodes[i])


@helper
def _descend(values: Float32Array | FloatArray, begin: int, mass: float) -> tuple[int, float]:
    """Return which of the sixteen values from `begin` on has the mass, and the mass that is left in it."""
    b = begin
    one = np.float64(values[b]) + values[b + 1]
    two = np.float64(values[b + 4]) + values[b + 5]
    three = np.float64(values[b + 8]) + values[b + 9]
    p = one + (np.float64(values[b + 2]) + values[b + 3])
    q = p + (two + (np.float64(values[b + 6]) + values[b + 7]))
    r = q + (three + (np.float64(values[b + 10]) + values[b + 11]))
    b += 4 * (int(mass >= p) + int(mass >= q) + int(mass >= r))
    mass -= r if mass >= r else q if mass >= q else p if mass >= p else 0.0
    p = np.float64(values[b])
    q = p + values[b + 1]
    r = q + values[b + 2]
    b += int(mass >= p) + int(mass >= q) + int(mass >= r)
    mass -= r if mass >= r else q if mass >= q else p if mass >= p else 0.0
    if not values[b] > 0:  # sums were rounded, so that the mass passed the last positive value
        while b > begin and not values[b] > 0:
            b -= 1
        while not values[b] > 0 and b < begin + FAN - 1:
            b += 1
    return b, mass


@kernel("f4[1C] f8[1C] i8[1C] u8 i8 i8 i8[1C] f4[1C] f8[1C]")
def _draw_leaves(
    leaves: Float32Array,
    sums: FloatArray,
    first: IntArray,
    key: np.uint64,
    number: int,
    lo: int,
    out: IntArray,
    weights: Float32Array,
    masses: FloatArray,
) -> None:
    """See `draw_leaves`; `masses` is room for `[n]` float64. Level by level, so that memory answers several draws."""
    n = len(out)
    levels = len(first)
    mask = len(leaves) - 1
    total = sums[first[levels - 1]]
    nodes, ends = np.int64(sums.ctypes.data), np.int64(leaves.ctypes.data)
    for i in range(n):
        masses[i] = (i + unit(random_bits(key, number + i))) / n * total
        out[i] = 0
    for level in range(levels - 2, -1, -1):
        for i in range(n):
            child, masses[i] = _descend(sums, first[level] + out[i] * FAN, masses[i])
            out[i] = child - first[level]
            # The children are prefetched now, and read when all draws have come to their level.
            if level > 0:
                below = nodes + 8 * (first[level - 1] + out[i] * FAN)
                prefetch(below)
                prefetch(below + 64)
            else:
                prefetch(ends + 4 * out[i] * FAN)
    for i in range(n):
        leaf, masses[i] = _descend(leaves, out[i] * FAN, masses[i])
        out[i] = lo + ((leaf - lo) & mask)
        weights[i] = leaves[leaf]
