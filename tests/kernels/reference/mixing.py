"""Definitions of `penstock.kernels.mixing`, written to be read."""

from __future__ import annotations

import heapq

import numpy as np

from penstock.core.arrays import IntArray, UInt32Array, UInt64Array
from penstock.kernels.mixing import CHILD, END, LOWER, SHARE


def earliest_deadline(release: IntArray, deadline: IntArray, out: IntArray) -> int:
    jobs = list(zip(release.tolist(), deadline.tolist(), range(len(release)), strict=True))[::-1]
    waiting: list[tuple[int, int]] = []
    for slot in range(len(out)):
        while jobs and jobs[-1][0] <= slot:
            _, due, job = jobs.pop()
            heapq.heappush(waiting, (due, job))
        if not waiting:
            return slot
        due, out[slot] = heapq.heappop(waiting)
        if due < slot:
            return slot
    return -1


def mix_table(
    k: IntArray,
    table: UInt32Array,
    segments: IntArray,
    base: IntArray,
    step: IntArray,
    source: IntArray,
    rank: IntArray,
) -> None:
    g = np.searchsorted(segments[:, 0], k, side="right") - 1
    turn, place = np.divmod(k - segments[g, 0], segments[g, 2])
    source[:], local = table[segments[g, 1] + place].T
    rank[:] = base[g, source] + turn * step[g, source] + local


def mix_tree(k: IntArray, pieces: UInt64Array, source: IntArray, rank: IntArray) -> None:
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


def deal(k: IntArray, nodes: UInt64Array, leaf: IntArray, rank: IntArray) -> None:
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


def _left(node: IntArray, n: UInt64Array, pieces: UInt64Array) -> UInt64Array:
    """How many of the first `n` picks of each node go to its left child."""
    piece = node
    while (later := n >= pieces[piece, END]).any():
        piece = piece + later
    begin, left, frac, slope = pieces[piece, :END].T
    return left + _scaled(n - begin, slope, frac)


def _scaled(n: UInt64Array, slope: UInt64Array, frac: UInt64Array) -> UInt64Array:
    """`(n * slope + frac) >> 63` without losing a bit, from products of halves."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b, c, d = n >> half, n & low, slope >> half, slope & low
    middle = a * d + (b * d >> half)
    other = b * c + (middle & low)
    high = a * c + (middle >> half) + (other >> half)
    lower = n * slope
    total = lower + frac
    return ((high + (total < lower)) << np.uint64(1)) | (total >> np.uint64(63))
