"""Reference implementation of the kernels that read a plan of packs. The compiled kernels must equal it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.permute import permute

Int = npt.NDArray[np.int64]
OF_EPOCH, OF_WINDOW, OF_RUN = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB
RIGHT, LEFT, PARTS, GIVEN = 1, 2, 3, 4
"""What `lay` takes of an item: all (0), what the limit leaves of it, cut on one side; a part; or rows it is told."""


def pack_slots(pack: Int, epoch: Int, pack_first: Int, slot_first: Int, cut: Any, out: Int) -> int:
    """Window, first slot in it and number of slots of each pack, `out` `[3, n]`; returns the sum of these, or -1 for
    unknown packs and negative epochs. Give one epoch for all packs or one for each. Window `w` owns packs from
    `pack_first[w]` and slots from `slot_first[w]` up to the next window's. Cuts count from the window's first slot.

    >>> out = np.zeros((3, 1), np.int64)
    >>> firsts = np.array([0, 2]), np.array([0, 3])
    >>> pack_slots(np.array([1]), np.array([0]), *firsts, np.array([0, 2]), out), out.ravel().tolist()
    (1, [0, 2, 1])
    >>> pack_slots(np.array([2]), np.array([0]), *firsts, np.array([0, 2]), out)
    -1
    """
    if (pack < 0).any() or (pack >= pack_first[-1]).any() or (len(pack) and (epoch < 0).any()):
        return -1
    window = np.searchsorted(pack_first, pack, side="right") - 1
    last = np.append(cut, 0)[pack + 1].astype(np.int64)
    total = slot_first[window + 1] - slot_first[window]
    end = np.where(pack + 1 < pack_first[window + 1], last, total)
    out[0], out[1], out[2] = window, cut[pack], end - cut[pack]
    return int(out[2].sum())


def pack_items(
    extent: Int,
    epoch: Int,
    number: int,
    slot: Any,
    slot_first: Int,
    local: Any,
    run: Any,
    run_first: Int,
    position: Int,
    section: Int,
    block: int,
    seed: Any,
    out: Int,
) -> None:
    """Of each slot of each pack, `out` `[3, m]`: the pack, the item, and the rank in the store.

    `extent` `[3, n]` is what `pack_slots` gives. Window `w` of the store is number `number + w` of the plan. Equal
    items exchange their ranks by a permutation of `seed[0]` that epoch, window and run name; windows without runs
    exchange nothing. Rank `r` is at place `local[r]` of its window, whose first position is `position[number + w]`.
    Sections of positions begin at `section[0, s]`; in their first `section[1, s]` blocks of `block` positions, blocks
    change places by a permutation of `seed[1]`.
    """
    slots = [(i, w, at) for i, (w, begin, n) in enumerate(extent.T.tolist()) for at in range(begin, begin + n)]
    for j, (i, w, at) in enumerate(slots):
        rank = int(slot[slot_first[w] + at])
        runs = run[run_first[w] : run_first[w + 1]].astype(np.int64)
        if len(runs):
            which = int(np.searchsorted(runs, rank, side="right")) - 1
            begin, end = [*runs.tolist(), int(slot_first[w + 1] - slot_first[w])][which : which + 2]
            key = int(epoch[i % len(epoch)]) * OF_EPOCH + (number + w) * OF_WINDOW + which * OF_RUN
            rank = begin + _permuted(rank - begin, end - begin, (key & (1 << 64) - 1) >> 2, seed[0])
        rank += int(slot_first[w])
        out[:, j] = i, item_at(int(position[number + w]) + int(local[rank]), section, block, seed[1]), rank


def item_at(position: int, section: Int, block: int, seed: Any) -> int:
    """The item at a position; see `pack_items`.

    >>> item_at(5, np.array([[0], [0]]), 64, 7)
    5
    """
    s = int(np.searchsorted(section[0], position, side="right")) - 1
    begin, blocks = section[:, s].tolist()
    number, inside = divmod(position - begin, block)
    return position if number >= blocks else begin + _permuted(number, blocks, begin, seed) * block + inside


def _permuted(x: int, size: int, stream: int, seed: Any) -> int:
    return int(permute(np.array([x]), np.array([size]), np.array([stream]), int(seed))[0])


def lay(pack: Int, total: Int, part: Any, limit: Int, policy: int, align: int, head: int, out: Int) -> None:
    """`out` `[3, m, A]`: the first row of each piece in its item, its rows, and its first row in the pack. `total` are
    the rows of the item. In the pack, each begins at the next multiple of `align` behind the one before; parts that
    continue an item have `head` rows in front.

    `policy` says what is taken: `RIGHT` and `LEFT` drop what is over the limit on that side; `PARTS` takes part
    `part[i]` (0 for all, where it is empty) of `limit` rows; `GIVEN` what `out[:2]` says, all where rows are below 0;
    `GIVEN + LEFT` such rows of what `LEFT` keeps. Else all.

    >>> out, total = np.zeros((3, 2, 1), np.int64), np.array([[3], [1]])
    >>> lay(np.array([0, 0]), total, total[:0, 0], np.array([8]), 0, 4, 0, out); out[2].ravel().tolist()
    [0, 4]
    """
    begin, size, at = np.zeros_like(total), total, np.zeros(total.shape[1], np.int64)
    dropped = np.maximum(total - limit, 0)
    if policy & GIVEN:
        begin, size = out[0].copy(), np.where(out[1] < 0, total, out[1])
    elif policy == PARTS:
        begin = np.clip(limit * (np.asarray(part, np.int64)[:, None] if len(part) else 0), 0, total)
        size = np.minimum(total - begin, limit)
    elif policy:
        begin, size = dropped if policy == LEFT else begin, total - dropped
    for i in range(len(pack)):
        if i and pack[i] != pack[i - 1]:
            at = np.zeros_like(at)
        out[2, i] = at + np.where((begin[i] > 0) & (size[i] > 0), head, 0)
        at = -(-(out[2, i] + size[i]) // align) * align
    out[0], out[1] = begin + (dropped if policy == GIVEN + LEFT else 0), size
