"""Packs of several lengths: consecutive ranges of items, each with its own index and its own capacity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.ragged import offsets_of
from penstock.plan.packing.even import EvenIndex
from penstock.plan.packing.index import PackIndex, PackPieces
from penstock.plan.packing.report import PackReport


class StagedIndex:
    """The packs of several stages, one stage after the other: a `PackIndex` whose packs have several lengths.

    A stage packs a range of items, so each item is in the packs of one stage, and pack `k` is found by a search in the
    running sum of packs. Where a stage ends, one pack may stay short.
    """

    def __init__(self, indexes: Sequence[PackIndex | EvenIndex]) -> None:
        self._indexes = tuple(indexes)
        self._first = offsets_of([len(index) for index in indexes])  # the first pack of each stage, and the end
        self._items = offsets_of([index.n for index in indexes])
        self._places = np.array([index.rule.capacity for index in indexes], np.int64)

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def most_sequences(self) -> int:
        """The most pieces in any pack."""
        return max(index.most_sequences for index in self._indexes)

    @property
    def width(self) -> tuple[int, ...]:
        """The most rows that a pack needs, for each axis."""
        return tuple(max(widths) for widths in zip(*(index.width for index in self._indexes), strict=True))

    def places(self, packs: IntArray) -> IntArray:
        """Return the places of a row of packs, `[n, A]`."""
        return self._places[self._stage(packs)]

    def spread(self, packs: IntArray, epoch: IntArray) -> IntArray:
        """Return the packs that replace packs in epochs, `[n]`: a keyed order within each window of a stage."""
        out, stage = packs.copy(), self._stage(packs)
        for number, index in enumerate(self._indexes):
            mine, first = stage == number, self._first[number]
            if mine.any():
                out[mine] = first + index.spread(packs[mine] - first, epoch[mine])
        return out

    def pieces(self, packs: IntArray, epoch: IntArray | int) -> PackPieces:
        stage, epochs = self._stage(packs), np.broadcast_to(epoch, packs.shape)
        parts: list[PackPieces] = []
        for number, index in enumerate(self._indexes):
            mine = np.flatnonzero(stage == number)
            if len(mine) == 0 and len(packs):
                continue
            pieces = index.pieces(packs[mine] - self._first[number], np.ascontiguousarray(epochs[mine], np.int64))
            parts.append(pieces._replace(pack=mine[pieces.pack], item=pieces.item + self._items[number]))
        return joined_pieces(parts)

    def packs_of(self, items: IntArray, epoch: int, order: int) -> IntArray:
        """Return the packs, ascending, that have some of the items, which ascend."""
        cuts = items.searchsorted(self._items)
        parts = [
            self._first[number] + index.packs_of(items[lo:hi] - self._items[number], epoch, order)
            for number, (index, lo, hi) in enumerate(zip(self._indexes, cuts[:-1], cuts[1:], strict=True))
        ]
        return np.concatenate(parts)

    def report(self) -> PackReport:
        reports = [index.report() for index in self._indexes]
        rows = _sums([report.rows for report in reports])
        room = _sums([tuple(n * len(i) for n in i.rule.capacity) for i in self._indexes])
        return PackReport(
            items=sum(report.items for report in reports),
            packs=len(self),
            pieces=sum(report.pieces for report in reports),
            rows=rows,
            lower_bound=sum(report.lower_bound for report in reports),
            efficiency=tuple(have / most if most else 1.0 for have, most in zip(rows, room, strict=True)),
            most_sequences=max(report.most_sequences for report in reports),
            empty=sum(report.empty for report in reports),
            truncated=sum(report.truncated for report in reports),
            split=sum(report.split for report in reports),
            dropped=sum(report.dropped for report in reports),
            own_packs=sum(report.own_packs for report in reports),
            lost=_sums([report.lost for report in reports]),
        )

    def _stage(self, packs: IntArray) -> IntArray:
        """The stage of each pack. A stage without packs is never found, because it ends where it begins."""
        return np.searchsorted(self._first[1:], packs, side="right")


def joined_pieces(parts: Sequence[PackPieces]) -> PackPieces:
    """Return the pieces of several parts in the order of packs."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.pack for part in parts]), kind="stable")
    return PackPieces(*(np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True)))


def _sums(figures: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(each) for each in zip(*figures, strict=True))
