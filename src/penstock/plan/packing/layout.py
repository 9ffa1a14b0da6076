"""Which items a window has: consecutive items, or blocks of items in a keyed order.

If equal items change places in every epoch, windows are samples of the whole data: blocks of `block` items are
permuted, and the first blocks become the first window. Reading lengths block by block keeps this nearly as fast as
reading them in order. The assignment never changes, because a pack must be found without planning other windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import ranges
from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.kernels.runs import gather_runs, histogram
from penstock.plan.packing.rule import LONGEST, Rule
from penstock.plan.packing.window import SCRATCH

Whole = npt.NDArray[np.integer[Any]]
Lengths = Whole | Callable[[IntArray], npt.ArrayLike]


class WindowLayout:
    """Positions `0 : n` cut into windows, and the item at each position.

    A window has `window` positions, the last one fewer. Where equal items change places anyway, several windows are a
    permutation of blocks of `block` items (the rest that fills no block stays at the end), so that each window is a
    sample of all items and its lengths are still read in long runs. Else the item is the position.
    """

    def __init__(self, lengths: Lengths, rule: Rule, n: int, window: int, block: int) -> None:
        self._lengths = lengths
        self._plain = _plain(lengths, len(rule.capacity))
        self._rule = rule
        self.block = block
        self.first: IntArray = np.append(np.arange(0, n, window, dtype=np.int64), n)
        """`[w + 1]` the first position of each window, and the end of the last one."""
        self.blocks = n // block if rule.exchanges and n > window else 0
        """How many blocks change places."""
        self.seed = rule.seed_for("blocks")

    def __len__(self) -> int:
        return len(self.first) - 1

    def runs(self, w: int) -> tuple[IntArray, IntArray]:
        """The items of window `w` in runs: `size[r]` of them from `start[r]` on."""
        lo, hi = int(self.first[w]), int(self.first[w + 1])
        if not self.blocks:
            return np.array([lo]), np.array([hi - lo])
        numbers = np.arange(lo // self.block, min(-(-hi // self.block), self.blocks), dtype=np.int64)
        there = permute(numbers, np.full(len(numbers), self.blocks), np.zeros(len(numbers), np.int64), self.seed)
        start, size = there * self.block, np.full(len(there), self.block)
        rest = max(lo, self.blocks * self.block)
        return (np.append(start, rest), np.append(size, hi - rest)) if rest < hi else (start, size)

    def places_of(self, item: IntArray) -> IntArray:
        """The position of each item, `[m]`."""
        if not self.blocks:
            return item
        block, rest = np.divmod(item, self.block)
        moved = np.flatnonzero(block < self.blocks)
        block[moved] = permute(
            block[moved], np.full(len(moved), self.blocks), np.zeros_like(moved), self.seed, inverse=True
        )
        return block * self.block + rest

    def histogram(self, w: int) -> AnyArray | None:
        """`[capacity + 1]` int32: how many items of window `w` have each length on the one axis; None if some are
        longer, or impossible."""
        if self._plain is None:
            raw = self.lengths_in(w).reshape(-1)
            runs = np.array([0]), np.array([len(raw)])
        else:
            raw, runs = self._plain, self.runs(w)
        counts = np.zeros(self._rule.capacity[0] + 1, np.int32)
        return counts if histogram(raw, *runs, counts) else None

    def lengths_of(self, item: IntArray) -> IntArray:
        """`[m, A]` the lengths of `[m]` items."""
        if self._plain is not None and len(self._rule.capacity) == 1:
            return self._plain[item].astype(np.int64, copy=False)[:, None]
        raw = self._lengths(item) if callable(self._lengths) else self._lengths[item]
        return self._columns(np.asarray(raw), len(item))

    def lengths_in(self, w: int) -> IntArray:
        """`[m, A]` the lengths in window `w`, good until this thread asks for others."""
        start, size = self.runs(w)
        plain = self._plain
        rows = self.lengths_of(ranges(start, size)) if plain is None else self._gathered(plain, start, size)
        low, high = (int(rows.min()), int(rows.max())) if rows.size else (0, 0)
        if low < 0 or high > (min(self._rule.capacity) if self._rule.overlong == "error" else LONGEST):
            self._check(rows, ranges(start, size))
        return rows

    def _gathered(self, lengths: Whole, start: IntArray, size: IntArray) -> IntArray:
        axes = len(self._rule.capacity)
        rows = SCRATCH.empty("lengths", int(size.sum()) * axes, np.int64)
        gather_runs(lengths, start * axes, size * axes, rows)
        return rows.reshape(-1, axes)

    def _columns(self, raw: npt.NDArray[np.generic], n: int) -> IntArray:
        axes = len(self._rule.capacity)
        if raw.dtype.kind not in "iu" or raw.shape not in {(n, axes)} | ({(n,)} if axes == 1 else set()):
            raise PlanError(
                f"expected integer lengths [{n}, {axes}], one axis for each of capacity {self._rule.capacity}, "
                f"got {raw.dtype} {list(raw.shape)}"
            )
        return raw.astype(np.int64, copy=False).reshape(n, axes)

    def _check(self, rows: IntArray, items: IntArray) -> None:
        """Name the first length that is negative, too large to count with, or over the limit where that is an error."""
        limit = np.array(self._rule.capacity if self._rule.overlong == "error" else LONGEST, np.int64)
        bad = np.flatnonzero(((rows < 0) | (rows > limit)).any(1))
        if len(bad) == 0:
            return
        advice = "" if (rows[bad[0]] < 0).any() else "; choose what becomes of longer ones with overlong="
        raise PlanError(
            f"expected lengths of 0 to {limit.tolist()}, got {rows[bad[0]].tolist()} at item {items[bad[0]]}{advice}"
        )


def _plain(lengths: Lengths, axes: int) -> Whole | None:
    """`[n * A]` lengths as memory holds them; None where kernels cannot read them there."""
    if callable(lengths) or lengths.shape[1:] not in {(axes,)} | ({()} if axes == 1 else set()):
        return None
    readable = lengths.flags.c_contiguous and lengths.flags.aligned and lengths.dtype.isnative
    return lengths.reshape(-1) if readable and lengths.dtype.kind in "iu" else None
