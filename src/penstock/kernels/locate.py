"""Find the group of an index: a binary search over the running sum of group sizes, with a guide that makes it short.

The guide has about one entry a group and says in which group every `1 << shift`-th index is. It bounds the search for
an index to the groups between two entries, usually one or two. The entries for later indices are prefetched, because
on large tables each search otherwise waits for memory twice. `Groups` owns the tables; the caller owns the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.ragged import offsets_of
from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import uncounted_kernel

_AHEAD = 32  # indices between the prefetch of a guide entry and its use; the table entry follows after half of them


def guide_of(cuts: IntArray) -> tuple[IntArray, int]:
    """`guide` and `shift` for groups that begin at `cuts[:-1]` and end at `cuts[-1]`: `guide[j]` is the group of index
    `j << shift`, and the last entry is the group of the last index.

    >>> guide, shift = guide_of(np.array([0, 2, 2, 5]))
    >>> guide.tolist(), shift
    ([0, 0, 2, 2, 2, 2], 0)
    """
    n, groups = int(cuts[-1]), len(cuts) - 1
    shift = max(0, (n // max(groups, 1)).bit_length() - 1)
    starts = np.arange(((n - 1) >> shift) + 1 if n else 0) << shift
    return np.searchsorted(cuts, np.append(starts, max(n - 1, 0)), side="right") - 1, shift


@dataclass(frozen=True, eq=False)
class Groups:
    """Indices `0 : n` cut into groups: group `g` owns `table[g, 0] : table[g + 1, 0]`.

    The other columns of `table` are the values of each group, next to its start so that one memory access finds
    both. `guide[j]` is the group of index `j << shift`; there is about one guide entry a group, so that a search
    begins next to where it ends. Memory: 8 bytes a group and column and 16 more, nothing per index.

    >>> groups = Groups.of(np.array([2, 0, 3]), np.array([7, 8, 9]))
    >>> [part.tolist() for part in groups.locate(np.array([0, 1, 2, 4]))]
    [[0, 1, 0, 2], [7, 7, 9, 9]]
    """

    table: IntArray
    guide: IntArray
    shift: int

    @classmethod
    def of(cls, sizes: IntArray, *known: IntArray) -> Groups:
        """Groups of the given `[G]` sizes, and `[G]` columns of what is known of them. Cost: some passes over `G`."""
        cuts = offsets_of(sizes)
        table = np.zeros((len(cuts), 1 + len(known)), np.int64)
        table[:, 0] = cuts
        for c, column in enumerate(known):
            table[:-1, 1 + c] = column
        return cls(table, *guide_of(cuts))

    @property
    def n(self) -> int:
        """How many indices there are."""
        return int(self.table[-1, 0])

    def locate(self, index: IntArray) -> IntArray:
        """Find the groups of indices.

        Args:
            index: `[n]` int64, each in `0 : self.n`.

        Returns:
            `[1 + c, n]` int64: the distance of each index from the start of its group, and the values of that group.

        Raises:
            IndexError: An index is outside `0 : self.n`.
        """
        out = np.empty((self.table.shape[1], len(index)), np.int64)
        index = np.ascontiguousarray(index)
        if not _locate(self.table, self.guide, self.shift, index, out):
            raise IndexError(f"expected indices within 0:{self.n}, got {index.min()} to {index.max()}")
        return out


@uncounted_kernel("i8[2C] i8[1C] i8 i8[1C] i8[2C]")
def _locate(table: IntArray, guide: IntArray, shift: int, index: IntArray, out: IntArray) -> bool:
    n = len(index)
    columns = table.shape[1]
    end = table[-1, 0]
    for i in range(n):
        if not 0 <= index[i] < end:
            return False
    guides, base = np.int64(guide.ctypes.data), np.int64(table.ctypes.data)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(guides + 8 * (index[i + _AHEAD] >> shift))
            prefetch(base + 8 * columns * guide[index[i + _AHEAD // 2] >> shift])
        lo, hi = guide[index[i] >> shift], guide[(index[i] >> shift) + 1]
        while lo < hi:
            middle = (lo + hi + 1) >> 1
            if table[middle, 0] <= index[i]:
                lo = middle
            else:
                hi = middle - 1
        out[0, i] = index[i] - table[lo, 0]
        for c in range(1, columns):
            out[c, i] = table[lo, c]
    return True
