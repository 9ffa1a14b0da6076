# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels that read a plan of packs. Definitions: `packing_read_reference`.

A slot of a pack becomes an item by binary searches and one permutation (`cipher`), without a table for each epoch. The
permutation is a bijection, so each epoch has every item once. The caller owns all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock.kernels.packing_read_reference import GIVEN, LEFT, OF_EPOCH, OF_RUN, OF_WINDOW, PARTS, RIGHT
from penstock.kernels.permute import permute

_OF_EPOCH, _OF_WINDOW, _OF_RUN = np.uint64(OF_EPOCH), np.uint64(OF_WINDOW), np.uint64(OF_RUN)


@uncounted_helper
def _last_at(first: Any, begin: Any, end: Any, value: Any) -> Any:
    """The last of `begin : end` whose `first` is at most `value`; `begin` where there is none."""
    lo, hi = np.int64(begin), np.int64(end) - 1
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if np.int64(first[middle]) <= value:
            lo = middle
        else:
            hi = middle - 1
    return lo


@uncounted_kernel
def pack_slots(pack: Any, epoch: Any, pack_first: Any, slot_first: Any, cut: Any, out: Any) -> Any:
    """See `packing_read_reference.pack_slots`."""
    total = np.int64(0)
    for i in range(len(pack)):
        k = pack[i]
        if not 0 <= k < pack_first[-1] or epoch[i % len(epoch)] < 0:
            return -1
        w = _last_at(pack_first, 0, len(pack_first), k)
        begin = np.int64(cut[k])
        end = np.int64(cut[k + 1]) if k + 1 < pack_first[w + 1] else slot_first[w + 1] - slot_first[w]
        out[0, i], out[1, i], out[2, i] = w, begin, end - begin
        total += end - begin
    return total


def pack_items(
    extent: Any,
    epoch: Any,
    number: int,
    slot: Any,
    slot_first: Any,
    local: Any,
    run: Any,
    run_first: Any,
    position: Any,
    section: Any,
    block: int,
    seed: Any,
    out: Any,
) -> None:
    """See `packing_read_reference.pack_items`. Only the cipher is called from here, so that it compiles once."""
    room = np.empty((3, out.shape[1]), np.int64)
    _ranks(extent, epoch, number, slot, slot_first, run, run_first, room, out)
    if len(run) > 0:
        room[0] = permute(room[0], room[1], room[2], int(seed[0]))
    _positions(extent, number, local, position, room, out)
    if section[1].any():
        _blocks(section, block, room, out[1])
        there = permute(np.maximum(room[0], 0), room[1], room[2], int(seed[1]))
        out[1] += np.where(room[0] >= 0, there * block, 0)


@uncounted_kernel
def _ranks(
    extent: Any, epoch: Any, number: int, slot: Any, slot_first: Any, run: Any, run_first: Any, room: Any, out: Any
) -> None:
    """Of each slot: the pack in `out[0]`, where its run begins in `out[2]`; in `room` its place in the run, the length
    of the run, and the number of the permutation that exchanges them in this epoch."""
    m = 0
    for i in range(extent.shape[1]):
        w = extent[0, i]
        base, begin_run, end_run = slot_first[w], run_first[w], run_first[w + 1]
        key = np.uint64(epoch[i % len(epoch)]) * _OF_EPOCH + np.uint64(number + w) * _OF_WINDOW
        for j in range(base + extent[1, i], base + extent[1, i] + extent[2, i]):
            rank = np.int64(slot[j])
            begin, end, which = rank, rank + 1, np.int64(0)
            if end_run > begin_run:
                found = _last_at(run, begin_run, end_run, rank)
                begin, which = np.int64(run[found]), found - begin_run
                end = np.int64(run[found + 1]) if found + 1 < end_run else slot_first[w + 1] - base
            out[0, m], out[2, m] = i, base + begin
            room[0, m], room[1, m] = rank - begin, end - begin
            room[2, m] = np.int64((key + np.uint64(which) * _OF_RUN) >> np.uint64(2))
            m += 1


@uncounted_kernel
def _positions(extent: Any, number: int, local: Any, position: Any, room: Any, out: Any) -> None:
    """The place of each slot in its run becomes its rank in the window, and that its position."""
    m = 0
    for i in range(extent.shape[1]):
        w = extent[0, i]
        for _ in range(extent[2, i]):
            out[2, m] += room[0, m]
            out[1, m] = position[number + w] + np.int64(local[out[2, m]])
            m += 1


@uncounted_kernel
def _blocks(section: Any, block: int, room: Any, item: Any) -> None:
    """Where blocks change places: of each item the number of its block in `room[0]`, -1 for none, how many there are,
    and their section, which names the permutation. Items become the first of their kind, one a block."""
    for i in range(len(item)):
        s = _last_at(section[0], 0, section.shape[1], item[i])
        room[0, i], room[1, i], room[2, i] = -1, 1, section[0, s]
        if item[i] - section[0, s] < section[1, s] * block:
            room[0, i], room[1, i] = (item[i] - section[0, s]) // block, section[1, s]
            item[i] -= room[0, i] * block


@uncounted_kernel
def lay(pack: Any, total: Any, part: Any, limit: Any, policy: int, align: int, head: int, out: Any) -> None:
    """See `packing_read_reference.lay`."""
    rows, axes = total.shape
    for a in range(axes):
        at = np.int64(0)
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
                at = 0
            if head > 0 and begin > 0 and size > 0:
                at += head
            if policy == GIVEN + LEFT:  # counted in what is left
                begin += max(total[i, a] - limit[a], 0)
            out[0, i, a], out[1, i, a], out[2, i, a] = begin, size, at
            at = (at + size + align - 1) // align * align
