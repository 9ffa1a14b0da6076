"""Definitions of the kernels that plan packs, written to be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray, IntArray


def gather_runs(length: Any, start: IntArray, size: IntArray, out: IntArray) -> None:
    runs = [length[a : a + n].astype(np.int64) for a, n in zip(start.tolist(), size.tolist(), strict=True)]
    out[:] = np.concatenate([*runs, np.empty(0, np.int64)])


def histogram(length: Any, start: IntArray, size: IntArray, out: Any) -> bool:
    value = np.empty(int(size.sum()), np.int64)
    gather_runs(length, start, size, value)
    good = bool(((value >= 0) & (value < len(out))).all())
    out += np.bincount(value, minlength=len(out)).astype(out.dtype) if good else 0
    return good


def sort_decreasing(length: IntArray, _capacity: int, order: IntArray, run: IntArray) -> int:
    order[:] = np.argsort(-length, kind="stable")
    starts = np.flatnonzero(np.diff(length[order], prepend=-1))
    run[: len(starts)] = starts
    return len(starts)


def best_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    bins: list[list[int]] = []  # residual, since which item, number of items
    for i, size in enumerate(length.tolist()):
        fitting = [b for b, (room, _, held) in enumerate(bins) if room >= size and held < most]
        if not fitting:
            bins.append([capacity, 0, 0])
        chosen = min(fitting, key=lambda b: bins[b][:2], default=len(bins) - 1)
        room, since, held = bins[chosen]
        bins[chosen] = [room - size, since if size == 0 and held else i + 1, held + 1]
        out[i] = chosen
    return len(bins)


def count_decreasing(counts: Any, capacity: int, most: int) -> tuple[int, int]:
    length = np.repeat(np.arange(len(counts)), counts)[::-1]
    bins = np.zeros(len(length), np.int64)
    count = best_fit(length, capacity, most, bins)
    return count, int(np.bincount(bins, minlength=1).max(initial=0))


def plan_decreasing(
    length: IntArray, capacity: int, most: int, _room: Any, cut: Any, slot: Any, local: Any, run: Any
) -> tuple[int, int]:
    order, begin, bin_of = np.zeros((3, len(length)), np.int64)
    runs = sort_decreasing(length, capacity, order, begin)
    bins = best_fit(length[order], capacity, most, bin_of)
    slots, cuts = np.zeros(len(length), np.int64), np.zeros(bins, np.int64)
    bin_slots(bin_of, bins, slots, cuts)
    local[:], slot[:], run[:runs], cut[:bins] = order, slots, begin[:runs], cuts
    return bins, runs


def first_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    bins: list[list[int]] = []
    for i, size in enumerate(length.tolist()):
        fitting = (b for b, (room, held) in enumerate(bins) if room >= size and held < most)
        chosen = next(fitting, len(bins))
        if chosen == len(bins):
            bins.append([capacity, 0])
        bins[chosen][0] -= size
        bins[chosen][1] += 1
        out[i] = chosen
    return len(bins)


def open_fit(
    length: IntArray,
    capacity: IntArray,
    scale: FloatArray,
    least: IntArray,
    align: int,
    most: int,
    keep: int,
    best: bool,
    block: bool,
    out: IntArray,
) -> int:
    bins: list[list[Any]] = []  # used [A], items, creation number
    emitted: list[int] = []
    created = 0
    for i, size in enumerate(length):
        if not block and len(bins) > keep:
            emitted.append(bins.pop(0)[2])
        fitting = [b for b in bins if b[1] < most and np.all(b[0] + size <= capacity)]
        if not fitting:
            if block and len(bins) == keep:
                emitted += [b[2] for b in bins]
                bins = []
            bins.append([np.zeros(len(capacity), np.int64), 0, created])
            created += 1
        spaces = [sum(((capacity - b[0]) * scale).tolist()) for b in fitting]
        chosen = fitting[spaces.index(min(spaces)) if best else 0] if fitting else bins[-1]
        out[i] = chosen[2]
        chosen[0] = chosen[0] + -(-size // align) * align
        chosen[1] += 1
        closed = chosen[1] == most or np.any(capacity - chosen[0] < least)
        if not block and (closed or np.all(chosen[0] >= capacity)):
            bins = [b for b in bins if b is not chosen]
            emitted.append(chosen[2])
    emitted += [b[2] for b in bins]
    out[:] = np.argsort(np.array(emitted, np.int64))[out] if len(out) else out
    return created


def concat(
    length: IntArray,
    capacity: IntArray,
    align: int,
    most: int,
    head: int,
    whole: bool,
    index: IntArray,
    begin: IntArray,
    size: IntArray,
) -> tuple[int, int]:
    pieces: list[tuple[int, int, Any, Any]] = []
    aside: list[int] = []
    used, zero = np.zeros_like(capacity), np.zeros_like(capacity)
    bins, held = 0, 0

    def flush() -> None:
        nonlocal bins
        pieces.extend((bins + j, item, zero, length[item]) for j, item in enumerate(aside))
        bins += len(aside)
        aside.clear()

    for item, total in enumerate(length):
        done, apart = zero, whole and bool(np.any(total == capacity) and np.all(total <= capacity))
        while True:
            if held == most or np.any(used >= capacity):
                bins, held, used = bins + 1, 0, zero
            if held == 0 and bins > 0:
                flush()
            if apart:
                aside.append(item)
                break
            reserved = np.where((done > 0) & (done < total), head, 0)
            take = np.minimum(total - done, capacity - used - reserved)
            pieces.append((bins, item, done, take))
            used = used + -(-(take + reserved) // align) * align
            done, held = done + take, held + 1
            if np.all(done == total):
                break
    bins += held > 0
    flush()
    for j, (pack, item, first, count) in enumerate(pieces[: len(index)]):
        index[j], begin[j], size[j] = (pack, item), first, count
    return len(pieces), bins


def bin_slots(bin_of: IntArray, bins: int, slot: IntArray, cut: IntArray) -> None:
    slot[:] = np.argsort(bin_of, kind="stable")
    cut[:] = np.searchsorted(bin_of[slot], np.arange(bins))
