"""Find the group of an index: a search over the running sum of group sizes, with a guide that makes it short."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import offsets_of
from penstock.kernels.dispatch import kernels

Int = npt.NDArray[np.int64]


def guide_of(cuts: Int) -> tuple[Int, int]:
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

    table: Int
    guide: Int
    shift: int

    @classmethod
    def of(cls, sizes: Int, *known: Int) -> Groups:
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

    def locate(self, index: Int) -> Int:
        """`[1 + c, n]`: the place of each index (in `0 : n`) within its group, and what is known of that group."""
        out = np.empty((self.table.shape[1], len(index)), np.int64)
        kernels().locate(self.table, self.guide, self.shift, index, out)
        return out
