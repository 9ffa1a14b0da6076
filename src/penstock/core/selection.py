"""`Selection`: rows to read, and their places in a grid of samples by steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """Spans of contiguous rows, and where to copy them in a grid of `n` samples by `L` steps.

    Span `j` copies rows `start[j] : start[j] + length[j]` of source `source[j]` to the places
    `destination[j] : destination[j] + length[j]` of the flattened grid. Rows are numbered in the row space of one
    alignment (steps, boundaries or episodes, see `penstock.core.spec.Align`). Spans are sorted by `destination`, do not
    overlap, and do not cross samples. Places without a span are padding.

    Args:
        source: `[m]` int64 number of each span's source.
        start: `[m]` int64 first row of each span.
        length: `[m]` int64 rows of each span.
        destination: `[m]` int64 first place of each span in the flattened grid.
        shape: `(n, L)`.
        real: `[m]` bool, False for spans that repeat an edge as padding. The default is None: all are real.
        segment: `[m]` int64 number of each span's sequence in its pack, from 1. The default is None: every sample is
            one sequence.
        position: `[m]` int64 position of each span's first row in its sequence. The default is None, as for `segment`.
        headed: `[m]` bool, True for spans after a start row that no source has, such as a BOS token. The default is
            None.
        origin: `[n]` int64 first source of the part of a mix that each sample comes from. Samples without rows have no
            spans, and only `origin` says where they come from. The default is None: not from a mix.

    Example:
        >>> import numpy as np
        >>> one = np.array([0, 1])
        >>> Selection(one * 0, one * 10, one * 0 + 3, one * 4, (2, 4)).mask().astype(int).tolist()
        [[1, 1, 1, 0], [1, 1, 1, 0]]
    """

    source: IntArray
    start: IntArray
    length: IntArray
    destination: IntArray
    shape: tuple[int, int]
    real: BoolArray | None = None
    segment: IntArray | None = None
    position: IntArray | None = None
    headed: BoolArray | None = None
    origin: IntArray | None = None

    @classmethod
    def consecutive(cls, first: int, last: int) -> Selection:
        """Return one sample of the rows `first` to `last - 1` of source 0.

        Args:
            first: First row.
            last: Row after the last one.

        Example:
            >>> Selection.consecutive(7, 10).rows().tolist()
            [[7, 8, 9]]
        """
        zero = np.zeros(1, np.int64)
        return cls(zero, np.array([first]), np.array([last - first]), zero, (1, last - first))

    @classmethod
    def of_rows(cls, rows: IntArray) -> Selection:
        """Select single rows, in their order, as the one sample of a grid `(1, n)`. Adjacent rows are one span.

        Args:
            rows: `[n]` int64 row numbers.

        Example:
            >>> chosen = Selection.of_rows(np.array([5, 6, 2]))
            >>> chosen.start.tolist(), chosen.length.tolist(), chosen.rows().tolist()
            ([5, 2], [2, 1], [[5, 6, 2]])
        """
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1] + 1)[: len(rows)])
        return cls(np.zeros_like(first), rows[first], np.diff(first, append=len(rows)), first, (1, len(rows)))

    @property
    def complete(self) -> bool:
        """Whether the spans cover the whole grid, so that a reader may fill uninitialised memory."""
        return int(self.length.sum()) == self.shape[0] * self.shape[1]

    def mask(self) -> BoolArray:
        """Return `[n, L]` bool, True for real rows and False for padding."""
        n, width = self.shape
        destination, length = self.destination, self.length
        if self.real is not None:
            destination, length = destination[self.real], length[self.real]
        begin = destination - np.arange(n) * width if len(destination) == n else None
        if begin is not None and np.all((begin >= 0) & (begin < width)):  # one span a sample
            step = np.arange(width)
            return (step >= begin[:, None]) & (step < (begin + length)[:, None])
        edges = np.zeros(n * width + 1, np.int8)
        np.add.at(edges, destination, 1)
        np.add.at(edges, destination + length, -1)
        return (np.cumsum(edges[:-1], dtype=np.int8) > 0).reshape(self.shape)

    def rows(self) -> IntArray:
        """Return `[n, L]` int64 row numbers, -1 for padding.

        Example:
            >>> one = np.array([0, 1])
            >>> Selection(one * 0, one * 10, one * 0 + 3, one * 4, (2, 4)).rows().tolist()
            [[0, 1, 2, -1], [10, 11, 12, -1]]
        """
        rows = np.full(self.shape[0] * self.shape[1], -1)
        first = np.cumsum(self.length) - self.length
        inside = np.arange(int(self.length.sum())) - np.repeat(first, self.length)
        rows[np.repeat(self.destination, self.length) + inside] = np.repeat(self.start, self.length) + inside
        return rows.reshape(self.shape)

    def samples(self, lo: int, hi: int) -> Selection:
        """Return some of the samples. Cost: a binary search; arrays are views.

        Args:
            lo: First sample.
            hi: Sample after the last.

        Returns:
            A selection with a grid of `hi - lo` samples by `L` steps.
        """
        width = self.shape[1]
        a, b = int(self.destination.searchsorted(lo * width)), int(self.destination.searchsorted(hi * width))
        return self._part(slice(a, b), slice(lo, hi), lo * width)

    def narrowed(self, width: int) -> Selection:
        """Return the same spans in a grid of another width. No span may reach beyond it.

        Args:
            width: Steps of each sample.

        Example:
            >>> one = np.array([0, 1])
            >>> Selection(one * 0, one * 10, one * 0 + 3, one * 5, (2, 5)).narrowed(3).rows().tolist()
            [[0, 1, 2], [10, 11, 12]]
        """
        n, before = self.shape
        if width == before:
            return self
        sample, place = np.divmod(self.destination, before)
        return replace(self, destination=sample * width + place, shape=(n, width))

    def of(self, source: int) -> Selection:
        """Return the spans that read from one source, in the same grid.

        Args:
            source: Number of the source.
        """
        return self.spans(self.source == source)

    def spans(self, chosen: AnyArray) -> Selection:
        """Return some of the spans, in the same grid.

        Args:
            chosen: Increasing span numbers, or `[m]` bool.
        """
        return self._part(chosen, slice(0, self.shape[0]), 0)

    def by_source(self) -> list[tuple[int, Selection]]:
        """Group the spans by source.

        Returns:
            The number of each source that is read from, and its spans. Cost: a sort, and a copy of the spans.
        """
        if len(self.source) == 0:
            return []
        order = np.argsort(self.source, kind="stable")
        numbers, first = np.unique(self.source[order], return_index=True)
        cuts = [*first.tolist()[1:], len(order)]
        spans = [order[a:b] for a, b in zip(first.tolist(), cuts, strict=True)]
        return [(number, self.spans(rows)) for number, rows in zip(numbers.tolist(), spans, strict=True)]

    def _part(self, chosen: slice | AnyArray, samples: slice, first: int) -> Selection:
        segment, position = (None if extra is None else extra[chosen] for extra in (self.segment, self.position))
        real, headed = (None if extra is None else extra[chosen] for extra in (self.real, self.headed))
        destination = self.destination[chosen] - first if first else self.destination[chosen]
        spans = (self.source[chosen], self.start[chosen], self.length[chosen], destination)
        origin = None if self.origin is None else self.origin[samples]
        shape = (samples.stop - samples.start, self.shape[1])
        return Selection(*spans, shape, real, segment, position, headed, origin)
