"""Which group an index falls into: a search over the running sum of group sizes, with a guide that makes it short."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import offsets_of
from penstock.kernels.dispatch import kernels

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Indices `0 : n` cut into groups: group `g` owns `cuts[g] : cuts[g + 1]`.

    `guide[j]` is the group of index `j << shift`; about one guide entry a group, so that a search begins next to
    where it ends. Memory: 16 bytes a group or a little more, nothing per index.

    >>> groups = Groups.of(np.array([2, 0, 3]))
    >>> [part.tolist() for part in groups.locate(np.array([0, 1, 2, 4]))]
    [[0, 0, 2, 2], [0, 1, 0, 2]]
    """

    cuts: Int
    guide: Int
    shift: int

    @classmethod
    def of(cls, sizes: Int) -> Groups:
        """Groups of the given `[G]` sizes. Cost: a running sum and a sorted search."""
        cuts = offsets_of(sizes)
        n = int(cuts[-1])
        shift = max(0, (n // max(len(sizes), 1)).bit_length() - 1)
        starts = np.arange(((n - 1) >> shift) + 1 if n else 0) << shift
        guide = np.searchsorted(cuts, np.append(starts, max(n - 1, 0)), side="right") - 1
        return cls(cuts, guide, shift)

    @property
    def n(self) -> int:
        """How many indices there are."""
        return int(self.cuts[-1])

    def locate(self, index: Int) -> tuple[Int, Int]:
        """`[n]` group of each index in `0 : n`, and `[n]` place within the group."""
        group, place = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
        kernels().locate(self.cuts, self.guide, self.shift, index, group, place)
        return group, place
