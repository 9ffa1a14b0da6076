"""Ranges of skipped positions, and arithmetic on the positions that remain."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from penstock.core.narrowing import is_list
from penstock.errors import StateError

Int = npt.NDArray[np.int64]
LARGEST = (1 << 62) - 1  # of a position; sums of two stay within int64


class Skips:
    """Sorted ranges of skipped positions. The other positions are *kept*, and counted from 0.

    Each method costs a binary search over the ranges.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = []
        for lo, hi in sorted(ranges):
            if not 0 <= lo < hi <= LARGEST:
                raise StateError(f"expected a range of positions lo < hi within 0:2^62 to skip, got {lo}:{hi}")
            first, last = self.ranges.pop() if self.ranges and lo <= self.ranges[-1][1] else (lo, hi)
            self.ranges.append((first, max(last, hi)))
        edges = np.array(self.ranges, np.int64).reshape(-1, 2)
        self._first = edges[:, 0]
        self._skipped = np.concatenate([np.zeros(1, np.int64), np.cumsum(edges[:, 1] - edges[:, 0])])
        self._kept = self._first - self._skipped[:-1]  # how many are kept before each range

    def __len__(self) -> int:
        return len(self.ranges)

    def __repr__(self) -> str:
        return f"Skips({self.ranges})"

    def with_range(self, lo: int, hi: int) -> Skips:
        return Skips([*self.ranges, (lo, hi)])

    def kept_before(self, position: int) -> int:
        i = int(self._first.searchsorted(position))
        if i == 0:
            return position
        lo, hi = self.ranges[i - 1]
        return position - int(self._skipped[i - 1]) - (min(position, hi) - lo)

    def positions(self, numbers: Int) -> Int:
        """Return positions by their kept number, `[n]` int64."""
        return numbers + self._skipped[self._kept.searchsorted(numbers, side="right")] if self.ranges else numbers

    def position(self, number: int) -> int:
        return int(self.positions(np.array([number]))[0])

    def covers(self, positions: Int) -> npt.NDArray[np.bool_]:
        """Return whether each position is skipped, `[n]` bool."""
        ends = np.array(self.ranges, np.int64).reshape(-1, 2)[:, 1]
        i = self._first.searchsorted(positions, side="right")
        return (i > 0) & (positions < np.concatenate([np.zeros(1, np.int64), ends])[i])

    def within(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the skipped positions of `lo : hi` as ranges."""
        return [(max(first, lo), min(last, hi)) for first, last in self.ranges if max(first, lo) < min(last, hi)]

    def kept(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the kept positions of `lo : hi` as ranges."""
        kept: list[tuple[int, int]] = []
        for first, last in [*self.ranges, (hi, hi)]:
            if lo < min(first, hi):
                kept.append((lo, min(first, hi)))
            lo = max(lo, last)
        return kept

    def to_json(self) -> list[list[int]]:
        """Return `[first, count]` of each range."""
        return [[lo, hi - lo] for lo, hi in self.ranges]

    @classmethod
    def from_json(cls, value: object) -> Skips:
        """Make skips from the output of `to_json`."""
        pairs = [_pair(entry) for entry in value] if is_list(value) else None
        if pairs is None:
            raise StateError(f"expected skipped as a list of [first, count], got {value!r}")
        return cls((first, first + count) for first, count in pairs)


def _pair(entry: object) -> tuple[int, int]:
    match entry:
        case [int() as first, int() as count] if bool not in (type(first), type(count)):
            return first, count
        case _:
            raise StateError(f"expected [first, count] of a range that is skipped, got {entry!r}")
