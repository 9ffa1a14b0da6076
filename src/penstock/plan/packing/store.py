"""The packs of several windows in a few arrays of narrow integers, and how packs are read from them.

Windows follow each other. Running sums say where the packs, slots and runs of each window begin. Numbers within a
window take 2 bytes if every window has at most 65,536 slots and items, else 4. A plan of whole items then takes about 4
bytes for each item.

`check` tests every number of a plan that was read from a file, so that kernels, which do not check indexes, never leave
an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray, IntArray, UInt64Array
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError
from penstock.kernels.pack_reading import pack_items, pack_slots
from penstock.plan.packing.layout import WindowLayout
from penstock.plan.packing.window import Window


class StoredPieces(NamedTuple):
    """What some packs hold, pack after pack: `pack[m]`, which of those asked for; `item[m]` and its `part[m]` (0 for
    all, where that is empty); and `[m, A]` `begin` and `size`, if the store has them."""

    pack: IntArray
    item: IntArray
    part: AnyArray
    rows: tuple[IntArray, IntArray] | None


@dataclass(frozen=True)
class WindowStore:
    """Windows as in `Window`, one behind the other. Window `w` owns packs `pack_first[w] : pack_first[w + 1]`, slots
    and ranks `slot_first[w] : ...` and runs `run_first[w] : ...`; `cut`, `slot`, `local` and `run` count from the
    window's own, in 2 bytes where no window has more than 65 536 slots or items, else 4."""

    pack_first: IntArray
    slot_first: IntArray
    run_first: IntArray
    cut: AnyArray
    slot: AnyArray
    local: AnyArray
    run: AnyArray
    part: AnyArray
    begin: IntArray
    size: IntArray

    def __post_init__(self) -> None:
        """Plans are never written again, and kernels read them as read-only arrays."""
        for field in fields(self):
            getattr(self, field.name).flags.writeable = False

    @classmethod
    def of(cls, windows: Sequence[Window]) -> WindowStore:
        """The windows, in order."""
        widest = max((int(w.local.max(initial=len(w.slot) - 1)) for w in windows), default=0)
        narrow = np.uint16 if widest < 1 << 16 else np.uint32
        firsts = [offsets_of(np.array([len(column(w)) for w in windows], np.int64)) for column in (_cut, _slot, _run)]
        common = {name: _joined([getattr(w, name) for w in windows]) for name in ("cut", "slot", "local", "run")}
        has_parts = any(len(w.part) for w in windows)
        parts = [_padded(w.part, len(w.slot)) for w in windows] if has_parts else []
        rows = [_joined([getattr(w, name) for w in windows]) for name in ("begin", "size")]
        arrays = {name: array.astype(narrow, copy=False) for name, array in common.items()}
        return cls(*firsts, **arrays, part=_joined(parts).astype(np.uint32), begin=rows[0], size=rows[1])

    @classmethod
    def join(cls, stores: Sequence[WindowStore]) -> WindowStore:
        """The windows of all stores, in order."""
        firsts = [_chained([getattr(s, name) for s in stores]) for name in ("pack_first", "slot_first", "run_first")]
        names = ("cut", "slot", "local", "run")
        arrays: dict[str, Any] = {name: np.concatenate([getattr(s, name) for s in stores]) for name in names}
        has_parts = any(len(s.part) for s in stores)
        parts = [_padded(s.part, len(s.slot)) for s in stores] if has_parts else []
        rows = [_joined([getattr(s, name) for s in stores if len(s.slot)]) for name in ("begin", "size")]
        return cls(*firsts, **arrays, part=_joined(parts).astype(np.uint32), begin=rows[0], size=rows[1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def find(
        self, pack: IntArray, epoch: IntArray, number: int, layout: WindowLayout, seeds: UInt64Array
    ) -> StoredPieces | None:
        """What `[n]` packs (numbers within the store) hold in one epoch or in `[n]`; None where there are no such packs
        or epochs. `number` is the number of the first window in the whole plan, placed as `layout` says; `seeds` are
        the seeds of exchanges and of blocks."""
        extent = np.empty((3, len(pack)), np.int64)
        total = pack_slots(pack, epoch, self.pack_first, self.slot_first, self.cut, extent)
        if total < 0:
            return None
        out = np.empty((3, total), np.int64)
        plan = self.slot, self.slot_first, self.local, self.run, self.run_first
        pack_items(extent, epoch, number, *plan, layout.first, layout.blocks, layout.block, seeds, out)
        of, item, rank = out
        part = self.part[rank] if len(self.part) else self.part
        return StoredPieces(of, item, part, (self.begin[rank], self.size[rank]) if len(self.begin) else None)

    def check(self, items: IntArray, axes: int, exact: bool) -> None:
        """Raise `FormatError` unless every number in the store is one that a plan of windows of `[w]` items may hold,
        so that no read leaves the arrays."""
        slots, packs = np.diff(self.slot_first), np.diff(self.pack_first)
        firsts = self.pack_first, self.slot_first, self.run_first
        sizes = len(self.cut), len(self.slot), len(self.run)
        good = all(len(f) == len(items) + 1 and f[0] == 0 and f[-1] == n for f, n in zip(firsts, sizes, strict=True))
        good = good and all((np.diff(f) >= 0).all() for f in firsts) and len(self.local) == len(self.slot)
        good = good and len(self.part) in (0, len(self.slot)) and self.begin.shape == self.size.shape
        good = good and self.begin.shape == ((len(self.slot), axes) if exact and len(self.slot) else (0,))
        good = good and bool(((packs > 0) == (slots > 0)).all())
        good = good and bool((self.begin >= 0).all() and (self.size >= -1).all())
        good = good and _below(self.slot, slots, slots) and _below(self.local, slots, items)
        good = good and _rising(self.cut, packs, slots) and _rising(self.run, np.diff(self.run_first), slots)
        if not good:
            raise FormatError("expected the packs of a plan, got numbers that leave it; plan again")


def _cut(window: Window) -> AnyArray:
    return window.cut


def _slot(window: Window) -> AnyArray:
    return window.slot


def _run(window: Window) -> AnyArray:
    return window.run


def _joined(arrays: Sequence[AnyArray]) -> AnyArray:
    full = [array for array in arrays if len(array)]
    return np.concatenate(full) if full else np.empty(0, np.int64)


def _padded(part: AnyArray, slots: int) -> AnyArray:
    return part if len(part) == slots else np.append(part, np.zeros(slots - len(part), np.int64))


def _chained(offsets: Sequence[IntArray]) -> IntArray:
    return offsets_of(np.concatenate([np.diff(o) for o in offsets]))


def _below(values: AnyArray, counts: IntArray, limits: IntArray) -> bool:
    """Whether each of `counts[w]` values of window `w` is below `limits[w]`."""
    return bool((values < np.repeat(limits, counts)).all())


def _rising(values: AnyArray, counts: IntArray, limits: IntArray) -> bool:
    """Whether the values of each window begin at 0, rise, and stay below its limit."""
    first = (offsets_of(counts)[:-1])[counts > 0]
    step = np.diff(values.astype(np.int64), prepend=-1)
    step[first] = 1
    return bool((values[first] == 0).all() and (step > 0).all()) and _below(values, counts, limits)
