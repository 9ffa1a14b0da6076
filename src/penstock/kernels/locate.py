"""Find the group of an index: a binary search over the running sum of group sizes, with a guide that makes it short.

The guide has about one entry a group and says in which group every `1 << shift`-th index is. It bounds the search for
an index to the groups between two entries, usually one or two. The entries for later indices are prefetched, because
on large tables each search otherwise waits for memory twice. `Groups` owns the tables; the caller owns the rest.

`OffsetGroups` has no table of groups: the size of a group follows from the offsets of its episode. It has the running
sum of blocks of `BLOCK` episodes alone, and adds the sizes inside of a block while it searches. So a process needs half
a byte for each episode, where a table needs 56, and the offsets may be a mapped file, which all processes of a machine
share. A search adds up to `BLOCK` sizes, which takes longer than in a table that a cache has, so up to `FEW` episodes
have a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.files.user_cache import SHARED_BYTES, shared_arrays
from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import kernel

BLOCK = 32
"""Episodes of a block of `OffsetGroups`."""
FEW = 1 << 14
"""Groups whose table stays in a cache, with a guide that has four entries for each."""
_ONE = np.uint64(1)
_AHEAD = 32  # indices between the prefetch of a guide entry and its use; the table entry follows after half of them


def guide_of(cuts: IntArray) -> tuple[IntArray, int]:
    """`guide` and `shift` for groups that begin at `cuts[:-1]` and end at `cuts[-1]`: `guide[j]` is the group of index
    `j << shift`, and the last entry is the group of the last index. Few groups have four entries each.
    """
    n, groups = int(cuts[-1]), len(cuts) - 1
    shift = max(0, (n // max(groups, 1)).bit_length() - (3 if groups <= FEW else 1))
    starts = np.arange(((n - 1) >> shift) + 1 if n else 0) << shift
    return np.searchsorted(cuts, np.append(starts, max(n - 1, 0)), side="right") - 1, shift


@dataclass(frozen=True, eq=False)
class Groups:
    """Indices `0 : n` cut into groups: group `g` owns `table[g, 0] : table[g + 1, 0]`.

    The other columns of `table` are the values of each group, next to its start so that one memory access finds
    both. `guide[j]` is the group of index `j << shift`; there is about one guide entry a group, so that a search
    begins next to where it ends. Memory: 8 bytes a group and column and 16 more, nothing per index.
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

    @classmethod
    def shared(cls, key: str, sizes: Callable[[], IntArray], *known: IntArray) -> Groups:
        """Return groups whose tables the processes of a machine share, if they are large."""

        def make() -> dict[str, AnyArray]:
            groups = cls.of(sizes(), *known)
            return {"table": groups.table, "guide": groups.guide, "shift": np.array(groups.shift)}

        if len(known[0]) * 8 * (2 + len(known)) < SHARED_BYTES:
            return cls.of(sizes(), *known)
        arrays = shared_arrays(f"groups {key}", make)
        return cls(arrays["table"], arrays["guide"], int(arrays["shift"]))

    @property
    def n(self) -> int:
        """How many indices there are."""
        return int(self.table[-1, 0])

    def locate(self, index: IntArray) -> IntArray:
        """Find the groups of indices."""
        out = np.empty((self.table.shape[1], len(index)), np.int64)
        index = np.ascontiguousarray(index)
        if not _locate(self.table, self.guide, self.shift, index, out):
            raise IndexError(f"expected indices within 0:{self.n}, got {index.min()} to {index.max()}")
        return out

    def group_of(self, index: IntArray) -> IntArray:
        """Return the group of each index, `[n]`."""
        return self.table[:, 0].searchsorted(index, side="right") - 1

    def starts(self, groups: IntArray) -> IntArray:
        """Return the first index of each group, `[n]`. The group after the last one begins at the end."""
        return self.table[groups, 0]


@dataclass(frozen=True, eq=False)
class OffsetGroups:
    """Indices `0 : n` cut into the samples of episodes: episode `e` with `T` steps has `ceil((T - room) / stride)`.

    Equal to `Groups` of these sizes, with source 0, the number, the start and the length of each episode.
    """

    offsets: IntArray
    room: int
    stride: int
    sums: IntArray
    guide: IntArray
    shift: int

    @classmethod
    def of(cls, offsets: IntArray, room: int, stride: int) -> OffsetGroups:
        """Return the samples of episodes. Cost: one pass over the offsets, which are not copied."""
        known = np.ascontiguousarray(offsets, np.int64)
        sums = np.zeros(-(-(len(known) - 1) // BLOCK) + 1, np.int64)
        _sum_blocks(known, room, stride, sums)
        return cls(known, room, stride, sums, *guide_of(sums))

    @property
    def n(self) -> int:
        """How many indices there are."""
        return int(self.sums[-1])

    def locate(self, index: IntArray) -> IntArray:
        """Find the episodes of indices."""
        out = np.zeros((5, len(index)), np.int64)
        index = np.ascontiguousarray(index)
        steps = np.array([self.shift, self.room, self.stride])
        if not _locate_in_blocks(self.offsets, self.sums, self.guide, steps, index, out):
            raise IndexError(f"expected indices within 0:{self.n}, got {index.min()} to {index.max()}")
        return out

    def group_of(self, index: IntArray) -> IntArray:
        """Return the episode of each index, `[n]`."""
        return self.locate(index)[2]

    def starts(self, groups: IntArray) -> IntArray:
        """Return the first index of each episode, `[n]`. The one after the last begins at the end."""
        block = groups // BLOCK
        before = block[:, None] * BLOCK + np.arange(BLOCK)
        inside = before < groups[:, None]
        e = np.where(inside, before, 0)
        anchors = self.offsets[e + 1] - self.offsets[e] - self.room if len(self.offsets) > 1 else e
        sizes = np.maximum(-(-anchors // self.stride), 0)
        return self.sums[block] + np.where(inside, sizes, 0).sum(axis=1)


@kernel("i8[2C] i8[1C] i8 i8[1C] i8[2C]", "i8[2Cr] i8[1Cr] i8 i8[1C] i8[2C]")
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
        # Unsigned: of a signed index, compiled code asks each time whether it counts from the end.
        entry = np.uint64(index[i] >> shift)
        lo, hi = np.uint64(guide[entry]), np.uint64(guide[entry + _ONE])
        if hi - lo <= _ONE:  # usual, and decided without a branch, which random indices would have guessed wrong
            lo = hi = hi if table[hi, 0] <= index[i] else lo
        while lo < hi:
            middle = (lo + hi + _ONE) >> _ONE
            if table[middle, 0] <= index[i]:
                lo = middle
            else:
                hi = middle - _ONE
        out[0, i] = index[i] - table[lo, 0]
        for c in range(1, columns):
            out[c, i] = table[lo, c]
    return True


@kernel("i8[1C] i8 i8 i8[1C]", "i8[1Cr] i8 i8 i8[1C]")
def _sum_blocks(offsets: IntArray, room: int, stride: int, sums: IntArray) -> None:
    episodes = len(offsets) - 1
    total = 0
    for block in range(len(sums) - 1):
        for e in range(block * BLOCK, min((block + 1) * BLOCK, episodes)):
            anchors = offsets[e + 1] - offsets[e] - room
            if anchors > 0:
                total += anchors if stride == 1 else (anchors + stride - 1) // stride
        sums[block + 1] = total


@kernel(
    "i8[1C] i8[1C] i8[1C] i8[1C] i8[1C] i8[2C]",
    "i8[1Cr] i8[1C] i8[1C] i8[1C] i8[1C] i8[2C]",
)
def _locate_in_blocks(
    offsets: IntArray, sums: IntArray, guide: IntArray, steps: IntArray, index: IntArray, out: IntArray
) -> bool:
    n, episodes = len(index), np.uint64(len(offsets) - 1)
    shift, room, stride = steps[0], steps[1], steps[2]
    for i in range(n):
        if not 0 <= index[i] < sums[-1]:
            return False
    guides = np.int64(guide.ctypes.data)
    blocks = np.int64(sums.ctypes.data)
    table = np.int64(offsets.ctypes.data)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(guides + 8 * (index[i + _AHEAD] >> shift))
            soon = np.int64(guide[index[i + _AHEAD // 2] >> shift])
            prefetch(blocks + 8 * soon)
            for line in range(BLOCK // 8):
                prefetch(table + 8 * (soon * BLOCK + 8 * line))
        entry = np.uint64(index[i] >> shift)
        lo, hi = np.uint64(guide[entry]), np.uint64(guide[entry + _ONE])
        while lo < hi:
            middle = (lo + hi + _ONE) >> _ONE
            if sums[middle] <= index[i]:
                lo = middle
            else:
                hi = middle - _ONE
        left, e = index[i] - sums[lo], lo * np.uint64(BLOCK)
        while True:
            if e >= episodes:
                return False  # the offsets are another process's file, and changed
            length = offsets[e + _ONE] - offsets[e]
            anchors = max(length - room, 0)
            size = anchors if stride == 1 else (anchors + stride - 1) // stride
            if left < size:
                break
            left -= size
            e += _ONE
        out[0, i] = left
        out[2, i] = e
        out[3, i] = offsets[e]
        out[4, i] = length
    return True
