"""Bin packing on one axis: lengths in, bins out.

Bins of equal residual (the room that is left) wait in a queue (`residuals`). So a few instructions find the fullest bin
with room for an item, and packing costs the same for each item, however many bins there are. Runs of equal lengths move
whole groups of bins at once. `first_fit` has a tree with the most room among the bins below each node instead. The
functions check their arguments and make the working arrays; the compiled loops below them make none. Source: best fit
decreasing (Johnson, "Near-optimal bin packing algorithms", 1973); at most 11/9 of the fewest bins, and one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Int32Array, IntArray, IntScalar, UInt64Array
from penstock.kernels.jit import helper, kernel
from penstock.kernels.residuals import cut, empty_queues, least, pop, splice

Narrow: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Numbers of items of a window, in the narrowest integers that hold them."""


def count_decreasing(counts: Int32Array, capacity: int, most: int) -> tuple[int, int]:
    """Count the bins that `best_fit` needs for `counts[v]` items of each length `v`, by decreasing length."""
    _require_items(capacity, most)
    if len(counts) <= capacity or counts.min() < 0:
        raise ValueError(f"expected counts of at least 0 for lengths up to {capacity}, got {len(counts)} counts")
    nodes = np.empty((3, int(counts.sum()) + 4), np.int32)
    bins, items = _count_decreasing(counts, capacity, most, nodes, *empty_queues(capacity))
    return int(bins), int(items)


def sort_decreasing(length: IntArray, capacity: int, order: IntArray, run: IntArray) -> int:
    """Sort items by decreasing length; equal ones stay in order."""
    _require_room(len(length), order, run)
    runs = _sort(length, capacity, np.zeros(capacity + 2, np.int64), order, run)
    if runs < 0:
        raise _overlong(length, capacity)
    return runs


def best_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    """Put each item into the fullest bin that has room and fewer than `most` items, else into a new bin.

    Of equally full bins, an item goes into the one that has been so for longest.
    """
    _require_lengths(length, capacity, most, out)
    following, items_in = np.empty(len(length), np.int32), np.zeros(len(length), np.int32)
    return _best_fit(length, capacity, most, following, items_in, *empty_queues(capacity), out)


def first_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    """Put each item into the oldest bin that has room and fewer than `most` items, else into a new one."""
    _require_lengths(length, capacity, most, out)
    leaves = 1 << max(len(length) - 1, 0).bit_length()
    room = np.full(2 * leaves, capacity, np.int64)
    return _first_fit(length, most, room, np.zeros(leaves, np.int64), out)


def plan_decreasing(
    length: IntArray, capacity: int, most: int, room: Int32Array, cut: Narrow, slot: Narrow, local: Narrow, run: Narrow
) -> tuple[int, int]:
    """Sort items by decreasing length, put them into bins by best fit, and list the items of each bin."""
    _require_items(capacity, most)
    _require_room(len(length), *room, cut, slot, local, run)
    if len(length) > 1 << 8 * local.itemsize or len(room) != 4:
        raise ValueError(f"expected four rows of memory and integers for {len(length)} items, got {local.dtype}")
    place = np.zeros(capacity + 2, np.int64)
    room[2] = 0
    bins, runs = _plan_decreasing(length, capacity, most, place, *empty_queues(capacity), room, cut, slot, local, run)
    if runs < 0:
        raise _overlong(length, capacity)
    return bins, runs


def bin_slots(bin_of: IntArray, bins: int, slot: IntArray, cut: IntArray) -> None:
    """Write the items of bin 0, then of bin 1, and so on, in order, to `slot`."""
    _require_room(len(bin_of), slot)
    _require_room(bins, cut)
    wrong = _bin_slots(bin_of, bins, np.zeros(bins + 1, np.int64), slot, cut)
    if wrong >= 0:
        raise IndexError(f"expected bins within 0:{bins}, got {bin_of[wrong]} for item {wrong}")


def _require_items(capacity: int, most: int) -> None:
    if capacity < 0 or most < 1:
        raise ValueError(f"expected bins for at least one item, got capacity {capacity} and {most} items")


def _require_room(n: int, *arrays: IntArray | Int32Array | Narrow) -> None:
    if min(map(len, arrays)) < n:
        raise ValueError(f"expected room for {n} numbers, got {[len(array) for array in arrays]}")


def _require_lengths(length: IntArray, capacity: int, most: int, out: IntArray) -> None:
    _require_items(capacity, most)
    _require_room(len(length), out)
    if len(length) and not 0 <= length.min() <= length.max() <= capacity:
        raise _overlong(length, capacity)


def _overlong(length: IntArray, capacity: int) -> ValueError:
    return ValueError(f"expected lengths within 0:{capacity + 1}, got {length.min()} to {length.max()}")


@kernel("i4[1C] i8 i8 i4[2C] u8[1C] u8[1C] i4[2C]")
def _count_decreasing(
    counts: Int32Array,
    capacity: int,
    most: int,
    nodes: Int32Array,
    words: UInt64Array,
    tops: UInt64Array,
    ends: Int32Array,
) -> tuple[IntScalar, IntScalar]:
    """A node stands for `bins` bins of equal residual and number of items."""
    following = nodes[0]
    bins = nodes[1]
    items_in = nodes[2]
    head, tail = ends[0], ends[1]
    free, fresh = np.int64(-1), 0  # the nodes to use again, linked; and the first one never used
    total = 0
    highest = 0
    for size in range(capacity, -1, -1):
        left = np.int64(counts[size])
        while left > 0:
            residual = least(words, tops, size)
            if residual < 0:
                each = most if size == 0 else _smaller(capacity // size, most)
                waiting = (left + each - 1) // each
                before = 0
                residual = capacity
                total += waiting
            else:
                node = head[residual]
                before, waiting = np.int64(items_in[node]), np.int64(bins[node])
                each = most - before if size == 0 else _smaller(residual // size, most - before)
                whole = _smaller(left // each, waiting)
                rest = 1 if whole < waiting and left > whole * each else 0
                if whole + rest == waiting:
                    following[pop(words, tops, head, following, residual)] = free
                    free = np.int64(node)
                else:
                    bins[node] -= whole + rest
            whole = _smaller(left // each, waiting)
            rest = left - whole * each if whole < waiting else 0
            for part in range(2):
                many, more = (whole, each) if part == 0 else (_smaller(rest, 1), rest)
                if many > 0 and before + more > highest:
                    highest = before + more
                if many == 0 or before + more == most:
                    continue
                to = residual - more * size
                if head[to] >= 0 and items_in[tail[to]] == before + more:
                    bins[tail[to]] += many
                    continue
                node = free
                if node >= 0:
                    free = np.int64(following[node])
                else:
                    node, fresh = fresh, fresh + 1
                bins[node], items_in[node] = many, before + more
                splice(words, tops, head, tail, following, to, node, node)
            left -= whole * each + rest
    return total, highest


@helper
def _smaller(a: IntScalar, b: IntScalar) -> IntScalar:
    """The smaller number. It compiles in half the time of `min`."""
    return a if a < b else b


@helper
def _sort_into(
    length: IntArray, capacity: int, place: IntArray, order: IntArray | Narrow, run: IntArray | Narrow
) -> int:
    """Sort as `sort_decreasing` does. `place` is `capacity + 2` zeros. Returns -1 if a length is not in
    `0 : capacity + 1`."""
    for i in range(len(length)):
        if not 0 <= length[i] <= capacity:
            return -1
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


@kernel("i8[1C] i8 i8[1C] i8[1C] i8[1C]")
def _sort(length: IntArray, capacity: int, place: IntArray, order: IntArray, run: IntArray) -> int:
    return _sort_into(length, capacity, place, order, run)


@kernel("i8[1C] i8 i8 i4[1C] i4[1C] u8[1C] u8[1C] i4[2C] i8[1C]")
def _best_fit(
    length: IntArray,
    capacity: int,
    most: int,
    following: Int32Array,
    items_in: Int32Array,
    words: UInt64Array,
    tops: UInt64Array,
    ends: Int32Array,
    out: IntArray,
) -> int:
    return _best_fit_in(length, capacity, most, following, items_in, words, tops, ends, out)


@helper
def _best_fit_in(  # noqa: PLR0912 - one loop, no calls to pay for
    length: IntArray | Int32Array,
    capacity: int,
    most: int,
    following: Int32Array,
    items_in: Int32Array,
    words: UInt64Array,
    tops: UInt64Array,
    ends: Int32Array,
    out: IntArray | Int32Array,
) -> int:
    """Best fit; `items_in` is zeros and becomes the items of each bin, `following` is room.

    Right behind an item, one of equal length goes into the same bin if it fits: no other bin can be fuller and
    still have room. So a run of equal lengths fills one bin of a queue after the other, and these move on together.
    """
    head, tail = ends[0], ends[1]
    bins = 0
    i = 0
    end = 0
    while i < len(length):
        size = np.int64(length[i])
        while end <= i or (end < len(length) and length[end] == size):
            end += 1
        residual = least(words, tops, size)
        fresh = residual < 0
        node = np.int64(bins)
        if fresh:
            residual = np.int64(capacity)
        else:
            node = np.int64(head[residual])
        each = residual // size if size > 0 else len(length) + 1
        first, last = np.int64(-1), np.int64(-1)
        while node >= 0 and end - i >= each and items_in[node] + each < most:
            for _ in range(each):
                out[i] = node
                i += 1
            items_in[node] += each
            if first < 0:
                first = node
            elif fresh:
                following[last] = node
            last = node
            bins += 1 if fresh else 0
            node = np.int64(bins) if fresh else np.int64(following[node])
        if first >= 0:
            if not fresh:
                cut(words, tops, head, residual, node)
            splice(words, tops, head, tail, following, residual - each * size, first, last)
            continue
        stays = size == 0 and not fresh  # an empty item does not move its bin to another queue
        if fresh:
            bins += 1
        elif not stays:
            pop(words, tops, head, following, residual)
        take = _smaller(_smaller(end - i, each), most - np.int64(items_in[node]))
        for _ in range(take):
            out[i] = node
            i += 1
        items_in[node] += take
        if stays and items_in[node] == most:
            pop(words, tops, head, following, residual)
        elif items_in[node] < most and not stays:
            splice(words, tops, head, tail, following, residual - take * size, node, node)
    return bins


@kernel(
    "i8[1C] i8 i8 i8[1C] u8[1C] u8[1C] i4[2C] i4[2C] u2[1C] u2[1C] u2[1C] u2[1C]",
    "i8[1C] i8 i8 i8[1C] u8[1C] u8[1C] i4[2C] i4[2C] u4[1C] u4[1C] u4[1C] u4[1C]",
)
def _plan_decreasing(
    length: IntArray,
    capacity: int,
    most: int,
    place: IntArray,
    words: UInt64Array,
    tops: UInt64Array,
    ends: Int32Array,
    room: Int32Array,
    cut: Narrow,
    slot: Narrow,
    local: Narrow,
    run: Narrow,
) -> tuple[int, int]:
    """`place`, `words`, `tops`, row 2 of `room` are zeros, and `ends` is -1."""
    ranked = room[0]
    following = room[1]
    items_in = room[2]
    bin_of = room[3]
    items = len(length)
    runs = _sort_into(length, capacity, place, local, run)
    if runs < 0:
        return 0, runs
    for i in range(items):
        ranked[i] = length[local[i]]
    bins = _best_fit_in(ranked, capacity, most, following, items_in, words, tops, ends, bin_of)
    begin = 0
    for b in range(bins):
        cut[b] = following[b] = begin
        begin += items_in[b]
    for i in range(items):
        slot[following[bin_of[i]]] = i
        following[bin_of[i]] += 1
    return bins, runs


@kernel("i8[1C] i8 i8[1C] i8[1C] i8[1C]")
def _first_fit(length: IntArray, most: int, room: IntArray, items_in: IntArray, out: IntArray) -> int:
    """`room[1]` is the root of a tree, and `room[leaves:]` are the bins, all with the whole capacity."""
    leaves = len(items_in)
    bins = 0
    for i in range(len(length)):
        knot = 1
        while knot < leaves:
            knot = 2 * knot if room[2 * knot] >= length[i] else 2 * knot + 1
        place = knot - leaves
        items_in[place] += 1
        out[i] = place
        if place >= bins:
            bins = place + 1
        room[knot] = -1 if items_in[place] == most else room[knot] - length[i]
        while knot > 1:
            knot >>= 1
            one, other = room[2 * knot], room[2 * knot + 1]
            best = one if one > other else other
            if room[knot] == best:
                break
            room[knot] = best
    return bins


@kernel("i8[1C] i8 i8[1C] i8[1C] i8[1C]")
def _bin_slots(bin_of: IntArray, bins: int, place: IntArray, slot: IntArray, cut: IntArray) -> int:
    """`place` is `bins + 1` zeros."""
    for i in range(len(bin_of)):
        if not 0 <= bin_of[i] < bins:
            return i
        place[bin_of[i] + 1] += 1
    for b in range(bins):
        place[b + 1] += place[b]
        cut[b] = place[b]
    for i in range(len(bin_of)):
        slot[place[bin_of[i]]] = i
        place[bin_of[i]] += 1
    return -1
