"""Reference implementation of the kernels of mixing: the compiled kernels in `mixing` must equal it."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
UInt = npt.NDArray[np.uint64]


def earliest_deadline(release: Int, deadline: Int, out: Int) -> int:
    """Fill each slot with the job that is released, not yet done and due first (the lower number on a tie).

    `release[J]` ascends; a job may stand in slots `release : deadline + 1`. `out[n]` gets job numbers. Gives -1, or
    the first slot that no job could fill or that came too late for its job.

    >>> out = np.zeros(3, np.int64)
    >>> earliest_deadline(np.array([0, 0, 1]), np.array([2, 0, 1]), out), out.tolist()
    (-1, [1, 2, 0])
    """
    jobs, seen = len(release), 0
    waiting = [np.int64(0) for _ in range(0)]  # empty, and numba sees what it holds
    for slot in range(len(out)):
        while seen < jobs and release[seen] <= slot:
            heapq.heappush(waiting, deadline[seen] * jobs + seen)
            seen += 1
        if len(waiting) == 0:
            return slot
        due = heapq.heappop(waiting)
        out[slot] = due % jobs
        if due // jobs < slot:
            return slot
    return -1


def mix_table(k: Int, table: Any, segments: Int, base: Int, step: Int, source: Int, rank: Int) -> None:
    """Picks `k` of an order in which stretches of a table repeat.

    `table[P]` has source and rank of each place. Segment `g` begins with pick `segments[g, 0]` at place
    `segments[g, 1]`, repeats after `segments[g, 2]` places, and adds `base[g]`, and `step[g]` a turn, to ranks `[D]`.

    >>> source, rank = np.zeros(2, np.int64), np.zeros(2, np.int64)
    >>> table, one = np.array([[0, 0], [1, 0], [0, 1]], np.uint32), np.array([[0, 0, 3]])
    >>> mix_table(np.array([2, 4]), table, one, np.array([[0, 0]]), np.array([[2, 1]]), source, rank)
    >>> source.tolist(), rank.tolist()
    ([0, 1], [1, 1])
    """
    g = np.searchsorted(segments[:, 0], k, side="right") - 1
    turn, place = np.divmod(k - segments[g, 0], segments[g, 2])
    source[:], local = table[segments[g, 1] + place].T
    rank[:] = base[g, source] + turn * step[g, source] + local


BEGIN, LEFT, FRAC, SLOPE, END, CHILD, LAST = 0, 1, 2, 3, 4, 5, 7
"""Columns of the pieces of a tree: eight, which is a line of the cache; two of them are children."""


def mix_tree(k: Int, pieces: UInt, source: Int, rank: Int) -> None:
    """Picks `k` of a tree of two-way splits, from the root (row 0) down to a source.

    A node is rows `node : pieces[node, LAST] + 1` of `pieces`. From pick number `BEGIN` of the node on and before
    `END`, its left child has got `LEFT + (FRAC + (n - BEGIN) * SLOPE) / 2^63` of the first `n`, rounded down. The
    children, left and right, are the first row of a node, or `~source`. All numbers are uint64.
    """
    node, n = np.zeros(len(k), np.int64), k.astype(np.uint64)
    inner = np.ones(len(k), np.bool_)
    while inner.any():
        at, here = node[inner], n[inner]
        count = _left(at, here, pieces)
        goes_left = _left(at, here + np.uint64(1), pieces) > count
        node[inner] = pieces.view(np.int64)[at, CHILD + ~goes_left]
        n[inner] = np.where(goes_left, count, here - count)
        inner = node >= 0
    source[:] = ~node
    rank[:] = n.astype(np.int64)


SHARE, LOWER = 0, 1
"""Columns of the nodes of `deal`: the share of the lower child in 2^-63, and the two children."""


def deal(k: Int, nodes: UInt, leaf: Int, rank: Int) -> None:
    """Deal draws `k` down a tree of two-way splits of constant shares, from node 0 to a leaf.

    Of the first `n` draws of a node, its lower child gets `n * nodes[node, SHARE] / 2^63`, rounded to the nearest
    number. The children are columns `LOWER` and `LOWER + 1`: a node, or `~leaf`. `rank` is the number of draws that the
    leaf had before.

    >>> leaf, rank = np.zeros(4, np.int64), np.zeros(4, np.int64)
    >>> deal(np.arange(4), np.array([[1 << 62, -1, -2]]).astype(np.uint64), leaf, rank)
    >>> leaf.tolist(), rank.tolist()
    ([0, 1, 0, 1], [0, 0, 1, 1])
    """
    node, n = np.zeros(len(k), np.int64), k.astype(np.uint64)
    inner = np.ones(len(k), np.bool_)
    half = np.full(1, 1 << 62, np.uint64)
    while inner.any():
        at, here = node[inner], n[inner]
        share = nodes[at, SHARE]
        count = _scaled(here, share, half)
        is_lower = _scaled(here + np.uint64(1), share, half) > count
        node[inner] = nodes.view(np.int64)[at, LOWER + 1 - is_lower]
        n[inner] = np.where(is_lower, count, here - count)
        inner = node >= 0
    leaf[:] = ~node
    rank[:] = n.astype(np.int64)


def _left(node: Int, n: UInt, pieces: UInt) -> UInt:
    """How many of the first `n` picks of each node go to its left child."""
    piece = node
    while (later := n >= pieces[piece, END]).any():
        piece = piece + later
    begin, left, frac, slope = pieces[piece, :END].T
    return left + _scaled(n - begin, slope, frac)


def _scaled(n: UInt, slope: UInt, frac: UInt) -> UInt:
    """`(n * slope + frac) >> 63` without losing a bit, from products of halves."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b, c, d = n >> half, n & low, slope >> half, slope & low
    middle = a * d + (b * d >> half)
    other = b * c + (middle & low)
    high = a * c + (middle >> half) + (other >> half)
    lower = n * slope
    total = lower + frac
    return ((high + (total < lower)) << np.uint64(1)) | (total >> np.uint64(63))
