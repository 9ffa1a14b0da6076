# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled best fit of a stream of sequences into a bounded set of open packs. Definition: `stream_reference`.

Packs with the same key (their least room, as a share of the capacity) are in one list, and a bitmap says which lists
are not empty. So a sequence finds its pack without a scan of all packs: `_near` tests a bounded number of packs with
the least room, and `_far` takes a pack whose key alone proves that it has room. For this proof, keys are rounded down
and sizes are rounded up. The caller owns the arrays of sequences; `OpenPacks` owns the packs between calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock.kernels.stream_reference import FAR, OPENED, OUT, PROBES, scale_of

# A pack's row in `nodes`: its neighbours among the packs of its key and among all open packs, its own fields, and from
# `_ROOM` on the room left in each column.
_NEXT, _PREV, _NEWER, _OLDER, _SERIAL, _COUNT, _KEY, _ROOM = range(8)
# Places in `now`: the first unused node, how many packs are open, the next serial, the ends of the list by age.
_FREE, _OPEN, _NUMBER, _OLDEST, _NEWEST = range(5)
# Places in `bounds`.
_MOST, _LIMIT, _AGE, _SCALE = range(4)

_6, _63, _ALL, _ONE, _NONE = np.int64(6), np.int64(63), np.uint64(2**64 - 1), np.uint64(1), np.uint64(0)


class OpenPacks(NamedTuple):
    """The open packs: nodes in lists by key, `bits` set where a key has packs, and `top` where a word of `bits` has."""

    nodes: Any
    heads: Any
    bits: Any
    top: Any
    now: Any
    bounds: Any
    capacity: Any


def open_packs(capacity: Any, most: int, limit: int, age: int) -> OpenPacks:
    """No pack open. See `stream_reference.open_packs`."""
    slots, scale = limit + 1, scale_of(capacity)
    keys = scale + 2
    words = (keys >> 6) + 1
    nodes = np.full((slots, _ROOM + len(capacity)), -1, np.int64)
    nodes[:-1, _NEXT] = np.arange(1, slots)
    now = np.array([0, 0, 0, -1, -1], np.int64)
    bits, top = np.zeros(words, np.uint64), np.zeros((words >> 6) + 1, np.uint64)
    bounds = np.array([most, limit, age, scale], np.int64)
    return OpenPacks(nodes, np.full((keys, 2), -1, np.int64), bits, top, now, bounds, capacity)


@intrinsic
def _lowest(_context: Any, _word: Any) -> Any:
    """The number of the lowest bit that is set in a uint64 other than 0."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@uncounted_helper
def _key_from(bits: Any, top: Any, key: int) -> Any:
    """The least key from `key` on that has packs, or -1."""
    w = key >> _6
    if w >= len(bits):
        return -1
    word = bits[w] & (_ALL << np.uint64(key & _63))
    if word != _NONE:
        return (w << _6) + _lowest(word)
    w += 1
    t = w >> _6
    if t >= len(top):
        return -1
    word = top[t] & (_ALL << np.uint64(w & _63))
    while word == _NONE:
        t += 1
        if t == len(top):
            return -1
        word = top[t]
    w = (t << _6) + _lowest(word)
    return (w << _6) + _lowest(bits[w])


@uncounted_helper
def _list_in(nodes: Any, heads: Any, bits: Any, top: Any, node: int, key: int) -> None:
    """Put a pack last among the packs of its key."""
    last = heads[key, 1]
    nodes[node, _KEY], nodes[node, _PREV], nodes[node, _NEXT] = key, last, -1
    heads[key, 1] = node
    if last >= 0:
        nodes[last, _NEXT] = node
        return
    heads[key, 0] = node
    bits[key >> _6] |= _ONE << np.uint64(key & _63)
    top[key >> 12] |= _ONE << np.uint64((key >> _6) & _63)


@uncounted_helper
def _list_out(nodes: Any, heads: Any, bits: Any, top: Any, node: int) -> None:
    key, before, after = nodes[node, _KEY], nodes[node, _PREV], nodes[node, _NEXT]
    if before >= 0:
        nodes[before, _NEXT] = after
    else:
        heads[key, 0] = after
    if after >= 0:
        nodes[after, _PREV] = before
    else:
        heads[key, 1] = before
    if heads[key, 0] < 0:
        bits[key >> _6] &= ~(_ONE << np.uint64(key & _63))
        if bits[key >> _6] == _NONE:
            top[key >> 12] &= ~(_ONE << np.uint64((key >> _6) & _63))


@uncounted_helper
def _least_share(table: Any, row: int, first: int, capacity: Any, scale: int) -> Any:
    """The least of `table[row, first:]` as shares of the capacity, in `scale` steps, rounded down."""
    least = scale
    for c in range(len(capacity)):
        held = table[row, first + c]
        least = min(least, held if scale == capacity[c] else held * scale // capacity[c])
    return least


@uncounted_helper
def _most_share(sizes: Any, i: int, capacity: Any, scale: int) -> Any:
    """The most of `sizes[i]` as shares of the capacity, in `scale` steps, rounded up."""
    most = 0
    for c in range(len(capacity)):
        size = sizes[i, c]
        most = max(most, size if scale == capacity[c] else (size * scale + capacity[c] - 1) // capacity[c])
    return most


@uncounted_helper
def _near(
    nodes: Any, heads: Any, bits: Any, top: Any, capacity: Any, scale: int, sizes: Any, i: int, probes: int
) -> Any:
    """The first pack, by key and time of listing, that has room; -1 if none of the first `probes` has."""
    key = _key_from(bits, top, 1 + _least_share(sizes, i, 0, capacity, scale))
    while key >= 0:
        node = heads[key, 0]
        while node >= 0:
            fits = True
            for c in range(len(capacity)):
                fits &= sizes[i, c] <= nodes[node, _ROOM + c]
            if fits:
                return node
            probes -= 1
            if probes == 0:
                return -1
            node = nodes[node, _NEXT]
        key = _key_from(bits, top, key + 1)
    return -1


@uncounted_helper
def _far(heads: Any, bits: Any, top: Any, capacity: Any, scale: int, sizes: Any, i: int) -> Any:
    """The first pack whose key alone says that it has room, or -1."""
    key = _key_from(bits, top, 1 + _most_share(sizes, i, capacity, scale))
    return heads[key, 0] if key >= 0 else -1


@uncounted_helper
def _opened(nodes: Any, now: Any, capacity: Any) -> Any:
    """A new pack, the newest, in no list of keys yet."""
    node = now[_FREE]
    now[_FREE] = nodes[node, _NEXT]
    newest = now[_NEWEST]
    nodes[node, _OLDER], nodes[node, _NEWER] = newest, -1
    nodes[node, _SERIAL], nodes[node, _COUNT] = now[_NUMBER], 0
    for c in range(len(capacity)):
        nodes[node, _ROOM + c] = capacity[c]
    if newest >= 0:
        nodes[newest, _NEWER] = node
    else:
        now[_OLDEST] = node
    now[_NEWEST] = node
    now[_OPEN] += 1
    now[_NUMBER] += 1
    return node


@uncounted_helper
def _put(
    nodes: Any, heads: Any, bits: Any, top: Any, capacity: Any, bounds: Any, node: int, sizes: Any, i: int
) -> None:
    """A sequence into a pack that is in no list of keys. One without room for another has the key 0."""
    full = False
    for c in range(len(capacity)):
        nodes[node, _ROOM + c] -= sizes[i, c]
        full |= nodes[node, _ROOM + c] == 0
    nodes[node, _COUNT] += 1
    full |= nodes[node, _COUNT] >= bounds[_MOST]
    key = 0 if full else 1 + _least_share(nodes, node, _ROOM, capacity, bounds[_SCALE])
    _list_in(nodes, heads, bits, top, node, key)


@uncounted_helper
def _close(nodes: Any, heads: Any, bits: Any, top: Any, now: Any, node: int) -> Any:
    """Take a pack out; its serial."""
    _list_out(nodes, heads, bits, top, node)
    older, newer = nodes[node, _OLDER], nodes[node, _NEWER]
    if older >= 0:
        nodes[older, _NEWER] = newer
    else:
        now[_OLDEST] = newer
    if newer >= 0:
        nodes[newer, _OLDER] = older
    else:
        now[_NEWEST] = older
    nodes[node, _NEXT] = now[_FREE]
    now[_FREE] = node
    now[_OPEN] -= 1
    return nodes[node, _SERIAL]


@uncounted_helper
def _due(nodes: Any, heads: Any, bits: Any, top: Any, now: Any, bounds: Any) -> Any:
    """The pack that has to go before the next sequence comes, or -1."""
    if heads[0, 0] >= 0:
        return heads[0, 0]
    if now[_OPEN] > bounds[_LIMIT]:
        return heads[_key_from(bits, top, 1), 0]
    oldest = now[_OLDEST]
    if oldest >= 0 and now[_NUMBER] - nodes[oldest, _SERIAL] > bounds[_AGE]:
        return oldest
    return -1


@uncounted_kernel
def pack_stream(p: Any, sizes: Any, final: bool, pack: Any, flags: Any, closed: Any) -> Any:
    """See `stream_reference.pack_stream`."""
    nodes, heads, bits, top, now, bounds, capacity = p
    scale, taken, done = bounds[_SCALE], 0, 0
    while True:
        node = _due(nodes, heads, bits, top, now, bounds)
        if node < 0 and taken == len(sizes):
            if not final or now[_OPEN] == 0:
                return taken, done
            node = now[_OLDEST]
        if node >= 0:
            closed[done] = _close(nodes, heads, bits, top, now, node)
            done += 1
            if done == len(closed):
                return taken, done
            continue
        flag = 0
        node = _near(nodes, heads, bits, top, capacity, scale, sizes, taken, PROBES)
        if node < 0:
            flag, node = FAR, _far(heads, bits, top, capacity, scale, sizes, taken)
        if node < 0:
            flag, node = OPENED, _opened(nodes, now, capacity)
        else:
            _list_out(nodes, heads, bits, top, node)
        _put(nodes, heads, bits, top, capacity, bounds, node, sizes, taken)
        flags[taken], pack[taken] = flag, nodes[node, _SERIAL]
        taken += 1


@uncounted_kernel
def repack_stream(p: Any, sizes: Any, flags: Any, pack: Any) -> Any:
    """See `stream_reference.repack_stream`."""
    nodes, heads, bits, top, now, bounds, capacity = p
    scale = bounds[_SCALE]
    for i in range(len(sizes)):
        pack[i] = -1
        if flags[i] & OUT:
            now[_NUMBER] += 1 if flags[i] & OPENED else 0
            continue
        if flags[i] & OPENED:
            if now[_FREE] < 0:
                return i
            node = _opened(nodes, now, capacity)
        else:
            if flags[i] & FAR:
                node = _far(heads, bits, top, capacity, scale, sizes, i)
            else:
                node = _near(nodes, heads, bits, top, capacity, scale, sizes, i, -1)
            if node < 0:
                return i
            _list_out(nodes, heads, bits, top, node)
        _put(nodes, heads, bits, top, capacity, bounds, node, sizes, i)
        pack[i] = nodes[node, _SERIAL]
    return -1
