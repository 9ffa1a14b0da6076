"""Read a plan of packs: which items a pack has, and where their rows are.

A slot of a pack becomes an item by binary searches and one permutation, without a table for each epoch. The permutation
is a bijection, so each epoch has every item once. Stored plans are mapped read-only, so all plans are read as such:
one compiled variant serves plans in memory and in files. The caller owns all arrays. `WindowStore.check` tests a plan
once, so that no number in it leaves the arrays.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import IntArray, IntScalar, UInt32Array, UInt64Array, read_only
from penstock.kernels.jit import helper, kernel
from penstock.kernels.permute import permute

# What `place_pieces` takes of an item; 0 is all of it.
RIGHT = 1  # without what is over the limit on the right
LEFT = 2  # without what is over the limit on the left
PARTS = 3  # one part of `limit` rows
GIVEN = 4  # given rows

# Odd constants with their bits well spread keep epochs, windows and runs apart. They are part of the order.
_OF_EPOCH, _OF_WINDOW, _OF_RUN = (
    np.uint64(number) for number in (0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
)

Narrow: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Numbers of items of a window, in the narrowest integers that hold them."""


def pack_slots(
    pack: IntArray, epoch: IntArray, pack_first: IntArray, slot_first: IntArray, cut: Narrow, out: IntArray
) -> int:
    """Find window, first slot in the window, and number of slots of packs.

    Window `w` owns packs from `pack_first[w]` and slots from `slot_first[w]` up to the next window's.
    """
    n = len(pack)
    whole = len(pack_first) == len(slot_first) and pack_first[-1] == len(cut)
    if not whole or len(epoch) not in (1, n) or out.shape != (3, n):
        raise ValueError(f"expected one epoch or {n}, out [3, {n}] and a cut a pack, got {len(epoch)}, {out.shape}")
    return int(_pack_slots(pack, epoch, read_only(pack_first), read_only(slot_first), read_only(cut), out))


def pack_items(
    extent: IntArray,
    epoch: IntArray,
    number: int,
    slot: Narrow,
    slot_first: IntArray,
    local: Narrow,
    run: Narrow,
    run_first: IntArray,
    position: IntArray,
    blocks: int,
    block: int,
    seed: UInt64Array,
    out: IntArray,
) -> None:
    """Find pack, item and rank in the store of each slot of packs.

    Equal items exchange their ranks by a permutation of `seed[0]` that epoch, window and run name; windows without runs
    exchange nothing. Rank `r` is item `local[r]` of its window, counted from `position[number + w]`. The
    first `blocks` blocks of `block` positions change places by a permutation of `seed[1]`.
    """
    missing = extent.shape[1] > 0 and len(epoch) == 0
    if missing or out.shape[0] != 3 or len(slot_first) != len(run_first) or block < 1:
        raise ValueError(f"expected out [3, m] and one run table for {len(slot_first)} windows, got {out.shape}")
    room = np.empty((3, out.shape[1]), np.int64)
    plan = read_only(slot), read_only(slot_first), read_only(run), read_only(run_first)
    if not _ranks(extent, epoch, number, *plan, room, out):
        raise ValueError(f"expected room for {int(extent[2].sum())} items, got {out.shape[1]}")
    if len(run) > 0:
        room[0] = permute(room[0], room[1], room[2], int(seed[0]))
    _positions(extent, number, read_only(local), position, room, out)
    if blocks:
        _blocks(blocks, block, room, out[1])
        there = permute(np.maximum(room[0], 0), room[1], room[2], int(seed[1]))
        out[1] += np.where(room[0] >= 0, there * block, 0)


def place_pieces(
    pack: IntArray,
    total: IntArray,
    part: IntArray | UInt32Array,
    limit: IntArray,
    policy: int,
    align: int,
    head: int,
    out: IntArray,
) -> None:
    """Find the rows of each piece of packs, and where they begin in the pack.

    In a pack, each piece begins at the next multiple of `align` behind the piece before.
    """
    total = np.ascontiguousarray(total)
    m, axes = total.shape
    if len(pack) != m or len(part) not in (0, m) or len(limit) != axes or out.shape != (3, m, axes) or align < 1:
        raise ValueError(f"expected arrays for {m} pieces on {axes} axes, got {len(pack)}, {len(part)}, {out.shape}")
    parts = read_only(np.ascontiguousarray(part, np.uint32))
    _place_pieces(pack, total, parts, limit, policy, align, head, out)


@helper
def _last_at(first: IntArray | Narrow, begin: IntScalar, end: IntScalar, value: IntScalar) -> IntScalar:
    """The last of `begin : end` whose `first` is at most `value`; `begin` where there is none."""
    lo, hi = np.int64(begin), np.int64(end) - 1
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if np.int64(first[middle]) <= value:
            lo = middle
        else:
            hi = middle - 1
    return lo


@kernel("i8[1C] i8[1C] i8[1Cr] i8[1Cr] u2[1Cr] i8[2C]", "i8[1C] i8[1C] i8[1Cr] i8[1Cr] u4[1Cr] i8[2C]")
def _pack_slots(
    pack: IntArray, epoch: IntArray, pack_first: IntArray, slot_first: IntArray, cut: Narrow, out: IntArray
) -> IntScalar:
    total = np.int64(0)
    for i in range(len(pack)):
        k = pack[i]
        if not 0 <= k < pack_first[-1] or epoch[i % len(epoch)] < 0:
            return -1
        w = _last_at(pack_first, 0, len(pack_first), k)
        begin = np.int64(cut[k])
        end = np.int64(cut[k + 1]) if k + 1 < pack_first[w + 1] else slot_first[w + 1] - slot_first[w]
        out[0, i] = w
        out[1, i] = begin
        out[2, i] = end - begin
        total += end - begin
    return total


@kernel(
    "i8[2C] i8[1C] i8 u2[1Cr] i8[1Cr] u2[1Cr] i8[1Cr] i8[2C] i8[2C]",
    "i8[2C] i8[1C] i8 u4[1Cr] i8[1Cr] u4[1Cr] i8[1Cr] i8[2C] i8[2C]",
)
def _ranks(
    extent: IntArray,
    epoch: IntArray,
    number: int,
    slot: Narrow,
    slot_first: IntArray,
    run: Narrow,
    run_first: IntArray,
    room: IntArray,
    out: IntArray,
) -> bool:
    """Of each slot: the pack in `out[0]`, where its run begins in `out[2]`; in `room` its place in the run, the length
    of the run, and the number of the permutation that exchanges them in this epoch."""
    needed = 0
    for i in range(extent.shape[1]):
        needed += extent[2, i]
    if needed != out.shape[1]:
        return False
    m = 0
    for i in range(extent.shape[1]):
        w: int = extent[0, i]
        base = slot_first[w]
        begin_run = run_first[w]
        end_run = run_first[w + 1]
        key = np.uint64(epoch[i % len(epoch)]) * _OF_EPOCH + np.uint64(number + w) * _OF_WINDOW
        for j in range(base + extent[1, i], base + extent[1, i] + extent[2, i]):
            rank = np.int64(slot[j])
            begin = rank
            end = rank + 1
            which = np.int64(0)
            if end_run > begin_run:
                run_index = _last_at(run, begin_run, end_run, rank)
                begin, which = np.int64(run[run_index]), run_index - begin_run
                end = np.int64(run[run_index + 1]) if run_index + 1 < end_run else slot_first[w + 1] - base
            out[0, m], out[2, m] = i, base + begin
            room[0, m], room[1, m] = rank - begin, end - begin
            room[2, m] = np.int64((key + np.uint64(which) * _OF_RUN) >> np.uint64(2))
            m += 1
    return True


@kernel(
    "i8[2C] i8 u2[1Cr] i8[1C] i8[2C] i8[2C]",
    "i8[2C] i8 u4[1Cr] i8[1C] i8[2C] i8[2C]",
)
def _positions(extent: IntArray, number: int, local: Narrow, position: IntArray, room: IntArray, out: IntArray) -> None:
    """The place of each slot in its run becomes its rank in the window, and that its position."""
    m = 0
    for i in range(extent.shape[1]):
        w: int = extent[0, i]
        for _ in range(extent[2, i]):
            out[2, m] += room[0, m]
            out[1, m] = position[number + w] + np.int64(local[out[2, m]])
            m += 1


@kernel("i8 i8 i8[2C] i8[1C]")
def _blocks(blocks: int, block: int, room: IntArray, item: IntArray) -> None:
    """Where blocks change places: of each item the number of its block in `room[0]`, -1 for none, and how many there
    are. Items become the first of their kind, one a block."""
    for i in range(len(item)):
        room[0, i] = -1
        room[1, i] = 1
        room[2, i] = 0
        if item[i] < blocks * block:
            room[0, i], room[1, i] = item[i] // block, blocks
            item[i] -= room[0, i] * block


@kernel("i8[1C] i8[2C] u4[1Cr] i8[1C] i8 i8 i8 i8[3C]")
def _place_pieces(
    pack: IntArray,
    total: IntArray,
    part: UInt32Array,
    limit: IntArray,
    policy: int,
    align: int,
    head: int,
    out: IntArray,
) -> None:
    rows, axes = total.shape
    for a in range(axes):
        out_byte = np.int64(0)
        for i in range(rows):
            begin, size = np.int64(0), total[i, a]
            if policy & GIVEN:
                begin, size = out[0, i, a], out[1, i, a] if out[1, i, a] >= 0 else size
            elif policy == PARTS:
                begin = min(max(limit[a] * np.int64(part[i]), 0), size) if len(part) > 0 else begin
                size = min(size - begin, limit[a])
            elif policy == RIGHT:
                size = min(size, limit[a])
            elif policy == LEFT:
                begin = max(size - limit[a], 0)
                size -= begin
            if i > 0 and pack[i] != pack[i - 1]:
                out_byte = 0
            if head > 0 and begin > 0 and size > 0:
                out_byte += head
            if policy == GIVEN + LEFT:  # counted in what is left
                begin += max(total[i, a] - limit[a], 0)
            out[0, i, a] = begin
            out[1, i, a] = size
            out[2, i, a] = out_byte
            out_byte = (out_byte + size + align - 1) // align * align
