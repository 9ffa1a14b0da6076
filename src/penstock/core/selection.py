"""A selection: which rows to read, and where each goes in a grid of samples by steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """`m` spans of contiguous rows, copied into a grid of `n` samples by `L` steps.

    Span `j` copies rows `start[j] : start[j] + length[j]` of source `source[j]` to the places
    `at[j] : at[j] + length[j]` of the flattened grid. Rows are numbered in the row space of one alignment
    (steps, boundaries or episodes; see `penstock.core.spec.Align`). `source`, `start`, `length` and `at` are
    `[m]` int64, spans are ordered by `at`, do not overlap, and none crosses a sample. Padding is what no span covers.
    `real` `[m]` bool is False for spans that only repeat an edge to fill padding, None where all are real.

    Where a sample is several sequences one after the other (a pack), `segment` `[m]` int64 is the number of the
    sequence that a span belongs to, from 1 in every sample, and `position` `[m]` int64 the place of the span's first
    row in that sequence. None where every sample is one sequence. `headed` `[m]` bool is True for spans with a row of
    their sequence in front of them that no source has (a mark of its beginning).

    `origin` `[n]` int64 is the first source of the part of a mix that each sample was picked from. Spans tell the same,
    but samples without rows have no spans. None where nothing was picked.

    >>> one = np.array([0, 1])
    >>> Selection(one * 0, one * 10, one * 0 + 3, one * 4, (2, 4)).mask().astype(int).tolist()
    [[1, 1, 1, 0], [1, 1, 1, 0]]
    """

    source: Int
    start: Int
    length: Int
    at: Int
    shape: tuple[int, int]
    real: npt.NDArray[np.bool_] | None = None
    segment: Int | None = None
    position: Int | None = None
    headed: npt.NDArray[np.bool_] | None = None
    origin: Int | None = None

    @property
    def complete(self) -> bool:
        """Whether the spans cover the whole grid, so that an uninitialised buffer is safe to fill."""
        return int(self.length.sum()) == self.shape[0] * self.shape[1]

    def mask(self) -> npt.NDArray[np.bool_]:
        """`[n, L]` bool, True where real data lies."""
        n, width = self.shape
        at, length = self.at, self.length
        if self.real is not None:
            at, length = at[self.real], length[self.real]
        begin = at - np.arange(n) * width if len(at) == n else None
        if begin is not None and np.all((begin >= 0) & (begin < width)):  # one span a sample
            step = np.arange(width)
            return (step >= begin[:, None]) & (step < (begin + length)[:, None])
        edges = np.zeros(n * width + 1, np.int8)
        np.add.at(edges, at, 1)
        np.add.at(edges, at + length, -1)
        return (np.cumsum(edges[:-1], dtype=np.int8) > 0).reshape(self.shape)

    def rows(self) -> Int:
        """`[n, L]` int64 row that each place is filled from, -1 where it stays padding.

        >>> one = np.array([0, 1])
        >>> Selection(one * 0, one * 10, one * 0 + 3, one * 4, (2, 4)).rows().tolist()
        [[0, 1, 2, -1], [10, 11, 12, -1]]
        """
        rows = np.full(self.shape[0] * self.shape[1], -1)
        first = np.cumsum(self.length) - self.length
        inside = np.arange(int(self.length.sum())) - np.repeat(first, self.length)
        rows[np.repeat(self.at, self.length) + inside] = np.repeat(self.start, self.length) + inside
        return rows.reshape(self.shape)

    def samples(self, lo: int, hi: int) -> Selection:
        """The samples `lo:hi` alone, as a grid of `hi - lo` by `L`. Cost: a binary search and views."""
        width = self.shape[1]
        a, b = int(self.at.searchsorted(lo * width)), int(self.at.searchsorted(hi * width))
        return self._part(slice(a, b), slice(lo, hi), lo * width)

    def of(self, source: int) -> Selection:
        """The spans that read from one source; the grid stays whole."""
        return self.spans(self.source == source)

    def spans(self, chosen: npt.NDArray[Any]) -> Selection:
        """The chosen spans alone (indices that rise, or `[m]` bool); the grid stays whole."""
        return self._part(chosen, slice(0, self.shape[0]), 0)

    def by_source(self) -> list[tuple[int, Selection]]:
        """Every source that is read from, with the spans that read from it. Cost: a sort, and a copy of the spans."""
        if len(self.source) == 0:
            return []
        order = np.argsort(self.source, kind="stable")
        numbers, first = np.unique(self.source[order], return_index=True)
        cuts = [*first.tolist()[1:], len(order)]
        spans = [order[a:b] for a, b in zip(first.tolist(), cuts, strict=True)]
        return [(number, self.spans(rows)) for number, rows in zip(numbers.tolist(), spans, strict=True)]

    def _part(self, chosen: slice | npt.NDArray[Any], samples: slice, first: int) -> Selection:
        segment, position = (None if extra is None else extra[chosen] for extra in (self.segment, self.position))
        real, headed = (None if extra is None else extra[chosen] for extra in (self.real, self.headed))
        at = self.at[chosen] - first if first else self.at[chosen]
        spans = (self.source[chosen], self.start[chosen], self.length[chosen], at)
        origin = None if self.origin is None else self.origin[samples]
        shape = (samples.stop - samples.start, self.shape[1])
        return Selection(*spans, shape, real, segment, position, headed, origin)
