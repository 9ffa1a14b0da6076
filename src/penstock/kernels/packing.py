# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels of bin packing: lengths in, bins out. `packing_reference` defines them, bin for bin.

Bins are found by their residual (the room that is left). Bins of equal residual wait in a queue, and a bitmap of two
levels says which queues are not empty. So a few instructions find the fullest bin with room for an item. The caller
owns all arguments; working arrays are freed at the end of a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import helper, kernel

_ALL, _ONE, _63 = np.uint64((1 << 64) - 1), np.uint64(1), np.int64(63)
_AHEAD = 8
"""Runs of lengths that are asked for before they are read, so that memory answers several at a time."""


@helper
def _ask(length: Any, start: Any, size: Any, j: int) -> None:
    """Prefetch the start of run `j`, if it exists."""
    if j < len(start):
        each = length.itemsize
        first = np.int64(length.ctypes.data) + each * start[j]
        for line in range(first & -64, first + min(each * size[j], 512), 64):
            prefetch(line)


@kernel
def gather_runs(length: Any, start: Any, size: Any, out: Any) -> None:
    """See `packing_reference.gather_runs`."""
    m = 0
    for j in range(len(start)):
        _ask(length, start, size, j + _AHEAD)
        for i in range(start[j], start[j] + size[j]):
            out[m] = np.int64(length[i])
            m += 1


@kernel
def histogram(length: Any, start: Any, size: Any, out: Any) -> Any:
    """See `packing_reference.histogram`."""
    for j in range(len(start)):
        _ask(length, start, size, j + _AHEAD)
        for i in range(start[j], start[j] + size[j]):
            value = np.int64(length[i])
            if not 0 <= value < len(out):
                return False
            out[value] += 1
    return True


@helper
def _queues(capacity: int) -> Any:
    """Empty queues of nodes for residuals `0 : capacity + 1`: bitmap, bitmap of its words, first and last node."""
    words = np.zeros((capacity >> 6) + 1, np.uint64)
    tops = np.zeros((len(words) >> 6) + 1, np.uint64)
    return words, tops, np.full(capacity + 1, -1, np.int32), np.full(capacity + 1, -1, np.int32)


@helper
def _splice(words: Any, tops: Any, head: Any, tail: Any, following: Any, residual: Any, first: Any, last: Any) -> None:
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
def _cut(words: Any, tops: Any, head: Any, residual: Any, node: Any) -> None:
    """Let a queue begin at `node`; it is empty if that is -1."""
    head[residual] = node
    if node < 0:
        word = residual >> 6
        words[word] &= ~(_ONE << np.uint64(residual & _63))
        if words[word] == 0:
            tops[word >> 6] &= ~(_ONE << np.uint64(word & _63))


@helper
def _pop(words: Any, tops: Any, head: Any, following: Any, residual: Any) -> Any:
    node = head[residual]
    _cut(words, tops, head, residual, following[node])
    return node


@helper
def _least(words: Any, tops: Any, length: Any) -> Any:
    """The smallest residual of at least `length` whose queue holds a node, or -1."""
    word = length >> 6
    bits = words[word] & (_ALL << np.uint64(length & _63))
    if bits != 0:
        return (word << 6) + np.int64(trailing_zeros(bits))
    top = (word + 1) >> 6
    if top >= len(tops):
        return -1
    bits = tops[top] & (_ALL << np.uint64((word + 1) & _63))
    while bits == 0:
        top += 1
        if top == len(tops):
            return -1
        bits = tops[top]
    word = (top << 6) + np.int64(trailing_zeros(bits))
    return (word << 6) + np.int64(trailing_zeros(words[word]))


@kernel
def count_decreasing(counts: Any, capacity: int, most: int) -> Any:
    """See `packing_reference.count_decreasing`.

    A node is a row of bins with equal residual and equal number of sequences, so that a run of equal lengths moves
    whole nodes at once.
    """
    words, tops, head, tail = _queues(capacity)
    room = np.int64(counts.sum()) + 4
    following, bins, held = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    free = np.full(1, -1, np.int32)  # the nodes to use again, linked; `fresh` is the first one never used
    fresh, total, highest = 0, 0, 0
    for size in range(capacity, -1, -1):
        left = np.int64(counts[size])
        while left > 0:
            residual = _least(words, tops, size)
            if residual < 0:
                each = most if size == 0 else min(capacity // size, most)
                waiting, before, residual = (left + each - 1) // each, 0, capacity
                total += waiting
            else:
                node = head[residual]
                before, waiting = np.int64(held[node]), np.int64(bins[node])
                each = most - before if size == 0 else min(residual // size, most - before)
                whole = min(left // each, waiting)
                rest = 1 if whole < waiting and left > whole * each else 0
                if whole + rest == waiting:
                    following[_pop(words, tops, head, following, residual)] = free[0]
                    free[0] = node
                else:
                    bins[node] -= whole + rest
            whole = min(left // each, waiting)
            rest = left - whole * each if whole < waiting else 0
            for part in range(2):
                many, more = (whole, each) if part == 0 else (min(rest, 1), rest)
                highest = max(highest, before + more if many > 0 else 0)
                if many == 0 or before + more == most:
                    continue
                to = residual - more * size
                if head[to] >= 0 and held[tail[to]] == before + more:
                    bins[tail[to]] += many
                    continue
                node = np.int64(free[0])
                if node >= 0:
                    free[0] = following[node]
                else:
                    node, fresh = fresh, fresh + 1
                bins[node], held[node] = many, before + more
                _splice(words, tops, head, tail, following, to, node, node)
            left -= whole * each + rest
    return total, highest


@kernel
def sort_decreasing(length: Any, capacity: int, order: Any, run: Any) -> Any:
    """See `packing_reference.sort_decreasing`."""
    place = np.zeros(capacity + 2, np.int64)
    for i in range(len(length)):
        place[length[i]] += 1
    runs, begin = 0, 0
    for size in range(capacity, -1, -1):
        count = place[size]
        place[size] = begin
        if count > 0:
            run[runs] = begin
            runs += 1
        begin += count
    for i in range(len(length)):
        order[place[length[i]]] = i
        place[length[i]] += 1
    return runs


@kernel
def best_fit(length: Any, capacity: int, most: int, out: Any) -> Any:
    """See `packing_reference.best_fit`."""
    following, held = np.empty(len(length), np.int32), np.zeros(len(length), np.int32)
    return _best_fit(length, capacity, most, following, held, out)


@helper
def _best_fit(  # noqa: PLR0912 - one loop, no calls to pay for
    length: Any, capacity: int, most: int, following: Any, held: Any, out: Any
) -> Any:
    """Best fit; `held` is zeros and becomes the items of each bin, `following` is room.

    Right behind an item, one of equal length goes into the same bin if it fits: no other bin can be fuller and
    still have room. So a run of equal lengths fills one bin of a queue after the other, and these move on together.
    """
    words, tops, head, tail = _queues(capacity)
    bins, i, end = 0, 0, 0
    while i < len(length):
        size = np.int64(length[i])
        while end <= i or (end < len(length) and length[end] == size):
            end += 1
        residual = _least(words, tops, size)
        fresh = residual < 0
        node = np.int64(bins)
        if fresh:
            residual = np.int64(capacity)
        else:
            node = np.int64(head[residual])
        each = residual // size if size > 0 else len(length) + 1
        first, last = np.int64(-1), np.int64(-1)
        while node >= 0 and end - i >= each and held[node] + each < most:
            out[i : i + each] = node
            i += each
            held[node] += each
            if first < 0:
                first = node
            elif fresh:
                following[last] = node
            last = node
            bins += 1 if fresh else 0
            node = np.int64(bins) if fresh else np.int64(following[node])
        if first >= 0:
            if not fresh:
                _cut(words, tops, head, residual, node)
            _splice(words, tops, head, tail, following, residual - each * size, first, last)
            continue
        stays = size == 0 and not fresh  # an empty item does not move its bin to another queue
        if fresh:
            bins += 1
        elif not stays:
            _pop(words, tops, head, following, residual)
        take = min(end - i, each, np.int64(most) - held[node])
        out[i : i + take] = node
        i += take
        held[node] += take
        if stays and held[node] == most:
            _pop(words, tops, head, following, residual)
        elif held[node] < most and not stays:
            _splice(words, tops, head, tail, following, residual - take * size, node, node)
    return bins


@kernel
def plan_decreasing(length: Any, capacity: int, most: int, room: Any, cut: Any, slot: Any, local: Any, run: Any) -> Any:
    """See `packing_reference.plan_decreasing`."""
    ranked, following, held, bin_of = room[0], room[1], room[2], room[3]
    items = len(length)
    runs = sort_decreasing(length, capacity, local, run)
    for q in range(runs):
        begin, end = np.int64(run[q]), np.int64(run[q + 1]) if q + 1 < runs else items
        ranked[begin:end] = length[local[begin]]
    held[:] = 0
    bins = _best_fit(ranked, capacity, most, following, held, bin_of)
    begin = 0
    for b in range(bins):
        cut[b] = following[b] = begin
        begin += held[b]
    for i in range(items):
        slot[following[bin_of[i]]] = i
        following[bin_of[i]] += 1
    return bins, runs


@kernel
def first_fit(length: Any, capacity: int, most: int, out: Any) -> Any:
    """See `packing_reference.first_fit`: a tree of the most room among the bins below each knot."""
    leaves = 1
    while leaves < len(length):
        leaves *= 2
    room = np.full(2 * leaves, capacity, np.int64)
    held = np.zeros(leaves, np.int64)
    bins = 0
    for i in range(len(length)):
        knot = 1
        while knot < leaves:
            knot = 2 * knot if room[2 * knot] >= length[i] else 2 * knot + 1
        held[knot - leaves] += 1
        out[i] = knot - leaves
        bins = max(bins, knot - leaves + 1)
        room[knot] = -1 if held[knot - leaves] == most else room[knot] - length[i]
        while knot > 1:
            knot >>= 1
            best = max(room[2 * knot], room[2 * knot + 1])
            if room[knot] == best:
                break
            room[knot] = best
    return bins


@helper
def aligned(rows: Any, align: int) -> Any:
    """Up to a multiple; the division is most of the time where there is nothing to align."""
    return rows if align == 1 else (rows + align - 1) // align * align


@helper
def _emit(bins: Any, begin: int, end: int, emitted: Any, done: int) -> Any:
    for j in range(begin, end):
        emitted[bins[j]] = done
        done += 1
    return done


@helper
def _choose(
    used: Any, held: Any, open_: int, length: Any, i: int, capacity: Any, scale: Any, most: int, best: bool
) -> Any:
    """The bin of `0 : open_` for item `i`, or -1: the first that has room, or the one with the least of it."""
    chosen, least = -1, np.inf
    for j in range(open_):
        if held[j] == most:
            continue
        fits, space = True, 0.0
        for a in range(len(capacity)):
            fits &= used[j, a] + length[i, a] <= capacity[a]
            space += (capacity[a] - used[j, a]) * scale[a]
        if fits and space < least:
            chosen, least = j, space
            if not best:
                break
    return chosen


@kernel
def open_fit(
    length: Any,
    capacity: Any,
    scale: Any,
    least: Any,
    align: int,
    most: int,
    keep: int,
    best: bool,
    block: bool,
    out: Any,
) -> Any:
    """See `packing_reference.open_fit`; the open bins are in order of age."""
    items, axes = length.shape
    used, held, bins = np.empty((keep + 1, axes), np.int64), np.empty(keep + 1, np.int64), np.empty(keep + 1, np.int64)
    emitted = np.empty(items, np.int64)
    opened, open_, done = 0, 0, 0
    for i in range(items):
        if open_ > keep:  # at most one: each item opens one bin
            done = _emit(bins, 0, 1, emitted, done)
            open_ = _remove(used, held, bins, 0, open_)
        j = _choose(used, held, open_, length, i, capacity, scale, most, best)
        if j < 0:
            if block and open_ == keep:
                done = _emit(bins, 0, open_, emitted, done)
                open_ = 0
            j = open_
            for a in range(axes):
                used[j, a] = 0
            held[j], bins[j] = 0, opened
            opened += 1
            open_ += 1
        out[i] = bins[j]
        held[j] += 1
        full, closed = True, held[j] == most
        for a in range(axes):
            used[j, a] += aligned(length[i, a], align)
            full &= used[j, a] >= capacity[a]
            closed |= capacity[a] - used[j, a] < least[a]
        if (full or closed) and not block:
            done = _emit(bins, j, j + 1, emitted, done)
            open_ = _remove(used, held, bins, j, open_)
    _emit(bins, 0, open_, emitted, done)
    for i in range(items):
        out[i] = emitted[out[i]]
    return opened


@helper
def _remove(used: Any, held: Any, bins: Any, gone: int, open_: int) -> Any:
    for j in range(gone, open_ - 1):
        for a in range(used.shape[1]):
            used[j, a] = used[j + 1, a]
        held[j], bins[j] = held[j + 1], bins[j + 1]
    return open_ - 1


@kernel
def bin_slots(bin_of: Any, bins: int, slot: Any, cut: Any) -> None:
    """See `packing_reference.bin_slots`."""
    place = np.zeros(bins + 1, np.int64)
    for i in range(len(bin_of)):
        place[bin_of[i] + 1] += 1
    for b in range(bins):
        place[b + 1] += place[b]
        cut[b] = place[b]
    for i in range(len(bin_of)):
        slot[place[bin_of[i]]] = i
        place[bin_of[i]] += 1
