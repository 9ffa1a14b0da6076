"""What each kernel of packing computes, in plain Python. The compiled ones must equal these, bin for bin."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
OF_EPOCH, OF_WINDOW, OF_RUN = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB


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
    """Each item into the fullest bin with room for it and fewer than `most` items; of equally full ones the one that
    has been so for longest; else into a new bin. `out[i]` is the bin of item `i`; gives the number of bins.

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


def count_decreasing(length: Int, capacity: int, most: int) -> tuple[int, int]:
    """How many bins `best_fit` of the items by decreasing length needs, and the most items in one.

    >>> count_decreasing(np.array([1, 2, 2, 3]), 4, 9)
    (2, 2)
    """
    bins = np.zeros(len(length), np.int64)
    count = best_fit(-np.sort(-length), capacity, most, bins)
    return count, int(np.bincount(bins, minlength=1).max(initial=0))


def first_fit(length: Int, capacity: int, most: int, out: Int) -> int:
    """Each item into the oldest bin with room for it and fewer than `most` items, else into a new one.

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
    holds at most `most` pieces. `whole`: an item that reaches a limit and exceeds none is not cut, but gets a bin of
    its own behind the one being filled.

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
    for j, (pack, item, first, count) in enumerate(pieces if len(index) else []):
        index[j], begin[j], size[j] = (pack, item), first, count
    return len(pieces), bins


def bin_slots(bin_of: Int, bins: int, slot: Int, cut: Int) -> None:
    """The items of bin 0, then those of bin 1, and so on, in order, in `slot`; `cut[b]` is where bin `b` begins.

    >>> slot, cut = np.zeros(3, np.int64), np.zeros(2, np.int64)
    >>> bin_slots(np.array([1, 0, 1]), 2, slot, cut); slot.tolist(), cut.tolist()
    ([1, 0, 2], [0, 1])
    """
    slot[:] = np.argsort(bin_of, kind="stable")
    cut[:] = np.searchsorted(bin_of[slot], np.arange(bins))


def pack_slots(pack: Int, window: Int, cut: Any, pack_first: Int, slot_first: Int, out: Int) -> int:
    """First slot and number of slots of each pack, `out` `[2, n]`; gives their sum. `window[i]` is that of `pack[i]`;
    window `w` owns packs `pack_first[w]` and slots `slot_first[w]` up to those of the next. Cuts count from the
    window's first slot.

    >>> out = np.zeros((2, 1), np.int64)
    >>> pack_slots(np.array([1]), np.array([0]), np.array([0, 2]), np.array([0, 2]), np.array([0, 3]), out)
    1
    >>> out.ravel().tolist()
    [2, 1]
    """
    last = np.append(cut, 0)[pack + 1].astype(np.int64)
    total = slot_first[window + 1] - slot_first[window]
    end = np.where(pack + 1 < pack_first[window + 1], last, total)
    out[0] = cut[pack] + slot_first[window]
    out[1] = end - cut[pack]
    return int(out[1].sum())


def pack_ranks(
    epoch: Int, window: Int, number: Int, extent: Int, slot: Any, slot_first: Int, run: Any, run_first: Int, out: Int
) -> None:
    """Of each slot of each pack, `out` `[5, m]`: the pack, the begin of its run of equal items, its place in the run,
    the length of the run, and the number of the permutation that exchanges them in this epoch.

    `extent` `[2, n]` is what `pack_slots` gives; `number` `[n]` names the window for good. Windows without runs
    exchange nothing: each rank is a run of its own.
    """
    pack = np.repeat(np.arange(len(window)), extent[1])
    inside = np.arange(len(pack)) - np.repeat(np.cumsum(extent[1]) - extent[1], extent[1])
    for j, (i, at) in enumerate(zip(pack.tolist(), (extent[0][pack] + inside).tolist(), strict=True)):
        w, rank = int(window[i]), int(slot[at])
        runs = run[run_first[w] : run_first[w + 1]].astype(np.int64)
        which = max(int(np.searchsorted(runs, rank, side="right")) - 1, 0)
        ends = [*runs.tolist()[1:], int(slot_first[w + 1] - slot_first[w])]
        begin, end = (int(runs[which]), ends[which]) if len(runs) else (rank, rank + 1)
        key = (int(epoch[i]) * OF_EPOCH + int(number[i]) * OF_WINDOW + which * OF_RUN) & (1 << 64) - 1
        out[:, j] = i, int(slot_first[w]) + begin, rank - begin, end - begin, key >> 2


def lay(pack: Int, begin: Int, length: Int, align: int, head: int, out: Int) -> None:
    """The first row of each piece within its pack, per axis: each begins at the next multiple of `align` behind the
    one before; parts that continue an item have `head` rows in front.

    >>> out, column = np.zeros((2, 1), np.int64), np.array([[3], [1]])
    >>> lay(np.array([0, 0]), column * 0, column, 4, 0, out); out.ravel().tolist()
    [0, 4]
    """
    at = np.zeros(length.shape[1], np.int64)
    for i in range(len(pack)):
        if i and pack[i] != pack[i - 1]:
            at = np.zeros_like(at)
        out[i] = at + np.where((begin[i] > 0) & (length[i] > 0), head, 0)
        at = -(-(out[i] + length[i]) // align) * align
