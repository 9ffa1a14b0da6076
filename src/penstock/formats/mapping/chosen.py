"""Which rows of a file are steps, in which order, and which episodes they are, where not all rows are.

A *ring* keeps the last rows that were written: the oldest is behind the newest. Rows of zeros may be *padding* before
each episode. *Ranges* name the first and the last row of each episode; they may overlap, and leave rows out. And some
arrays have a row at an end of each episode that says nothing, which their column *drops*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError

PIECE = 4096  # rows that are compared with zero at a time


def ring_order(written: int, rows: int, path: object) -> IntArray | None:
    """Return the rows of a ring, the oldest first; None where they are in order. Rows not yet written are left out."""
    if written < 0:
        raise FormatError(f"expected a number of rows that were written, got {written}", path=path)
    if written < rows:
        return np.arange(written)
    start = written % rows if rows else 0
    return np.concatenate([np.arange(start, rows), np.arange(start)]) if start else None


def range_order(ranges: AnyArray, numbers: IntArray, path: object) -> tuple[IntArray, IntArray]:
    """Return the rows of `[E, 2]` first and last numbers, and the length of each range. `numbers` has the
    number of each row, in order."""
    if ranges.ndim != 2 or ranges.shape[1] != 2 or ranges.dtype.kind not in "iu":
        message = f"expected the first and the last row of each episode, got {ranges.dtype}{list(ranges.shape)}"
        raise FormatError(message, path=path)
    bounds = ranges.astype(np.int64)
    first, stop = np.searchsorted(numbers, bounds[:, 0]), np.searchsorted(numbers, bounds[:, 1], side="right")
    lengths = bounds[:, 1] - bounds[:, 0] + 1
    if len(wrong := np.flatnonzero((stop - first != lengths) | (lengths < 1))):
        low, high = bounds[wrong[0]].tolist()
        got = int(max(stop[wrong[0]] - first[wrong[0]], 0))
        raise FormatError(f"expected rows of all numbers from {low} to {high}, got {got} of them", path=path)
    within = np.arange(int(lengths.sum())) - np.repeat(offsets_of(lengths)[:-1], lengths)
    return np.repeat(first, lengths) + within, lengths


def zero_rows(columns: Sequence[AnyArray]) -> BoolArray:
    """Return whether all columns of a row are zero. Columns that are small go first: of others, few rows are read."""
    zero = np.ones(len(columns[0]), np.bool_)
    for column in sorted(columns, key=lambda each: each.nbytes):
        for start, stop in _runs(zero):
            zero[start:stop] &= ~column[start:stop].reshape(stop - start, -1).any(1)
    return zero


def _runs(flags: BoolArray) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are marked, of at most `PIECE` rows."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).reshape(-1, 2)
    for start, stop in edges.tolist():
        yield from ((row, min(row + PIECE, stop)) for row in range(start, stop, PIECE))


def padding_rows(zero: BoolArray, most: int) -> BoolArray:
    """Return whether each row is padding: the first of so many rows of zeros or more, also where the file cuts them."""
    padding = np.zeros(len(zero), np.bool_)
    for start, stop in np.flatnonzero(np.diff(zero, prepend=False, append=False)).reshape(-1, 2).tolist():
        if stop - start >= most or start == 0 or stop == len(zero):
            padding[start : min(start + most, stop)] = True
    return padding


def dropped(lengths: IntArray, first: int, last: int, path: object) -> IntArray:
    """Return the rows of episodes of these lengths without some at both ends of each."""
    kept = lengths - first - last
    if len(short := np.flatnonzero(kept < 0)):
        got = int(lengths[short[0]])
        raise FormatError(f"expected episodes of {first + last} rows or more, got {got}", path=path)
    start = offsets_of(lengths)[:-1] + first
    return np.repeat(start - offsets_of(kept)[:-1], kept) + np.arange(int(kept.sum()))
