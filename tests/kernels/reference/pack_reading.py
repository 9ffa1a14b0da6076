"""Definitions of `penstock.kernels.pack_reading`, written to be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.kernels.pack_reading import GIVEN, LEFT, PARTS
from tests.kernels.reference.permute import permute

OF_EPOCH, OF_WINDOW, OF_RUN = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB


def pack_slots(
    pack: IntArray, epoch: IntArray, pack_first: IntArray, slot_first: IntArray, cut: Any, out: IntArray
) -> int:
    if (pack < 0).any() or (pack >= pack_first[-1]).any() or (len(pack) and (epoch < 0).any()):
        return -1
    window = np.searchsorted(pack_first, pack, side="right") - 1
    last = np.append(cut, 0)[pack + 1].astype(np.int64)
    total = slot_first[window + 1] - slot_first[window]
    end = np.where(pack + 1 < pack_first[window + 1], last, total)
    out[0], out[1], out[2] = window, cut[pack], end - cut[pack]
    return int(out[2].sum())


def pack_items(
    extent: IntArray,
    epoch: IntArray,
    number: int,
    slot: Any,
    slot_first: IntArray,
    local: Any,
    run: Any,
    run_first: IntArray,
    position: IntArray,
    blocks: int,
    block: int,
    seed: Any,
    out: IntArray,
) -> None:
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
        out[:, j] = i, item_at(int(position[number + w]) + int(local[rank]), blocks, block, seed[1]), rank


def item_at(position: int, blocks: int, block: int, seed: Any) -> int:
    number, inside = divmod(position, block)
    return position if number >= blocks else _permuted(number, blocks, 0, seed) * block + inside


def _permuted(x: int, size: int, stream: int, seed: Any) -> int:
    return int(permute(np.array([x]), np.array([size]), np.array([stream]), int(seed))[0])


def place_pieces(
    pack: IntArray, total: IntArray, part: Any, limit: IntArray, policy: int, align: int, head: int, out: IntArray
) -> None:
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
