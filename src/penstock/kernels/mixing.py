# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels of mixing sources (numba, GIL released, cached on disk). Definitions: `mixing_reference`.

All arithmetic is on integers, so results equal the definitions'. A tree of two-way splits costs one 128-bit
multiplication a level, and the picks of a chunk go down level by level, so that each need not wait for the one before.
The caller owns all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.kernels import mixing_reference
from penstock.kernels.jit import helper, kernel
from penstock.kernels.mixing_reference import BEGIN, CHILD, END, FRAC, LAST, LEFT, LOWER, SHARE, SLOPE

earliest_deadline: Any = kernel(mixing_reference.earliest_deadline)


@kernel
def mix_table(k: Any, table: Any, segments: Any, base: Any, step: Any, source: Any, rank: Any) -> None:
    """See `mixing_reference.mix_table`; searches and divides only where a segment or its turn changes."""
    g, turn, begin, end, shift = 0, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(k)):
        if k[i] < begin or k[i] >= end:
            g = np.searchsorted(segments[:, 0], k[i], side="right") - 1 if len(segments) > 1 else 0
            turn = (k[i] - segments[g, 0]) // segments[g, 2]
            begin = segments[g, 0] + turn * segments[g, 2]
            end = begin + segments[g, 2]
            if g + 1 < len(segments):
                end = min(end, segments[g + 1, 0])
            shift = segments[g, 1] - begin
        place = k[i] + shift
        s = np.int64(table[place, 0])
        source[i] = s
        rank[i] = base[g, s] + turn * step[g, s] + np.int64(table[place, 1])


@intrinsic
def _scaled(_context: Any, n: Any, slope: Any, frac: Any) -> Any:  # noqa: ARG001 - named for the caller alone
    """`(n * slope + frac) >> 63` in 128 bits: one multiplication."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        a, b, c = (builder.zext(arg, wide) for arg in args)
        shifted = builder.lshr(builder.add(builder.mul(a, b), c), ir.Constant(wide, 63))
        return builder.trunc(shifted, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64, types.uint64), codegen


_LOW = np.uint64((1 << 63) - 1)
_ONE = np.uint64(1)


_CHUNK = 512


@helper
def _piece_of(pieces: Any, lo: Any, hi: Any, n: Any) -> Any:
    """The last piece among `lo : hi + 1` that begins at or before `n`."""
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if pieces[middle, BEGIN] <= n:
            lo = middle
        else:
            hi = middle - 1
    return lo


@kernel
def mix_tree(k: Any, pieces: Any, source: Any, rank: Any) -> None:
    """See `mixing_reference.mix_tree`; one multiplication a level. The picks of a chunk go down level by level, so that
    each need not wait for the one before."""
    node, n, inner = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64)
    for base in range(0, len(k), _CHUNK):
        many = min(_CHUNK, len(k) - base)
        for i in range(many):
            node[i], n[i], inner[i] = 0, np.uint64(k[base + i]), i
        count = many
        while count > 0:
            count = _descend(pieces, node, n, inner, count)
        for i in range(many):
            source[base + i] = ~node[i]
            rank[base + i] = np.int64(n[i])


@helper
def _descend(pieces: Any, node: Any, n: Any, inner: Any, count: int) -> Any:
    """Go one level down for the picks `inner[:count]`; picks that are not at a source yet move to its front."""
    left_over = 0
    for c in range(count):
        i = inner[c]
        q, here = node[i], n[i]
        if here >= pieces[q, END]:
            q = _piece_of(pieces, q + 1, np.int64(pieces[q, LAST]), here)
        done, slope, frac = here - pieces[q, BEGIN], pieces[q, SLOPE], pieces[q, FRAC]
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


_HALF = np.uint64(1 << 62)


@kernel
def deal(k: Any, nodes: Any, leaf: Any, rank: Any) -> None:
    """See `mixing_reference.deal`; one multiplication a level. The draws of a chunk go down level by level, as in
    `mix_tree`, so that their reads of memory overlap."""
    node, n, inner = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64)
    for base in range(0, len(k), _CHUNK):
        many = min(_CHUNK, len(k) - base)
        for i in range(many):
            node[i], n[i], inner[i] = 0, np.uint64(k[base + i]), i
        count = many
        while count > 0:
            left_over = 0
            for c in range(count):
                i = inner[c]
                at, here = node[i], n[i]
                share = nodes[at, SHARE]
                below = _scaled(here, share, _HALF)
                is_lower = np.int64(((here * share + _HALF) & _LOW) + share > _LOW)
                n[i] = below if is_lower else here - below
                child = np.int64(nodes[at, LOWER + 1 - is_lower])
                node[i] = child
                inner[left_over] = i
                left_over += child >= 0
            count = left_over
        for i in range(many):
            leaf[base + i] = ~node[i]
            rank[base + i] = np.int64(n[i])
