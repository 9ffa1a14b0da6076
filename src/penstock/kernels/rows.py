"""Map the rows of a column in memory, and gather spans of them.

A `RowMap` checks once that every run of rows is within its buffer. So a gather checks only its spans, copies without
the GIL, and copies nothing if a span is wrong. The map keeps references to the buffers; the caller owns the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.files.mapping import MappedFiles, read_mapped
from penstock.files.remote import Wanted
from penstock.kernels.gather import gather_rows
from penstock.kernels.locate import guide_of

MANY_FILES = 256  # from which on a few spans have only their own files looked at


@dataclass(frozen=True, eq=False)
class RowMap:
    """Rows of one width, stored in runs: run `r` has rows `first[r] : first[r + 1]`, without gaps, in buffer
    `buffer[r]` from byte `offset[r]` on. `buffers` are 1-d uint8 arrays, usually memory maps.

    Built through `RowMap.build`, which checks every run against its buffer once, so that the gather need not.
    """

    buffers: tuple[ByteArray, ...]
    first: IntArray
    buffer: IntArray
    offset: IntArray
    row_bytes: int
    address: IntArray
    guide: IntArray
    shift: int
    files: MappedFiles

    @classmethod
    def build(
        cls, buffers: Sequence[ByteArray], rows: IntArray, buffer: IntArray, offset: IntArray, row_bytes: int
    ) -> RowMap:
        """Map runs of `rows[R]` rows of `row_bytes` bytes."""
        first = offsets_of(rows)
        sizes = np.array([len(b) for b in buffers], np.int64)
        if len(rows) and (
            rows.min() < 0 or offset.min() < 0 or buffer.min() < 0 or buffer.max() >= len(buffers) or row_bytes < 0
        ):
            raise IndexError(f"expected runs with non-negative rows and offsets in {len(buffers)} buffers")
        # Rows are compared by division: a product of two wrong numbers of a file could wrap around.
        room = (sizes[buffer] - offset) // max(row_bytes, 1) if len(rows) else np.zeros(0, np.int64)
        if row_bytes and np.any(rows > np.maximum(room, 0)):
            bad = int(np.argmax(rows > np.maximum(room, 0)))
            raise IndexError(
                f"expected run {bad} to end within its {sizes[buffer[bad]]} bytes, "
                f"got {rows[bad]} rows of {row_bytes} bytes from byte {offset[bad]} on"
            )
        bases = np.array([b.ctypes.data for b in buffers], np.int64)
        address = bases[buffer] + offset if len(rows) else np.zeros(0, np.int64)
        return cls(tuple(buffers), first, buffer, offset, row_bytes, address, *guide_of(first), MappedFiles(buffers))

    @classmethod
    def of(cls, array: AnyArray) -> RowMap:
        """Map the rows of one C-contiguous array `[n, ...]`."""
        flat = np.ascontiguousarray(array)
        row_bytes = flat.dtype.itemsize * int(np.prod(flat.shape[1:], dtype=np.int64))
        zero = np.zeros(1, np.int64)
        return cls.build([flat.reshape(-1).view(np.uint8)], zero + len(flat), zero, zero, row_bytes)

    @property
    def n(self) -> int:
        """How many rows there are."""
        return int(self.first[-1])

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Copy rows `start[j] : start[j] + length[j]` to rows `destination[j]` on of `out`, for every span `j`.

        `out` is C-contiguous bytes that hold whole rows. Cost: one copy of the bytes read, with the GIL released.
        """
        if self.row_bytes == 0:
            return
        if files := len(self.files):
            few = files > MANY_FILES and len(start) * 8 < files
            self.files.check(self._buffers_of(start, length) if few else None)
        target = flat(out, self.row_bytes)
        if self.files.lazy:
            check_spans(start, length, destination, self.n, len(target) // self.row_bytes)
            release = self.files.fill(*self._bytes_of(start, length))
            try:
                self._gather(start, length, destination, target)
            finally:
                release()
        else:
            self._gather(start, length, destination, target)

    def view(self, first: int, n: int) -> ByteArray | None:
        """Return the bytes of rows `first : first + n` without a copy, or None if one run does not have all of them.

        A file that was truncated since it was mapped raises `FormatError`. Rows of a remote file are a copy.
        """
        run = int(self.first.searchsorted(first, side="right")) - 1
        if not 0 <= run < len(self.buffer) or first + n > self.first[run + 1]:
            return None
        begin = int(self.offset[run] + (first - self.first[run]) * self.row_bytes)
        return read_mapped(self.buffers[int(self.buffer[run])][begin : begin + n * self.row_bytes])

    def _gather(self, start: IntArray, length: IntArray, destination: IntArray, target: ByteArray) -> None:
        runs = self.first, self.guide, self.shift, self.address
        if gather_rows(*runs, self.row_bytes, start, length, destination, target) >= 0:
            check_spans(start, length, destination, self.n, len(target) // self.row_bytes)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        """Return the bytes that `gather` would fetch for spans that are within the map."""
        return self.files.remote_ranges(*self._bytes_of(start, length)) if self.files.lazy else []

    def _bytes_of(self, start: IntArray, length: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the buffers of spans that are within the map, and where their bytes begin and end."""
        start, length = start[length > 0], length[length > 0]
        begin = self.first.searchsorted(start, side="right") - 1
        runs = self.first.searchsorted(start + length, side="left") - begin
        span, run = expanded(begin, runs)
        low = np.maximum(start[span], self.first[run]) - self.first[run]
        high = np.minimum((start + length)[span], self.first[run + 1]) - self.first[run]
        width = self.row_bytes
        return self.buffer[run], self.offset[run] + low * width, self.offset[run] + high * width

    def _buffers_of(self, start: IntArray, length: IntArray) -> IntArray:
        """The buffers that hold these spans. Spans that leave the map are cut to it; the gather refuses them."""
        last = len(self.buffer) - 1
        begin = np.minimum(np.maximum(self.first.searchsorted(start, side="right") - 1, 0), last)
        end = np.minimum(np.maximum(self.first.searchsorted(start + length - 1, side="right"), begin + 1), last + 1)
        runs = np.concatenate(
            [np.arange(a, b, dtype=np.int64) for a, b in zip(begin.tolist(), end.tolist(), strict=True)] or [begin]
        )
        return self.buffer[runs]


def expanded(first: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """`count[i]` numbers from `first[i]` on for every `i`: the index of each in `first`, and the numbers."""
    owner = np.repeat(np.arange(len(first)), count)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]


def flat(out: ByteArray, row_bytes: int) -> ByteArray:
    """`out` as `[bytes]`."""
    if out.dtype != np.uint8 or not out.flags.c_contiguous or out.size % row_bytes:
        raise IndexError(
            f"expected a C-contiguous buffer of uint8 with whole rows of {row_bytes} bytes, "
            f"got {out.dtype} with strides {out.strides} and {out.nbytes} bytes"
        )
    return out.reshape(-1)


def check_spans(start: IntArray, length: IntArray, destination: IntArray, rows: int, places: int) -> None:
    """Raise `IndexError` if a span leaves the rows or the places."""
    # Ends are compared as differences, for a sum could wrap around.
    for what, begin, limit in (("rows", start, rows), ("places", destination, places)):
        bad = (length < 0) | (begin < 0) | (begin > limit - length)
        if bad.any():
            j = int(np.argmax(bad))
            raise IndexError(f"expected {what} within 0:{limit}, got {length[j]} from {begin[j]} on in span {j}")
