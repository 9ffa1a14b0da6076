"""`SumTree`: weights of anchors, drawn in proportion. The loops are in `kernels.sum_tree`."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import Float32Array, IntArray, UInt64Array
from penstock.core.ragged import offsets_of
from penstock.kernels.sum_tree import FAN, draw_leaves, set_leaves

LEAST = 256  # leaves


class SumTree:
    """Weights of the anchors `lo : hi`, 0 or more. The range moves to the right, and memory grows with it.

    Setting and drawing cost a few cache lines for each of `log16(n)` levels. The tree is a function of its weights: a
    tree with equal weights draws equal anchors, however the weights came about.
    """

    def __init__(self) -> None:
        self.lo = self.hi = 0
        self._make(LEAST)

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._sums[-FAN])

    @property
    def least(self) -> float:
        """Least positive weight, or infinity if there is none."""
        return float(self._least[-FAN])

    @property
    def weights(self) -> Float32Array:
        """`[hi - lo]` float32 weight of each anchor, a copy."""
        return self._leaves[np.arange(self.lo, self.hi) & (len(self._leaves) - 1)]

    @property
    def nbytes(self) -> int:
        """Bytes of leaves and nodes."""
        return self._leaves.nbytes + self._sums.nbytes + self._least.nbytes

    def restore(self, lo: int, weights: Float32Array) -> None:
        """Replace all anchors."""
        self.lo, self.hi = lo, lo + len(weights)
        size = LEAST
        while size < len(weights):
            size *= 2
        self._make(size)
        self.set(np.arange(self.lo, self.hi), weights)

    def extend(self, lo: int, hi: int, weight: float) -> None:
        """Add the anchors `lo : hi` at the right end."""
        if self.lo == self.hi:
            self.lo = self.hi = lo
        self.hi = hi
        if hi - self.lo > len(self._leaves):
            kept = self._leaves[np.arange(self.lo, lo) & (len(self._leaves) - 1)]
            self.restore(self.lo, np.append(kept, np.full(hi - lo, weight, np.float32)))
        else:
            self.set(np.arange(lo, hi), np.full(hi - lo, weight, np.float32))

    def drop(self, lo: int) -> None:
        """Remove the anchors before `lo`."""
        gone = np.arange(self.lo, min(lo, self.hi))
        self.set(gone, np.zeros(len(gone), np.float32))
        self.lo, self.hi = lo, max(lo, self.hi)

    def set(self, anchors: IntArray, weights: Float32Array) -> None:
        """Set weights. Of equal anchors the last one counts."""
        set_leaves(self._leaves, self._sums, self._least, self._first, anchors, weights)

    def draw(self, key: np.uint64, number: int, n: int) -> tuple[IntArray, Float32Array]:
        """Draw anchors in proportion to their weights, one from each of `n` equal parts of the sum."""
        return draw_leaves(self._leaves, self._sums, self._first, key, number, self.lo, n)

    def _make(self, size: int) -> None:
        """Allocate an empty tree of `size` leaves, a power of two. Each level has whole groups of sixteen."""
        levels: list[int] = []
        nodes = size
        while nodes > 1:
            nodes = -(-nodes // FAN)
            levels.append(-(-nodes // FAN) * FAN)
        offsets = offsets_of(levels)
        self._leaves = np.zeros(size, np.float32)
        self._sums, self._least = np.zeros(offsets[-1]), np.full(offsets[-1], np.inf, np.float32)
        self._first: IntArray = np.ascontiguousarray(offsets[:-1])


def key_of(seed: int) -> np.uint64:
    """Return the key of the random bits of a seed."""
    bits: UInt64Array = np.array([seed], np.uint64)
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD) + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return (bits ^ (bits >> np.uint64(33)))[0]
