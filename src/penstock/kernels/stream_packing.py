"""Best fit of a stream of sequences into a bounded set of open packs.

Packs with the same key (their least room, as a share of the capacity) are in one list, and a bitmap says which lists
are not empty. So a sequence finds its pack without a scan of all packs: `_near` tests a bounded number of packs with
the least room, and `_far` takes a pack whose key alone proves that it has room. For this proof, keys are rounded down
and sizes are rounded up. A restored packer replays the flags of the sequences in open packs: each of them went to the
first pack that had room in the order of keys, among more packs than are open now, so the same pack is also the first
among the remaining ones. The caller owns the arrays of sequences; `OpenPacks` owns the packs between calls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, IntScalar, UInt64Array
from penstock.kernels.intrinsics import lowest_bit
from penstock.kernels.jit import helper, kernel

# Flags of a sequence.
OUT = 1  # its pack is closed
OPENED = 2  # it was the first of its pack
FAR = 4  # a key alone said that its pack has room
PROBES = 64
"""Packs that are tested for one sequence; with one column of up to 65,536 places the first always has room."""

# A pack's row in `nodes`: its neighbours among the packs of its key and among all open packs, its own fields, and from
# `_ROOM` on the room left in each column.
_NEXT, _PREV, _NEWER, _OLDER, _SERIAL, _COUNT, _KEY, _ROOM = range(8)
# Places in `now`: the first unused node, how many packs are open, the next serial, the ends of the list by age.
_FREE, _OPEN, _NUMBER, _OLDEST, _NEWEST = range(5)
# Places in `bounds`.
_MOST, _LIMIT, _AGE, _SCALE = range(4)

_6 = np.int64(6)
_63 = np.int64(63)
_ALL = np.uint64(2**64 - 1)
_ONE = np.uint64(1)
_NONE = np.uint64(0)


class OpenPacks(NamedTuple):
    """The open packs: nodes in lists by key, `bits` set where a key has packs, and `top` where a word of `bits` has."""

    nodes: IntArray
    heads: IntArray
    bits: UInt64Array
    top: UInt64Array
    now: IntArray
    bounds: IntArray
    capacity: IntArray


def scale_of(capacity: IntArray) -> int:
    """Return into how many steps the room of packs is divided for their keys: places, for one column of
    usual length.
    """
    return min(int(capacity[0]), 1 << 16) if len(capacity) == 1 else 1 << 12


def open_packs(capacity: IntArray, most: int, limit: int, age: int) -> OpenPacks:
    """Return the state of a packer without open packs."""
    if min(most, limit, *capacity.tolist()) < 1:
        raise ValueError(f"expected numbers of at least 1, got {capacity.tolist()}, {most} and {limit}")
    slots, scale = limit + 1, scale_of(capacity)
    keys = scale + 2
    words = (keys >> 6) + 1
    nodes = np.full((slots, _ROOM + len(capacity)), -1, np.int64)
    nodes[:-1, _NEXT] = np.arange(1, slots)
    now = np.array([0, 0, 0, -1, -1], np.int64)
    bits, top = np.zeros(words, np.uint64), np.zeros((words >> 6) + 1, np.uint64)
    bounds = np.array([most, limit, age, scale], np.int64)
    return OpenPacks(nodes, np.full((keys, 2), -1, np.int64), bits, top, now, bounds, np.ascontiguousarray(capacity))


def pack_stream(
    state: OpenPacks, sizes: IntArray, final: bool, pack: IntArray, flags: ByteArray, closed: IntArray
) -> tuple[int, int]:
    """Pack sequences in order, until all are in a pack or `closed` is full.

    A call that stops with `closed` full goes on with the next call as if it had not stopped.
    """
    _require_sequences(state, sizes, pack, flags)
    if len(closed) == 0:
        raise ValueError("expected room for at least one closed pack")
    taken, done = _pack_stream(*state, sizes, final, pack, flags, closed)
    if taken < 0:
        raise ValueError(f"expected sequences within {state.capacity.tolist()}, got {sizes[~taken].tolist()}")
    return taken, done


def repack_stream(state: OpenPacks, sizes: IntArray, flags: ByteArray, pack: IntArray) -> int:
    """Restore the open packs of an earlier run, from its sequences since the oldest one that is in an open pack."""
    _require_sequences(state, sizes, pack, flags)
    return _repack_stream(*state, sizes, flags, pack)


def _require_sequences(state: OpenPacks, sizes: IntArray, pack: IntArray, flags: ByteArray) -> None:
    if sizes.shape[1] != len(state.capacity) or not len(sizes) == len(pack) == len(flags):
        got = f"{sizes.shape}, {len(pack)} and {len(flags)}"
        raise ValueError(f"expected sizes [n, {len(state.capacity)}] and a pack and flags a sequence, got {got}")


@helper
def _fits(sizes: IntArray, i: int, capacity: IntArray) -> bool:
    """Whether a sequence is within the capacity."""
    fits = True
    for c in range(len(capacity)):
        fits &= 0 <= sizes[i, c] <= capacity[c]
    return fits


@helper
def _key_from(bits: UInt64Array, top: UInt64Array, key: IntScalar) -> IntScalar:
    """The least key from `key` on that has packs, or -1."""
    w = key >> _6
    if w >= len(bits):
        return -1
    word = bits[w] & (_ALL << np.uint64(key & _63))
    if word != _NONE:
        return (w << _6) + lowest_bit(word)
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
    w = (t << _6) + lowest_bit(word)
    return (w << _6) + lowest_bit(bits[w])


@helper
def _list_in(nodes: IntArray, heads: IntArray, bits: UInt64Array, top: UInt64Array, node: int, key: int) -> None:
    """Put a pack last among the packs of its key."""
    last = heads[key, 1]
    nodes[node, _KEY] = key
    nodes[node, _PREV] = last
    nodes[node, _NEXT] = -1
    heads[key, 1] = node
    if last >= 0:
        nodes[last, _NEXT] = node
        return
    heads[key, 0] = node
    bits[key >> _6] |= _ONE << np.uint64(key & _63)
    top[key >> 12] |= _ONE << np.uint64((key >> _6) & _63)


@helper
def _list_out(nodes: IntArray, heads: IntArray, bits: UInt64Array, top: UInt64Array, node: int) -> None:
    key = nodes[node, _KEY]
    before = nodes[node, _PREV]
    after = nodes[node, _NEXT]
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


@helper
def _least_share(table: IntArray, row: int, first: int, capacity: IntArray, scale: int) -> int:
    """The least of `table[row, first:]` as shares of the capacity, in `scale` steps, rounded down."""
    least = scale
    for c in range(len(capacity)):
        amount = table[row, first + c]
        least = min(least, amount if scale == capacity[c] else amount * scale // capacity[c])
    return least


@helper
def _most_share(sizes: IntArray, i: int, capacity: IntArray, scale: int) -> int:
    """The most of `sizes[i]` as shares of the capacity, in `scale` steps, rounded up."""
    most = 0
    for c in range(len(capacity)):
        size = sizes[i, c]
        most = max(most, size if scale == capacity[c] else (size * scale + capacity[c] - 1) // capacity[c])
    return most


@helper
def _near(
    nodes: IntArray,
    heads: IntArray,
    bits: UInt64Array,
    top: UInt64Array,
    capacity: IntArray,
    scale: int,
    sizes: IntArray,
    i: int,
    probes: int,
) -> int:
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


@helper
def _far(
    heads: IntArray, bits: UInt64Array, top: UInt64Array, capacity: IntArray, scale: int, sizes: IntArray, i: int
) -> int:
    """The first pack whose key alone says that it has room, or -1."""
    key = _key_from(bits, top, 1 + _most_share(sizes, i, capacity, scale))
    return heads[key, 0] if key >= 0 else -1


@helper
def _opened(nodes: IntArray, now: IntArray, capacity: IntArray) -> int:
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


@helper
def _put(
    nodes: IntArray,
    heads: IntArray,
    bits: UInt64Array,
    top: UInt64Array,
    capacity: IntArray,
    bounds: IntArray,
    node: int,
    sizes: IntArray,
    i: int,
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


@helper
def _close(nodes: IntArray, heads: IntArray, bits: UInt64Array, top: UInt64Array, now: IntArray, node: int) -> int:
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


@helper
def _due(nodes: IntArray, heads: IntArray, bits: UInt64Array, top: UInt64Array, now: IntArray, bounds: IntArray) -> int:
    """The pack that has to go before the next sequence comes, or -1."""
    if heads[0, 0] >= 0:
        return heads[0, 0]
    if now[_OPEN] > bounds[_LIMIT]:
        return heads[_key_from(bits, top, 1), 0]
    oldest = now[_OLDEST]
    if oldest >= 0 and now[_NUMBER] - nodes[oldest, _SERIAL] > bounds[_AGE]:
        return oldest
    return -1


@kernel("i8[2C] i8[2C] u8[1C] u8[1C] i8[1C] i8[1C] i8[1C] i8[2C] b1 i8[1C] u1[1C] i8[1C]")
def _pack_stream(
    nodes: IntArray,
    heads: IntArray,
    bits: UInt64Array,
    top: UInt64Array,
    now: IntArray,
    bounds: IntArray,
    capacity: IntArray,
    sizes: IntArray,
    final: bool,
    pack: IntArray,
    flags: ByteArray,
    closed: IntArray,
) -> tuple[int, int]:
    """Return `~i` in place of the number of sequences where sequence `i` is longer than a pack."""
    scale = bounds[_SCALE]
    taken = 0
    done = 0
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
        if not _fits(sizes, taken, capacity):
            return ~taken, done
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


@kernel("i8[2C] i8[2C] u8[1C] u8[1C] i8[1C] i8[1C] i8[1C] i8[2C] u1[1C] i8[1C]")
def _repack_stream(
    nodes: IntArray,
    heads: IntArray,
    bits: UInt64Array,
    top: UInt64Array,
    now: IntArray,
    bounds: IntArray,
    capacity: IntArray,
    sizes: IntArray,
    flags: ByteArray,
    pack: IntArray,
) -> int:
    scale = bounds[_SCALE]
    for i in range(len(sizes)):
        pack[i] = -1
        if flags[i] & OUT:
            now[_NUMBER] += 1 if flags[i] & OPENED else 0
            continue
        if not _fits(sizes, i, capacity):
            return i
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
