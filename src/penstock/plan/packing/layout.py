"""Which items a window holds: fixed sets, blocks of items in a keyed order that never changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.plan.packing.rule import LONGEST, Rule

Int = npt.NDArray[np.int64]
Whole = npt.NDArray[np.integer[Any]]
Lengths = Whole | Callable[[Int], npt.ArrayLike]


class Layout:
    """Positions `0 : n` cut into windows, and the item at each position.

    Items come in sections: those that were there at first, and those of each time that data had grown. A section is
    cut into windows of `window` positions, the last one shorter. Where equal items change places anyway, a section of
    several windows is a permutation of blocks of `block` items (the rest that fills no block stays at the end), so that
    each window is a sample of the whole section and its lengths are still read in long runs. Else the item is the
    position.
    """

    def __init__(self, lengths: Lengths, rule: Rule, sections: tuple[int, ...], window: int, block: int) -> None:
        self._lengths = lengths
        self._rule = rule
        self._window = window
        self._block = block
        self.sections = sections
        ends = np.array(sections, np.int64)
        self._begins = np.append(0, ends[:-1])
        firsts = [np.arange(b, e, window) for b, e in zip(self._begins.tolist(), sections, strict=True)]
        self.first: Int = np.concatenate([*firsts, ends[-1:]]).astype(np.int64)
        """`[w + 1]` the first position of each window, and the end of the last one."""
        shuffled = rule.exchanges & (ends - self._begins > window)
        self._blocks: Int = np.where(shuffled, (ends - self._begins) // block, 0)
        self._seed = rule.seed_for("blocks")

    def __len__(self) -> int:
        return len(self.first) - 1

    def items(self, position: Int) -> Int:
        """`[m]` the items at `[m]` positions."""
        if not self._blocks.any():
            return position
        section = np.searchsorted(self._begins, position, side="right") - 1
        begin, blocks = self._begins[section], self._blocks[section]
        block, inside = np.divmod(position - begin, self._block)
        moved = block < blocks
        there = permute(np.where(moved, block, 0), np.where(moved, blocks, 1), begin, self._seed)
        return np.where(moved, begin + there * self._block + inside, position)

    def lengths_of(self, item: Int) -> Int:
        """`[m, A]` the lengths of `[m]` items. Raises `PlanError` for lengths that cannot be."""
        raw = self._lengths(item) if callable(self._lengths) else self._lengths[item]
        return self._columns(np.asarray(raw), len(item))

    def lengths_in(self, w: int) -> Int:
        """`[m, A]` the lengths in window `w`, read in runs. Raises `PlanError` for those that cannot be."""
        lo, hi = int(self.first[w]), int(self.first[w + 1])
        section = int(np.searchsorted(self._begins, lo, side="right")) - 1
        begin, blocks = int(self._begins[section]), int(self._blocks[section])
        if callable(self._lengths) or (blocks and not self._lengths.flags.c_contiguous):
            rows = self.lengths_of(self.items(np.arange(lo, hi)))
        else:
            rows = self._columns(self._runs(self._lengths, lo, hi, begin, blocks), hi - lo)
        over = rows.max(initial=0) if self._rule.overlong == "error" else 0
        if rows.min(initial=0) < 0 or rows.max(initial=0) > LONGEST or over > min(self._rule.capacity):
            self._check(rows, lo)
        return rows

    def _runs(
        self, lengths: npt.NDArray[np.integer], lo: int, hi: int, begin: int, blocks: int
    ) -> npt.NDArray[np.integer]:
        if not blocks:
            return lengths[lo:hi]
        numbers = np.arange((lo - begin) // self._block, min(-(-(hi - begin) // self._block), blocks))
        there = permute(numbers, np.full(len(numbers), blocks), np.full(len(numbers), begin), self._seed)
        table = lengths[begin : begin + blocks * self._block].reshape(blocks, self._block, *lengths.shape[1:])
        rest = lengths[max(lo, begin + blocks * self._block) : hi]
        return np.concatenate([table[there].reshape(-1, *lengths.shape[1:]), rest])

    def _columns(self, raw: npt.NDArray[np.generic], n: int) -> Int:
        axes = len(self._rule.capacity)
        if raw.dtype.kind not in "iu" or raw.shape not in {(n, axes)} | ({(n,)} if axes == 1 else set()):
            raise PlanError(
                f"expected integer lengths [{n}, {axes}], one axis for each of capacity {self._rule.capacity}, "
                f"got {raw.dtype} {list(raw.shape)}"
            )
        return raw.astype(np.int64).reshape(n, axes)

    def _check(self, rows: Int, first: int) -> None:
        """Name the first length that is negative, too large to count with, or over the limit where that is an error."""
        limit = np.array(self._rule.capacity if self._rule.overlong == "error" else LONGEST, np.int64)
        bad = np.flatnonzero(((rows < 0) | (rows > limit)).any(1))
        if len(bad) == 0:
            return
        item = int(self.items(np.array([first + bad[0]]))[0])
        advice = "" if (rows[bad[0]] < 0).any() else "; choose what becomes of longer ones with overlong="
        raise PlanError(
            f"expected lengths of 0 to {limit.tolist()}, got {rows[bad[0]].tolist()} at item {item}{advice}"
        )
