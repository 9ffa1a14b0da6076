"""Packs of items that are all of one length: arithmetic, and nothing to plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import IntArray
from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.plan.packing.index import PackPieces
from penstock.plan.packing.report import PackReport
from penstock.plan.packing.rule import Rule


@dataclass(frozen=True)
class EvenIndex:
    """`n` items of `length` rows an axis, `many` a pack: a `PackIndex` that takes no time and no memory.

    Where the rule exchanges equal items, all places do so: a keyed permutation of all items, a new one every epoch.
    """

    n: int
    length: tuple[int, ...]
    many: int
    rule: Rule

    @classmethod
    def of(cls, n: int, lengths: Sequence[int], rule: Rule) -> EvenIndex | None:
        """The index, or None where it takes more than arithmetic: items that do not fit or are cut, and empty ones."""
        room = [_places(rows, limit, rule.align) for rows, limit in zip(lengths, rule.capacity, strict=True) if rows]
        if rule.method == "concat_split" or not room or min(room) < 1:
            return None
        return cls(n, tuple(lengths), min(*room, rule.most) if rule.max_sequences else min(room), rule)

    def __len__(self) -> int:
        return (self.n + self.many - 1) // self.many

    @property
    def most_sequences(self) -> int:
        """Items in a full pack."""
        return min(self.many, self.n)

    @property
    def width(self) -> tuple[int, ...]:
        return self.rule.capacity

    def spread(self, packs: IntArray, epoch: IntArray) -> IntArray:
        """The same packs: where items exchange places, all of them do."""
        return packs

    def pieces(self, packs: IntArray, epoch: IntArray | int) -> PackPieces:
        """Contents of packs `[n]` of epochs `[n]`."""
        pack = np.asarray(packs, np.int64)
        if len(pack) and not (pack.min() >= 0 and pack.max() < len(self)):
            raise PlanError(f"expected packs of 0 to {len(self) - 1}, got {pack.min()} to {pack.max()}")
        count = np.minimum(self.n - pack * self.many, self.many)
        which = np.repeat(np.arange(len(pack)), count)
        number = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        item = pack[which] * self.many + number
        if self.rule.exchanges:
            stream = np.ascontiguousarray(np.broadcast_to(epoch, pack.shape)[which], np.int64)
            item = permute(item, np.full(len(item), self.n), stream, self.rule.seed_for("exchange"))
        length = np.broadcast_to(np.array(self.length, np.int64), (len(item), len(self.length)))
        align = self.rule.align
        return PackPieces(which, item, np.zeros_like(length), length, number[:, None] * (-(-length // align) * align))

    def packs_of(self, items: IntArray, epoch: int, order: int) -> IntArray:
        """The packs `[m]` of an epoch, ascending, that have some of the items. They have one order."""
        if self.rule.exchanges:
            many, stream = np.full(len(items), self.n), np.full(len(items), epoch)
            items = permute(items, many, stream, self.rule.seed_for("exchange"), inverse=True)
        return np.unique(items // self.many)

    def report(self) -> PackReport:
        """Contents of the packs; no method needs fewer."""
        packs, rows = len(self), tuple(self.n * each for each in self.length)
        return PackReport(
            items=self.n,
            packs=packs,
            pieces=self.n,
            rows=rows,
            lower_bound=packs,
            efficiency=tuple(
                each / (packs * limit) if packs else 1.0 for each, limit in zip(rows, self.rule.capacity, strict=True)
            ),
            most_sequences=self.most_sequences,
            empty=0,
            truncated=0,
            split=0,
            dropped=0,
            own_packs=0,
            lost=tuple(0 for _ in rows),
        )


def _places(rows: int, limit: int, align: int) -> int:
    """How many items of `rows` begin at multiples of `align` and end within `limit`."""
    return 0 if rows > limit else (limit - rows) // (-(-rows // align) * align) + 1
