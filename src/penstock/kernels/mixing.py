"""Orders of mixed sources: which source each pick of a mix comes from, and how many picks of that source came before.

All arithmetic is on integers, so an order is the same on every machine. `mix_table` reads a stored order whose parts
repeat: a division where a turn changes, else two additions a pick. `mix_tree` computes an order of any length from a
tree of two-way splits, and `deal` from a tree whose shares are constant: one multiplication of 128 bits a level. The
picks of a chunk go down the tree level by level, so that each need not wait for the one before. `earliest_deadline`
makes the tables. The caller owns all arrays.

Sources: earliest deadline first is optimal on one machine (Horn, "Some simple scheduling algorithms", 1974); the split
of a node is Bresenham's line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import IntArray, IntScalar, UInt32Array, UInt64Array
from penstock.kernels.jit import helper, intrinsic, kernel

# Columns of the pieces of a tree: eight, which is a line of the cache.
BEGIN = 0
LEFT = 1
FRAC = 2
SLOPE = 3
END = 4
CHILD = 5  # and 6: two children
LAST = 7

SHARE, LOWER = 0, 1
"""Columns of the nodes of `deal`: the share of the lower child in 2^-63, and the two children."""

_COLUMNS, _DEALT = 8, 3  # of the two kinds of trees
_CHUNK = 512  # picks that go down together; their state stays in the first cache
_LOW = np.uint64((1 << 63) - 1)
_ONE, _HALF = np.uint64(1), np.uint64(1 << 62)


def earliest_deadline(release: IntArray, deadline: IntArray, out: IntArray) -> int:
    """Fill each slot with the job that is released, not yet done and due first (the lower number on a tie)."""
    if len(release) != len(deadline):
        raise ValueError(f"expected one deadline for each of {len(release)} releases, got {len(deadline)}")
    return _earliest_deadline(release, deadline, np.empty(len(release), np.int64), out)


def mix_table(
    k: IntArray,
    table: UInt32Array,
    segments: IntArray,
    base: IntArray,
    step: IntArray,
    source: IntArray,
    rank: IntArray,
) -> None:
    """Look up picks of an order in which parts of a table repeat."""
    shapes = table.shape[1:], segments.shape, step.shape
    if not len(k) == len(source) == len(rank) or shapes != ((2,), (len(base), 3), base.shape):
        raise ValueError(f"expected a table [P, 2], segments [G, 3] and steps like bases, got {shapes}")
    wrong = _mix_table(k, table, segments, base, step, source, rank)
    if wrong >= 0:
        raise IndexError(f"expected picks with a place among {len(table)}, got {k[wrong]}")


def mix_tree(k: IntArray, pieces: UInt64Array, source: IntArray, rank: IntArray) -> None:
    """Compute picks of a tree of two-way splits, from the root (row 0) down to a source.

    A node is rows `node : pieces[node, LAST] + 1` of `pieces`. From pick number `BEGIN` of the node on and before
    `END`, its left child has got `LEFT + (FRAC + (n - BEGIN) * SLOPE) / 2^63` of the first `n`, rounded down. The
    children, left and right, are the first row of a node, or `~source`.
    """
    if not len(k) == len(source) == len(rank) or pieces.shape[1] != _COLUMNS or len(pieces) == 0:
        raise ValueError(f"expected pieces [rows, {_COLUMNS}] and a source and rank a pick, got {pieces.shape}")
    wrong = _mix_tree(k, pieces, *_room(), source, rank)
    if wrong >= 0:
        raise IndexError(f"expected picks of at least 0, got {k[wrong]}")


def deal(k: IntArray, nodes: UInt64Array, leaf: IntArray, rank: IntArray) -> None:
    """Deal draws down a tree of two-way splits of constant shares, from node 0 to a leaf.

    Of the first `n` draws of a node, its lower child gets `n * nodes[node, SHARE] / 2^63`, rounded to the nearest
    number. The children are columns `LOWER` and `LOWER + 1`: a node, or `~leaf`.
    """
    if not len(k) == len(leaf) == len(rank) or nodes.shape[1] != _DEALT or len(nodes) == 0:
        raise ValueError(f"expected nodes [N, {_DEALT}] and a leaf and rank a draw, got {nodes.shape}")
    wrong = _deal(k, nodes, *_room(), leaf, rank)
    if wrong >= 0:
        raise IndexError(f"expected draws of at least 0, got {k[wrong]}")


def _room() -> tuple[IntArray, UInt64Array, IntArray]:
    """Room for a chunk of picks: the node of each, its number among the picks of that node, and those still inside."""
    return np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64)


@helper
def _push(heap: IntArray, count: int, value: IntScalar) -> None:
    """Add a value to a heap of `count` values: no value is below the one at half its place."""
    place = count
    while place > 0 and heap[(place - 1) // 2] > value:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = value


@helper
def _drop_least(heap: IntArray, count: int) -> None:
    """Remove the first value of a heap of `count` values, which is the least."""
    value = heap[count - 1]
    place = 0
    child = 1
    while child < count - 1:
        if child + 1 < count - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = value


@kernel("i8[1C] i8[1C] i8[1C] i8[1C]")
def _earliest_deadline(release: IntArray, deadline: IntArray, heap: IntArray, out: IntArray) -> int:
    jobs = len(release)
    seen = 0
    waiting = 0
    for slot in range(len(out)):
        while seen < jobs and release[seen] <= slot:
            _push(heap, waiting, deadline[seen] * jobs + seen)
            waiting += 1
            seen += 1
        if waiting == 0:
            return slot
        due = heap[0]
        _drop_least(heap, waiting)
        waiting -= 1
        out[slot] = due % jobs
        if due // jobs < slot:
            return slot
    return -1


@helper
def _segment_of(segments: IntArray, pick: IntScalar) -> int:
    """The segment of a pick, -1 in front of the first one."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) >> 1
        if segments[middle, 0] <= pick:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel("i8[1C] u4[2C] i8[2C] i8[2C] i8[2C] i8[1C] i8[1C]")
def _mix_table(
    k: IntArray,
    table: UInt32Array,
    segments: IntArray,
    base: IntArray,
    step: IntArray,
    source: IntArray,
    rank: IntArray,
) -> int:
    """Search and divide only where a segment or its turn changes. Returns -1, or the first pick without a place."""
    g = 0
    turn = np.int64(0)
    begin = np.int64(0)
    end = np.int64(0)
    shift = np.int64(0)
    for i in range(len(k)):
        if k[i] < begin or k[i] >= end:
            g = _segment_of(segments, k[i]) if len(segments) > 1 else 0
            turn = (k[i] - segments[g, 0]) // segments[g, 2]
            begin = segments[g, 0] + turn * segments[g, 2]
            end = begin + segments[g, 2]
            if g + 1 < len(segments) and segments[g + 1, 0] < end:
                end = segments[g + 1, 0]
            shift = segments[g, 1] - begin
        place = k[i] + shift
        if k[i] < 0 or not 0 <= place < len(table):
            return i
        s = np.int64(table[place, 0])
        source[i] = s
        rank[i] = base[g, s] + turn * step[g, s] + np.int64(table[place, 1])
    return -1


def _emit_scaled(builder: Any, n: Any, slope: Any, frac: Any) -> Any:
    from llvmlite import ir

    wide = ir.IntType(128)
    a, b, c = (builder.zext(value, wide) for value in (n, slope, frac))
    shifted = builder.lshr(builder.add(builder.mul(a, b), c), ir.Constant(wide, 63))
    return builder.trunc(shifted, ir.IntType(64))


@intrinsic(_emit_scaled, "u8 u8 u8", returns="u8")
def _scaled(n: np.uint64, slope: np.uint64, frac: np.uint64) -> np.uint64:
    """Return `(n * slope + frac) >> 63` in 128 bits: one multiplication."""
    raise NotImplementedError


@helper
def _begin_picks(k: IntArray, base: int, many: int, node: IntArray, n: UInt64Array, inner: IntArray) -> int:
    """Put the picks `k[base : base + many]` at the root. Returns -1, or the place of the first negative pick."""
    for i in range(many):
        if k[base + i] < 0:
            return base + i
        node[i] = 0
        n[i] = np.uint64(k[base + i])
        inner[i] = i
    return -1


@helper
def _end_picks(node: IntArray, n: UInt64Array, base: int, many: int, source: IntArray, rank: IntArray) -> None:
    """Write the source of each pick, and how often the source was picked before."""
    for i in range(many):
        source[base + i] = ~node[i]
        rank[base + i] = np.int64(n[i])


@kernel("i8[1C] u8[2C] i8[1C] u8[1C] i8[1C] i8[1C] i8[1C]")
def _mix_tree(
    k: IntArray,
    pieces: UInt64Array,
    node: IntArray,
    n: UInt64Array,
    inner: IntArray,
    source: IntArray,
    rank: IntArray,
) -> int:
    """`node`, `n` and `inner` are room for a chunk of picks; see `_room`."""
    for base in range(0, len(k), _CHUNK):
        many = len(k) - base if len(k) - base < _CHUNK else _CHUNK
        negative = _begin_picks(k, base, many, node, n, inner)
        if negative >= 0:
            return negative
        count = many
        while count > 0:
            count = _descend(pieces, node, n, inner, count)
        _end_picks(node, n, base, many, source, rank)
    return -1


@helper
def _piece_of(pieces: UInt64Array, lo: IntScalar, hi: IntScalar, n: np.uint64) -> IntScalar:
    """Return the last piece among `lo : hi + 1` that begins at or before `n`."""
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if pieces[middle, BEGIN] <= n:
            lo = middle
        else:
            hi = middle - 1
    return lo


@helper
def _descend(pieces: UInt64Array, node: IntArray, n: UInt64Array, inner: IntArray, count: IntScalar) -> IntScalar:
    """Go one level down for the picks `inner[:count]`; picks that are not at a source yet move to its front."""
    left_over = 0
    for c in range(count):
        i: int = inner[c]
        q, here = node[i], n[i]
        if here >= pieces[q, END]:
            q = _piece_of(pieces, q + 1, np.int64(pieces[q, LAST]), here)
        done = here - pieces[q, BEGIN]
        slope = pieces[q, SLOPE]
        frac = pieces[q, FRAC]
        left = pieces[q, LEFT] + _scaled(done, slope, frac)
        takes = np.int64(((done * slope + frac) & _LOW) + slope > _LOW)
        if here + _ONE == pieces[q, END]:
            takes = np.int64(pieces[q + 1, LEFT] > left)
        n[i] = left if takes else here - left
        child = np.int64(pieces[q, CHILD + 1 - takes])
        node[i] = child
        inner[left_over] = i
        left_over += child >= 0
    return left_over


@kernel("i8[1C] u8[2C] i8[1C] u8[1C] i8[1C] i8[1C] i8[1C]", "i8[1C] u8[2Cr] i8[1C] u8[1C] i8[1C] i8[1C] i8[1C]")
def _deal(
    k: IntArray, nodes: UInt64Array, node: IntArray, n: UInt64Array, inner: IntArray, leaf: IntArray, rank: IntArray
) -> int:
    """`node`, `n` and `inner` are room for a chunk of picks; see `_room`."""
    for base in range(0, len(k), _CHUNK):
        many = len(k) - base if len(k) - base < _CHUNK else _CHUNK
        negative = _begin_picks(k, base, many, node, n, inner)
        if negative >= 0:
            return negative
        count = many
        while count > 0:
            left_over = 0
            for c in range(count):
                i: int = inner[c]
                branch, here = node[i], n[i]
                share = nodes[branch, SHARE]
                below = _scaled(here, share, _HALF)
                is_lower = np.int64(((here * share + _HALF) & _LOW) + share > _LOW)
                n[i] = below if is_lower else here - below
                child = np.int64(nodes[branch, LOWER + 1 - is_lower])
                node[i] = child
                inner[left_over] = i
                left_over += child >= 0
            count = left_over
        _end_picks(node, n, base, many, leaf, rank)
    return -1
