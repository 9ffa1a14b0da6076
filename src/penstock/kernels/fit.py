"""Bin packing on one axis: lengths in, bins out.

Bins are found by their residual (the room that is left). Bins of equal residual wait in a queue, and a bitmap of two
levels says which queues are not empty. So a few instructions find the fullest bin with room for an item, and packing
costs the same for each item, however many bins there are. Runs of equal lengths move whole groups of bins at once.
`first_fit` has a tree with the most room among the bins below each node instead. The caller owns all arguments; working
arrays are freed at the end of a call. Source: best fit decreasing (Johnson, "Near-optimal bin packing algorithms",
1973); at most 11/9 of the fewest bins, and one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Int32Array, IntArray, IntScalar, UInt64Array
from penstock.kernels.intrinsics import lowest_bit
from penstock.kernels.jit import helper, kernel

_ALL = np.uint64((1 << 64) - 1)
_ONE = np.uint64(1)
_63 = np.int64(63)

Narrow: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Numbers of items of a window, in the narrowest integers that hold them."""
Queues: TypeAlias = tuple[UInt64Array, UInt64Array, Int32Array, Int32Array]


def count_decreasing(counts: Int32Array, capacity: int, most: int) -> tuple[int, int]:
    """Count the bins that `best_fit` needs for `counts[v]` items of each length `v`, by decreasing length.

    Args:
        counts: `[capacity + 1]` int32.
        capacity: Rows of a bin.
        most: Items of a bin, at least 1.

    Returns:
        The number of bins, and the most items in one bin.

    Raises:
        ValueError: A count is negative, or there are not `capacity + 1` counts.

    Example:
        >>> count_decreasing(np.array([0, 1, 2, 1, 0], np.int32), 4, 9)
        (2, 2)
    """
    _require_items(capacity, most)
    if len(counts) <= capacity or counts.min() < 0:
        raise ValueError(f"expected counts of at least 0 for lengths up to {capacity}, got {len(counts)} counts")
    bins, items = _count_decreasing(counts, capacity, most)
    return int(bins), int(items)


def sort_decreasing(length: IntArray, capacity: int, order: IntArray, run: IntArray) -> int:
    """Sort items by decreasing length; equal ones stay in order.

    Args:
        length: `[m]` int64, each in `0 : capacity + 1`.
        capacity: The greatest length.
        order: `[m]` int64, receives the items.
        run: `[m]` int64, receives where each run of equal lengths begins.

    Returns:
        The number of runs.

    Raises:
        ValueError: A length is over the capacity or negative, or an array is too short.

    Example:
        >>> order, run = np.zeros((2, 3), np.int64)
        >>> sort_decreasing(np.array([1, 2, 1]), 2, order, run), order.tolist(), run[:2].tolist()
        (2, [1, 0, 2], [0, 1])
    """
    _require_room(len(length), order, run)
    runs = sort_into(length, capacity, order, run)
    if runs < 0:
        raise _overlong(length, capacity)
    return runs


def best_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    """Put each item into the fullest bin that has room and fewer than `most` items, else into a new bin.

    Of equally full bins, an item goes into the one that has been so for longest.

    Args:
        length: `[m]` int64, each in `0 : capacity + 1`.
        capacity: Rows of a bin.
        most: Items of a bin, at least 1.
        out: `[m]` int64, receives the bin of each item.

    Returns:
        The number of bins.

    Raises:
        ValueError: A length is over the capacity or negative, or `out` is too short.

    Example:
        >>> out = np.zeros(4, np.int64)
        >>> best_fit(np.array([3, 2, 2, 1]), 4, 9, out), out.tolist()
        (2, [0, 1, 1, 0])
    """
    _require_lengths(length, capacity, most, out)
    return _best_fit(length, capacity, most, out)


def first_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    """Put each item into the oldest bin that has room and fewer than `most` items, else into a new one.

    Args:
        length: `[m]` int64, each in `0 : capacity + 1`.
        capacity: Rows of a bin.
        most: Items of a bin, at least 1.
        out: `[m]` int64, receives the bin of each item.

    Returns:
        The number of bins.

    Raises:
        ValueError: A length is over the capacity or negative, or `out` is too short.

    Example:
        >>> out = np.zeros(4, np.int64)
        >>> first_fit(np.array([3, 2, 1, 1]), 4, 9, out), out.tolist()
        (2, [0, 1, 0, 1])
    """
    _require_lengths(length, capacity, most, out)
    return _first_fit(length, capacity, most, out)


def plan_decreasing(
    length: IntArray, capacity: int, most: int, room: Int32Array, cut: Narrow, slot: Narrow, local: Narrow, run: Narrow
) -> tuple[int, int]:
    """Sort items by decreasing length, put them into bins by best fit, and list the items of each bin.

    Args:
        length: `[m]` int64, each in `0 : capacity + 1`.
        capacity: Rows of a bin.
        most: Items of a bin, at least 1.
        room: `[4, m]` int32, working memory.
        cut: `[m]`, receives where the items of each bin begin in `slot`.
        slot: `[m]`, receives the ranks of the items of bin 0, then of bin 1, and so on.
        local: `[m]`, receives the item of each rank.
        run: `[m]`, receives the rank at which each run of equal lengths begins.

    Returns:
        The number of bins and of runs.

    Raises:
        ValueError: A length is over the capacity or negative, or an array is too short or too narrow.

    Example:
        >>> cut, slot, local, run = np.zeros((4, 4), np.uint16)
        >>> plan_decreasing(np.array([1, 3, 2, 2]), 4, 9, np.zeros((4, 4), np.int32), cut, slot, local, run)
        (2, 3)
        >>> local.tolist(), slot.tolist(), cut[:2].tolist()
        ([1, 2, 3, 0], [0, 3, 1, 2], [0, 2])
    """
    _require_items(capacity, most)
    _require_room(len(length), *room, cut, slot, local, run)
    if len(length) > 1 << 8 * local.itemsize or len(room) != 4:
        raise ValueError(f"expected four rows of memory and integers for {len(length)} items, got {local.dtype}")
    bins, runs = _plan_decreasing(length, capacity, most, room, cut, slot, local, run)
    if runs < 0:
        raise _overlong(length, capacity)
    return bins, runs


def bin_slots(bin_of: IntArray, bins: int, slot: IntArray, cut: IntArray) -> None:
    """Write the items of bin 0, then of bin 1, and so on, in order, to `slot`.

    Args:
        bin_of: `[m]` int64, the bin of each item.
        bins: The number of bins.
        slot: `[m]` int64, receives the items.
        cut: `[bins]` int64, receives where each bin begins in `slot`.

    Raises:
        ValueError: There are not `bins` cuts, or `slot` is too short.
        IndexError: An item is in no bin.

    Example:
        >>> slot, cut = np.zeros(3, np.int64), np.zeros(2, np.int64)
        >>> bin_slots(np.array([1, 0, 1]), 2, slot, cut); slot.tolist(), cut.tolist()
        ([1, 0, 2], [0, 1])
    """
    _require_room(len(bin_of), slot)
    _require_room(bins, cut)
    wrong = _bin_slots(bin_of, bins, slot, cut)
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


@helper
def _queues(capacity: int) -> Queues:
    """Empty queues of nodes for residuals `0 : capacity + 1`: bitmap, bitmap of its words, first and last node."""
    words = np.zeros((capacity >> 6) + 1, np.uint64)
    tops = np.zeros((len(words) >> 6) + 1, np.uint64)
    return words, tops, np.full(capacity + 1, -1, np.int32), np.full(capacity + 1, -1, np.int32)


@helper
def _splice(
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
def _cut(
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
def _pop(
    words: UInt64Array, tops: UInt64Array, head: Int32Array, following: Int32Array, residual: IntScalar
) -> np.int32:
    node: np.int32 = head[residual]
    _cut(words, tops, head, residual, following[node])
    return node


@helper
def _least(words: UInt64Array, tops: UInt64Array, length: IntScalar) -> IntScalar:
    """The smallest residual of at least `length` whose queue holds a node, or -1."""
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


@kernel("i4[1C] i8 i8")
def _count_decreasing(counts: Int32Array, capacity: int, most: int) -> tuple[IntScalar, IntScalar]:
    words, tops, head, tail = _queues(capacity)
    room = np.int64(counts.sum()) + 4
    following = np.empty(room, np.int32)
    bins = np.empty(room, np.int32)
    items_in = np.empty(room, np.int32)
    free = np.full(1, -1, np.int32)  # the nodes to use again, linked; `fresh` is the first one never used
    fresh = 0
    total = 0
    highest = 0
    for size in range(capacity, -1, -1):
        left = np.int64(counts[size])
        while left > 0:
            residual = _least(words, tops, size)
            if residual < 0:
                each = most if size == 0 else min(capacity // size, most)
                waiting = (left + each - 1) // each
                before = 0
                residual = capacity
                total += waiting
            else:
                node = head[residual]
                before, waiting = np.int64(items_in[node]), np.int64(bins[node])
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
                if head[to] >= 0 and items_in[tail[to]] == before + more:
                    bins[tail[to]] += many
                    continue
                node = np.int64(free[0])
                if node >= 0:
                    free[0] = following[node]
                else:
                    node, fresh = fresh, fresh + 1
                bins[node], items_in[node] = many, before + more
                _splice(words, tops, head, tail, following, to, node, node)
            left -= whole * each + rest
    return total, highest


@kernel("i8[1C] i8 i8[1C] i8[1C]", "i8[1C] i8 u2[1C] u2[1C]", "i8[1C] i8 u4[1C] u4[1C]")
def sort_into(length: IntArray, capacity: int, order: IntArray | Narrow, run: IntArray | Narrow) -> int:
    """Sort for `sort_decreasing` and other kernels. Returns -1 if a length is not in `0 : capacity + 1`."""
    place = np.zeros(capacity + 2, np.int64)
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


@kernel("i8[1C] i8 i8 i8[1C]")
def _best_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    following, items_in = np.empty(len(length), np.int32), np.zeros(len(length), np.int32)
    return _best_fit_in(length, capacity, most, following, items_in, out)


@helper
def _best_fit_in(  # noqa: PLR0912 - one loop, no calls to pay for
    length: IntArray | Int32Array,
    capacity: int,
    most: int,
    following: Int32Array,
    items_in: Int32Array,
    out: IntArray | Int32Array,
) -> int:
    """Best fit; `held` is zeros and becomes the items of each bin, `following` is room.

    Right behind an item, one of equal length goes into the same bin if it fits: no other bin can be fuller and
    still have room. So a run of equal lengths fills one bin of a queue after the other, and these move on together.
    """
    words, tops, head, tail = _queues(capacity)
    bins = 0
    i = 0
    end = 0
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
        while node >= 0 and end - i >= each and items_in[node] + each < most:
            out[i : i + each] = node
            i += each
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
                _cut(words, tops, head, residual, node)
            _splice(words, tops, head, tail, following, residual - each * size, first, last)
            continue
        stays = size == 0 and not fresh  # an empty item does not move its bin to another queue
        if fresh:
            bins += 1
        elif not stays:
            _pop(words, tops, head, following, residual)
        take = min(end - i, each, np.int64(most) - items_in[node])
        out[i : i + take] = node
        i += take
        items_in[node] += take
        if stays and items_in[node] == most:
            _pop(words, tops, head, following, residual)
        elif items_in[node] < most and not stays:
            _splice(words, tops, head, tail, following, residual - take * size, node, node)
    return bins


@kernel("i8[1C] i8 i8 i4[2C] u2[1C] u2[1C] u2[1C] u2[1C]", "i8[1C] i8 i8 i4[2C] u4[1C] u4[1C] u4[1C] u4[1C]")
def _plan_decreasing(
    length: IntArray, capacity: int, most: int, room: Int32Array, cut: Narrow, slot: Narrow, local: Narrow, run: Narrow
) -> tuple[int, int]:
    ranked = room[0]
    following = room[1]
    items_in = room[2]
    bin_of = room[3]
    items = len(length)
    runs = sort_into(length, capacity, local, run)
    if runs < 0:
        return 0, runs
    for q in range(runs):
        begin, end = np.int64(run[q]), np.int64(run[q + 1]) if q + 1 < runs else items
        ranked[begin:end] = length[local[begin]]
    items_in[:] = 0
    bins = _best_fit_in(ranked, capacity, most, following, items_in, bin_of)
    begin = 0
    for b in range(bins):
        cut[b] = following[b] = begin
        begin += items_in[b]
    for i in range(items):
        slot[following[bin_of[i]]] = i
        following[bin_of[i]] += 1
    return bins, runs


@kernel("i8[1C] i8 i8 i8[1C]")
def _first_fit(length: IntArray, capacity: int, most: int, out: IntArray) -> int:
    leaves = 1
    while leaves < len(length):
        leaves *= 2
    room = np.full(2 * leaves, capacity, np.int64)
    items_in = np.zeros(leaves, np.int64)
    bins = 0
    for i in range(len(length)):
        knot = 1
        while knot < leaves:
            knot = 2 * knot if room[2 * knot] >= length[i] else 2 * knot + 1
        items_in[knot - leaves] += 1
        out[i] = knot - leaves
        bins = max(bins, knot - leaves + 1)
        room[knot] = -1 if items_in[knot - leaves] == most else room[knot] - length[i]
        while knot > 1:
            knot >>= 1
            best = max(room[2 * knot], room[2 * knot + 1])
            if room[knot] == best:
                break
            room[knot] = best
    return bins


@kernel("i8[1C] i8 i8[1C] i8[1C]")
def _bin_slots(bin_of: IntArray, bins: int, slot: IntArray, cut: IntArray) -> int:
    place = np.zeros(bins + 1, np.int64)
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
