"""Counters of values by label and column, from which statistics are made.

Each thread has its `Counters`. Adding counters is exact: sums are kept in limbs of integers, and histograms count
buckets of float32. So the result depends neither on the threads nor on the order in which their counters are merged.
Tables of uint32 count the buckets, and are emptied into int64 before they can overflow.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.frames import channel_axis, is_picture
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.data.statistics import ColumnStatistics, Statistics
from penstock.errors import SpecError
from penstock.kernels.histograms import BUCKETS, count_bytes, tables_for
from penstock.kernels.statistics import LIMBS, LOWEST, MOST_LEAVES, NANS, SQUARE_LIMBS, carry, summarize, total

MOST_ELEMENTS = 4096  # of a row; the elements of larger rows are counted together
MOST_HISTOGRAMS = 256  # of a column; columns with more elements have one histogram of all
LARGEST_BUCKET = 2.0**128  # of float64 values that float32 does not have
MOST_VALUES = 1 << 32  # that fit into tables of uint32, wherever they count


class ReadBuffers:
    """Memory that a thread reads into, again and again: new memory costs more than the copy into it."""

    def __init__(self) -> None:
        self._columns: dict[str, AnyArray] = {}

    def rows(self, path: str, field: Field, n: int) -> AnyArray:
        """Return `[n, *shape]` for a column, undefined, valid until the next call for that column."""
        known = self._columns.get(path)
        if known is None or len(known) < n:
            known = self._columns[path] = np.empty((n, *field.shape), field.dtype)
        return known[:n]


class Counters:
    """The counters of one thread, by label and column."""

    def __init__(self) -> None:
        self._columns: dict[tuple[Hashable, str], ColumnCounter] = {}
        self.buffers = ReadBuffers()
        self.first: dict[Hashable, tuple[int, int]] = {}  # where each label occurs first: block, place in it

    def add(self, label: Hashable, path: str, rows: Array, leaves: IntArray) -> None:
        if isinstance(rows, Ragged):
            rows, leaves = rows.values, rows.offsets[leaves]
        counter = self._columns.get((label, path))
        if counter is None:
            counter = self._columns[label, path] = ColumnCounter(path, rows.shape[1:], rows.dtype)
        counter.add(rows, leaves)

    def merge(self, other: Counters) -> None:
        """Add what another thread counted."""
        for key, counter in other._columns.items():
            if key in self._columns:
                self._columns[key].merge(counter)
            else:
                self._columns[key] = counter

    def statistics(self) -> dict[Hashable, Statistics]:
        by_group: dict[Hashable, dict[str, ColumnStatistics]] = {}
        for (label, path), counter in self._columns.items():
            by_group.setdefault(label, {})[path] = counter.statistics()
        return {label: Statistics(columns) for label, columns in by_group.items()}


class ColumnCounter:
    """Counters of one column. Channels of pictures and elements of small rows are counted apart."""

    def __init__(self, path: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._path = path
        self._row = shape
        self._dtype = dtype
        self._channel: int | None = None
        self._kept = shape  # of the figures: 1 along axes whose elements are counted together
        size = math.prod(shape)
        if dtype == np.uint8 or size > MOST_ELEMENTS:
            inner = shape[-3:]
            if len(shape) > 1 and is_picture(shape):
                axis = channel_axis(inner) if len(inner) == 3 else None
                self._channel = None if axis is None else axis + len(shape) - len(inner)
                self._kept = tuple(n if i == self._channel else 1 for i, n in enumerate(shape))
            elif size > MOST_ELEMENTS:
                self._kept = (1,) * len(shape)
        d = math.prod(self._kept)
        self._bytes: IntArray | None = np.zeros((d, 256), np.int64) if dtype == np.uint8 or dtype.kind == "b" else None
        self._histograms = d if d <= MOST_HISTOGRAMS else 1
        tables = 0 if self._bytes is not None else tables_for(self._histograms)
        self._tables = np.zeros((tables, BUCKETS), np.uint32)
        self._bins: IntArray | None = None  # what was moved out of full tables, once there is any
        self._sums = np.zeros((d, LIMBS), np.int64)
        self._squares = np.zeros((d, SQUARE_LIMBS), np.int64)
        self._count = np.zeros(d, np.int64)
        self._special = np.zeros((3, d), np.int64)
        self._low = np.full(d, np.inf)
        self._high = np.full(d, -np.inf)
        self._values = self._leaves = 0  # that were added since tables and limbs were emptied

    def add(self, rows: AnyArray, leaves: IntArray) -> None:
        if rows.shape[1:] != self._row or rows.dtype != self._dtype:
            raise SpecError(
                f"expected {self._path} as {self._dtype}{list(self._row)} everywhere, got "
                f"{rows.dtype}{list(rows.shape[1:])}"
            )
        rows = rows[int(leaves[0]) : int(leaves[-1])]
        leaves = leaves - leaves[0]
        if self._bytes is not None and self._channel is not None and self._channel + 2 < rows.ndim:
            for plane, counts in zip(np.moveaxis(rows, self._channel + 1, 0), self._bytes, strict=True):
                count_bytes(np.ascontiguousarray(plane).reshape(-1, 1), counts[None])
            return
        if self._channel is not None:
            rows = np.moveaxis(rows, self._channel + 1, -1)
        flat = np.ascontiguousarray(rows).reshape(-1, len(self._count))
        leaves = leaves * (math.prod(self._row) // len(self._count))
        if self._bytes is not None:
            count_bytes(flat.view(np.uint8), self._bytes)
            return
        self._make_room(flat.size, len(leaves))
        # Small whole numbers and half precision are exact in float32, others but the largest are in float64.
        exact = np.float32 if flat.dtype.itemsize < 4 or flat.dtype == np.float32 else np.float64
        counters = (self._sums, self._squares, self._count, self._special, self._low, self._high, self._tables)
        summarize(flat.astype(exact, copy=False), leaves, *counters)

    def _make_room(self, values: int, leaves: int) -> None:
        """Empty tables and limbs before they can overflow."""
        if self._values + values >= MOST_VALUES:
            self._bins, self._values = self._counts().astype(np.int64), 0
            self._tables[:] = 0
        if self._leaves + leaves >= MOST_LEAVES:
            carry(self._sums)
            carry(self._squares)
            self._leaves = 0
        self._values += values
        self._leaves += leaves

    def _counts(self) -> AnyArray:
        """`[histograms, BUCKETS]` counts. Table `t` counted histogram `t % histograms`."""
        if self._bins is None and len(self._tables) == self._histograms:
            return self._tables
        each = self._tables.reshape(-1, self._histograms, BUCKETS).sum(axis=0, dtype=np.int64)
        return each if self._bins is None else each + self._bins

    def merge(self, other: ColumnCounter) -> None:
        """Add what another thread counted."""
        if self._bytes is not None and other._bytes is not None:
            self._bytes += other._bytes
            return
        self._make_room(other._values, 0)
        np.add(self._tables, other._tables, out=self._tables)
        if other._bins is not None:
            self._bins = other._bins if self._bins is None else self._bins + other._bins
        for mine, theirs in ((self._sums, other._sums), (self._squares, other._squares)):
            carry(mine)
            carry(theirs)
            np.add(mine, theirs, out=mine)
        self._count += other._count
        self._special += other._special
        np.minimum(self._low, other._low, out=self._low)
        np.maximum(self._high, other._high, out=self._high)

    def statistics(self) -> ColumnStatistics:
        if self._bytes is not None:
            return self._of_bytes(self._bytes)
        nothing = self._count == 0
        # Adding 0 makes one zero of both, whose order says which was found first.
        return ColumnStatistics(
            self._kept,
            self._count.reshape(self._kept),
            self._special[NANS].reshape(self._kept),
            (self._special.sum(axis=0) - self._special[NANS]).reshape(self._kept),
            np.where(nothing, np.nan, self._low + 0.0).reshape(self._kept),
            np.where(nothing, np.nan, self._high + 0.0).reshape(self._kept),
            tuple(total(self._sums)),
            tuple(total(self._squares)),
            tuple(_bucket_values(table) for table in self._counts()),
        )

    def _of_bytes(self, counts: IntArray) -> ColumnStatistics:
        value = np.arange(256)
        none = np.zeros(self._kept, np.int64)
        seen = [np.flatnonzero(row) for row in counts]
        low, high = (np.array([float(s[end]) if len(s) else np.nan for s in seen]) for end in (0, -1))
        sums, squares = ((counts * value**power).sum(axis=1).tolist() for power in (1, 2))
        return ColumnStatistics(
            self._kept,
            counts.sum(axis=1).reshape(self._kept),
            none,
            none,
            low.reshape(self._kept),
            high.reshape(self._kept),
            tuple(n << -LOWEST for n in sums),
            tuple(n << -LOWEST for n in squares),
            tuple((s.astype(np.float64), row[s]) for s, row in zip(seen, counts, strict=True)),
        )


def _bucket_values(table: AnyArray) -> tuple[AnyArray, IntArray]:
    """The value of each bucket that counted something, increasing, and its count. Both zeros are one value."""
    keys = np.flatnonzero(table)
    positive = int(keys.searchsorted(BUCKETS // 2))  # how many have no sign
    keys = np.concatenate([keys[positive:][::-1], keys[:positive]])  # a negative number is less with a greater key
    values = (keys.astype(np.uint32) << 16).view(np.float32).astype(np.float64).clip(-LARGEST_BUCKET, LARGEST_BUCKET)
    counts = table[keys].astype(np.int64)
    if np.count_nonzero(values == 0) == 2:
        first = int(np.argmax(values == 0))
        counts[first + 1] += counts[first]
        values, counts = np.delete(values, first), np.delete(counts, first)
    return values + 0.0, counts
