"""Queues of bins by their residual, the room that is left in them, for the kernels that pack.

Bins of equal residual wait in one queue, as a linked list: `head` and `tail` have the first and last node of each
residual, -1 if there is none, and `following` the node behind each. A bitmap of two levels says which queues are not
empty: bit `r` of `words` is that of residual `r`, and bit `w` of `tops` says whether word `w` has any. So the queue
with the least residual that is enough is found in a few instructions, however many residuals there are. The caller
owns the arrays, and calls with residuals within the capacity and nodes within `following`; nothing is checked here.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import Int32Array, IntScalar, UInt64Array
from penstock.kernels.intrinsics import lowest_bit
from penstock.kernels.jit import helper

_ALL = np.uint64((1 << 64) - 1)
_ONE = np.uint64(1)
_63 = np.int64(63)


def empty_queues(capacity: int) -> tuple[UInt64Array, UInt64Array, Int32Array]:
    """Return empty queues for residuals `0 : capacity + 1`."""
    words = np.zeros((capacity >> 6) + 1, np.uint64)
    return words, np.zeros((len(words) >> 6) + 1, np.uint64), np.full((2, capacity + 1), -1, np.int32)


@helper
def splice(
    words: UInt64Array,
    tops: UInt64Array,
    head: Int32Array,
    tail: Int32Array,
    following: Int32Array,
    residual: IntScalar,
    first: IntScalar,
    last: IntScalar,
) -> None:
    """Put the nodes `first` to `last`, which follow one another, at the end of a queue."""
    following[last] = -1
    if head[residual] < 0:
        head[residual] = first
        word = residual >> 6
        words[word] |= _ONE << np.uint64(residual & _63)
        tops[word >> 6] |= _ONE << np.uint64(word & _63)
    else:
        following[tail[residual]] = first
    tail[residual] = last


@helper
def cut(
    words: UInt64Array, tops: UInt64Array, head: Int32Array, residual: IntScalar, node: IntScalar | np.int32
) -> None:
    """Let a queue begin at `node`; it is empty if that is -1."""
    head[residual] = node
    if node < 0:
        word = residual >> 6
        words[word] &= ~(_ONE << np.uint64(residual & _63))
        if words[word] == 0:
            tops[word >> 6] &= ~(_ONE << np.uint64(word & _63))


@helper
def pop(
    words: UInt64Array, tops: UInt64Array, head: Int32Array, following: Int32Array, residual: IntScalar
) -> np.int32:
    """Take the first node of a queue that is not empty."""
    node: np.int32 = head[residual]
    cut(words, tops, head, residual, following[node])
    return node


@helper
def least(words: UInt64Array, tops: UInt64Array, length: IntScalar) -> IntScalar:
    """Return the smallest residual of at least `length` whose queue has a node, or -1."""
    word = length >> 6
    bits = words[word] & (_ALL << np.uint64(length & _63))
    if bits != 0:
        return (word << 6) + lowest_bit(bits)
    top = (word + 1) >> 6
    if top >= len(tops):
        return -1
    bits = tops[top] & (_ALL << np.uint64((word + 1) & _63))
    while bits == 0:
        top += 1
        if top == len(tops):
            return -1
        bits = tops[top]
    word = (top << 6) + lowest_bit(bits)
    return (word << 6) + lowest_bit(words[word])
