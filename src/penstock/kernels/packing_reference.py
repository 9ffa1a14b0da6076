"""Reference implementation of the kernels of packing. The compiled kernels must equal it, bin for bin."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]


def gather_runs(length: Any, start: Int, size: Int, out: Int) -> None:
    """The lengths in the runs `start[j] : start[j] + size[j]`, one run after the other.

    >>> out = np.zeros(3, np.int64)
    >>> gather_runs(np.array([1, 9, 3, 1]), np.array([2, 0]), np.array([2, 1]), out), out.tolist()
    (None, [3, 1, 1])
    """
    runs = [length[a : a + n].astype(np.int64) for a, n in zip(start.tolist(), size.tolist(), strict=True)]
    out[:] = np.concatenate([*runs, np.empty(0, np.int64)])


def histogram(length: Any, start: Int, size: Int, out: Any) -> bool:
    """Add to `out[v]` how many of the lengths in the runs `start[j] : start[j] + size[j]` are `v`; False, and nothing
    that counts in `out`, where some are outside it.

    >>> out = np.zeros(4, np.int32)
    >>> histogram(np.array([1, 9, 3, 1]), np.array([2, 0]), np.array([2, 1]), out), out.tolist()
    (True, [0, 2, 0, 1])
    """
    value = np.empty(int(size.sum()), np.int64)
    gather_runs(length, start, size, value)
    good = bool(((value >= 0) & (value < len(out))).all())
    out += np.bincount(value, minlength=len(out)).astype(out.dtype) if good else 0
    return good


def sort_decreasing(length: Int, _capacity: int, order: Int, run: Int) -> int:
    """Items by decreasing length, in `order`; equal ones stay in order. `run[:r]` is where each run of equal ones
    begins; gives `r`. The capacity is the greatest length there may be.

    >>> order, run = np.zeros((2, 3), np.int64)
    >>> sort_decreasing(np.array([1, 2, 1]), 2, order, run), order.tolist(), run[:2].tolist()
    (2, [1, 0, 2], [0, 1])
    """
    order[:] = np.argsort(-length, kind="stable")
    starts = np.flatnonzero(np.diff(length[order], prepend=-1))
    run[: len(starts)] = starts
    return len(starts)


def best_fit(length: Int, capacity: int, most: int, out: Int) -> int:
    """Put each item into the fullest bin that has room and fewer than `most` items; of equally full bins, the one that
    has been so for longest; else into a new bin. `out[i]` is the bin of item `i`; returns the number of bins.

    >>> out = np.zeros(4, np.int64)
    >>> best_fit(np.array([3, 2, 2, 1]), 4, 9, out), out.tolist()
    (2, [0, 1, 1, 0])
    """
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
    """Count the bins that `best_fit` needs for `counts[v]` items of each length `v`, by decreasing length; also return
    the most items in one bin.

    >>> count_decreasing(np.array([0, 1, 2, 1, 0]), 4, 9)
    (2, 2)
    """
    length = np.repeat(np.arange(len(counts)), counts)[::-1]
    bins = np.zeros(len(length), np.int64)
    count = best_fit(length, capacity, most, bins)
    return count, int(np.bincount(bins, minlength=1).max(initial=0))


def plan_decreasing(
    length: Int, capacity: int, most: int, _room: Any, cut: Any, slot: Any, local: Any, run: Any
) -> tuple[int, int]:
    """`sort_decreasing` into `local` and `run`, `best_fit` of what comes of it, and `bin_slots` of that into `slot` and
    `cut`; gives bins and runs. `_room`, int32 `[4, m]`, is room to work in, and all others have room for `m`.

    >>> cut, slot, local, run = np.zeros((4, 4), np.int64)
    >>> plan_decreasing(np.array([1, 3, 2, 2]), 4, 9, np.zeros((4, 4), np.int32), cut, slot, local, run)
    (2, 3)
    >>> local.tolist(), slot.tolist(), cut[:2].tolist()
    ([1, 2, 3, 0], [0, 3, 1, 2], [0, 2])
    """
    order, begin, bin_of = np.zeros((3, len(length)), np.int64)
    runs = sort_decreasing(length, capacity, order, begin)
    bins = best_fit(length[order], capacity, most, bin_of)
    slots, cuts = np.zeros(len(length), np.int64), np.zeros(bins, np.int64)
    bin_slots(bin_of, bins, slots, cuts)
    local[:], slot[:], run[:runs], cut[:bins] = order, slots, begin[:runs], cuts
    return bins, runs


def first_fit(length: Int, capacity: int, most: int, out: Int) -> int:
    """Put each item into the oldest bin that has room and fewer than `most` items, else into a new one.

    >>> out = np.zeros(4, np.int64)
    >>> first_fit(np.array([3, 2, 1, 1]), 4, 9, out), out.tolist()
    (2, [0, 1, 0, 1])
    """
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
    length: Int,
    capacity: Int,
    scale: npt.NDArray[np.float64],
    least: Int,
    align: int,
    most: int,
    keep: int,
    best: bool,
    block: bool,
    out: Int,
) -> int:
    """First or best fit of `[m, A]` lengths into at most `keep` open bins; `out[i]` numbers bins as they are emitted.

    An item fits where, on each axis, the next multiple of `align` plus its length is within `capacity`. Best is the
    bin with the least room, summed over the axes with weights `scale`; of equal ones, and in first fit, the oldest.
    `block`: when nothing fits and `keep` are open, all are emitted, oldest first. Otherwise, before an item is placed
    while more than `keep` are open the oldest is emitted; and a bin is, at once, when it is full on every axis, holds
    `most` items, or has less than `least` room on some axis. The rest is emitted at the end, oldest first.

    >>> out, one = np.zeros(3, np.int64), np.ones(1, np.int64)
    >>> open_fit(np.array([[3], [4], [1]]), 4 * one, one / 4, 0 * one, 1, 9, 2, True, False, out), out.tolist()
    (2, [1, 0, 1])
    """
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
    length: Int, capacity: Int, align: int, most: int, head: int, whole: bool, index: Int, begin: Int, size: Int
) -> tuple[int, int]:
    """One item behind the other, cut where a bin is full on one axis; gives the numbers of pieces and of bins.

    Piece `j` is `size[j]` rows of item `index[j, 1]` from `begin[j]` on, in bin `index[j, 0]`; where these have no
    rows, pieces are only counted. A part that continues an item begins with `head` rows that are left free. A bin
    holds at most `most` pieces. `whole`: an item that reaches a limit and exceeds none is not cut, but gets
    its own bin behind the one being filled.

    >>> index, begin, size = np.zeros((3, 2), np.int64), np.zeros((3, 1), np.int64), np.zeros((3, 1), np.int64)
    >>> concat(np.array([[3], [3]]), np.array([4]), 1, 9, 0, False, index, begin, size)
    (3, 2)
    >>> index.tolist(), begin.ravel().tolist(), size.ravel().tolist()
    ([[0, 0], [0, 1], [1, 1]], [0, 0, 1], [3, 1, 2])
    """
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


def bin_slots(bin_of: Int, bins: int, slot: Int, cut: Int) -> None:
    """Write the items of bin 0, then of bin 1, and so on, in order, to `slot`; `cut[b]` is where bin `b` begins.

    >>> slot, cut = np.zeros(3, np.int64), np.zeros(2, np.int64)
    >>> bin_slots(np.array([1, 0, 1]), 2, slot, cut); slot.tolist(), cut.tolist()
    ([1, 0, 2], [0, 1])
    """
    slot[:] = np.argsort(bin_of, kind="stable")
    cut[:] = np.searchsorted(bin_of[slot], np.arange(bins))
