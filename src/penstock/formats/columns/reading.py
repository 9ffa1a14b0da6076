"""Read one column of a store as it stood at one moment: memory maps, and the gathers that read them.

Episodes that follow each other in a segment are one run (`EpisodeRuns`), so tables have a row for each run and not for
each episode. Offsets of ragged rows come from the file, so they are checked before use. Maps are as long as the table
of episodes says and no longer: a writer may be appending behind.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray, StructArray
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field
from penstock.errors import FormatError, SpecError
from penstock.files.mapping import MappedFile, mapping_of, read_mapped
from penstock.files.remote import Wanted
from penstock.formats.base.pieces import cut, spread
from penstock.formats.columns.layout import Packing, StoreLayout
from penstock.kernels.rows import RowMap

Map = Callable[[Path, int], ByteArray]  # the first bytes of a file
CACHE_BYTES = 64 << 20
_MOST_GAIN = 1100  # deflate makes at most 1032 bytes out of one


@dataclass(frozen=True, eq=False)
class EpisodeRuns:
    """Runs of adjacent episodes; run `r` is in segment `segments[which[r]]`, from its episode `index[r]` on."""

    segments: tuple[int, ...]
    which: IntArray
    index: IntArray
    start: IntArray
    episodes: IntArray
    steps: IntArray

    @classmethod
    def of(cls, entries: StructArray, offsets: IntArray) -> EpisodeRuns:
        """Find the runs of a table. `offsets` is `[E + 1]`, the first step row of each episode."""
        index = entries["index"].astype(np.int64)
        begins = np.ones(len(entries), np.bool_)
        begins[1:] = (entries["segment"][1:] != entries["segment"][:-1]) | (np.diff(index) != 1)
        first = np.flatnonzero(begins)
        cuts = np.append(first, len(entries))
        segments, which = np.unique(entries["segment"][first], return_inverse=True)
        start = entries["start"][first].astype(np.int64)
        return cls(tuple(segments.tolist()), which, index[first], start, np.diff(cuts), np.diff(offsets[cuts]))

    def rows(self, align: Align) -> tuple[IntArray, IntArray]:
        """`[R]` first row of each run in its segment, and `[R]` how many rows it has."""
        if align == "step":
            return self.start, self.steps
        if align == "boundary":
            return self.start + self.index, self.steps + self.episodes
        return self.index, self.episodes

    def sizes(self, align: Align) -> list[int]:
        """How many rows of each of `segments` are in use."""
        first, rows = self.rows(align)
        used = np.zeros(len(self.segments), np.int64)
        np.maximum.at(used, self.which, first + rows)
        return used.tolist()


class SegmentedColumn:
    """A column in the files of its segments."""

    def __init__(self, layout: StoreLayout, path: str, runs: EpisodeRuns, mapping: Map) -> None:
        self._layout = layout
        self._path = path
        self._runs = runs
        self._map = mapping
        self.field: Field = layout.spec[path]


class FixedColumnReader(SegmentedColumn):
    """A column whose rows all have the same size."""

    def files(self) -> Iterator[tuple[Path, int]]:
        for segment, rows in zip(self._runs.segments, self._runs.sizes(self.field.align), strict=True):
            yield self._layout.values(segment, self._path), rows * self.field.row_bytes

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Fill the covered places of `out`: one gather."""
        if self._row_bytes:
            self._rows.gather(selection.start, selection.length, selection.destination, out.reshape(-1).view(np.uint8))

    def view(self, first: int, n: int, dtype: np.dtype[Any]) -> ByteArray | None:
        """View rows of one run of episodes."""
        return self._rows.view(first, n)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        return self._rows.remote_ranges(selection.start, selection.length) if self.field.row_bytes else []

    def part(self, e: int, segment: int, first: int, rows: int) -> Array:
        """Rows of one segment, a read-only view."""
        view, file = self._views[segment]
        part = view[first : first + rows]
        if file is None or file.remote is not None:
            return read_mapped(part)
        file.check((first + rows) * self._row_bytes)
        return part

    def payload(self, e: int, segment: int, first: int, rows: int) -> Iterator[ByteArray]:
        """The bytes of the rows, as their checksum takes them."""
        yield as_bytes(np.asarray(self.part(e, segment, first, rows)))

    @cached_property
    def _rows(self) -> RowMap:
        first, rows = self._runs.rows(self.field.align)
        width = self.field.row_bytes
        buffers = [self._map(file, size) for file, size in self.files()]
        return RowMap.build(buffers, rows, self._runs.which, first * width, width)

    @cached_property
    def _row_bytes(self) -> int:
        return self.field.row_bytes

    @cached_property
    def _views(self) -> dict[int, tuple[AnyArray, MappedFile | None]]:
        """The rows of each segment, and the file that has them from its first byte on."""
        field = self.field
        views: dict[int, tuple[AnyArray, MappedFile | None]] = {}
        sizes = zip(self._runs.segments, self.files(), self._runs.sizes(field.align), strict=True)
        for segment, (file, size), rows in sizes:
            flat = self._map(file, size).view(field.dtype) if field.row_bytes else np.zeros(0, field.dtype)
            views[segment] = flat.reshape(rows, *field.shape), mapping_of(flat)
        return views


class RaggedColumnReader(SegmentedColumn):
    """A column whose rows have different lengths: row `i` is `values[offsets[i] : offsets[i + 1]]`."""

    def files(self) -> Iterator[tuple[Path, int]]:
        for segment, offsets in self._offsets.items():
            file = self._layout.values(segment, self._path)
            if offsets[0] != 0 or not 0 <= offsets[-1] < 1 << 60:
                place = f"rows 0 and {len(offsets) - 1}"
                raise FormatError(
                    f"expected offsets from 0 on, got {offsets[0]} to {offsets[-1]}", path=file, where=place
                )
            yield self._layout.offsets(segment, self._path), offsets.nbytes
            yield file, int(offsets[-1]) * self.field.dtype.itemsize

    def read_ragged(self, selection: Selection) -> Ragged:
        """The rows of the whole grid, those not covered empty. Cost: a search and three gathers a row."""
        starts, lengths, segment = self._rows_of(selection)
        out = np.empty(lengths.sum(), self.field.dtype)
        self._values.gather(starts + self._values.first[segment], lengths, offsets_of(lengths)[:-1], as_bytes(out))
        return spread(Ragged(out, offsets_of(lengths)), selection)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        if not self._values.files.lazy:
            return []
        starts, lengths, segment = self._rows_of(selection)
        return self._values.remote_ranges(starts + self._values.first[segment], lengths)

    def _rows_of(self, selection: Selection) -> tuple[IntArray, IntArray, IntArray]:
        """First value of each row of the spans, their number, and the segment that they are in."""
        places = offsets_of(selection.length)
        starts, ends = np.empty((2, places[-1]), np.int64)
        for rows, out in zip(self._bounds, (starts, ends), strict=True):
            rows.gather(selection.start, selection.length, places[:-1], out.view(np.uint8))
        segment = self._segment_of(ranges(selection.start, selection.length))
        return starts, self._checked(starts, ends, segment), segment

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        """Fill the covered places of `out` with values by the numbers of `value_offsets`: one gather."""
        self._end_to_end.gather(selection.start, selection.length, selection.destination, as_bytes(out))

    @property
    def value_offsets(self) -> IntArray:
        return self._value_offsets

    @cached_property
    def _value_offsets(self) -> IntArray:
        """`[rows + 1]`: which values each row has, in the values of all runs end to end. Reads all offsets."""
        parts = [np.zeros(0, np.int64)]
        for offsets, segment in self._cuts():
            count = len(self._data[segment])
            if offsets[0] < 0 or offsets[-1] > count or np.any(np.diff(offsets) < 0):
                message = f"expected offsets within 0:{count} that never decrease, got {offsets[0]} to {offsets[-1]}"
                raise FormatError(message, path=self._layout.offsets(segment, self._path))
            parts.append(np.diff(offsets))
        return offsets_of(np.concatenate(parts))

    def _cuts(self) -> Iterator[tuple[IntArray, int]]:
        """The offsets of each run, and its segment."""
        for first, rows, which in zip(*self._runs.rows(self.field.align), self._runs.which, strict=True):
            segment = self._runs.segments[int(which)]
            yield self._offsets[segment][first : first + rows + 1], segment

    @cached_property
    def _end_to_end(self) -> RowMap:
        """The values of all runs, in order."""
        ends = np.array([(cuts[0], cuts[-1]) for cuts, _ in self._cuts()], np.int64).reshape(-1, 2)
        buffers = [values.view(np.uint8) for values in self._data.values()]
        width = self.field.dtype.itemsize
        return RowMap.build(buffers, ends[:, 1] - ends[:, 0], self._runs.which, ends[:, 0] * width, width)

    def part(self, e: int, segment: int, first: int, rows: int) -> Array:
        """Rows of one segment; the values are a read-only view."""
        cuts = self._offsets[segment][first : first + rows + 1]
        values = self._data[segment]
        try:
            chosen = values[cuts[0] : max(int(cuts[-1]), 0)] if cuts[0] >= 0 else values[:0]
            return Ragged(read_mapped(chosen), cuts - cuts[0])
        except SpecError as error:
            file = self._layout.offsets(segment, self._path)
            raise FormatError(f"damaged offsets: {error}", path=file, where=f"row {first}") from error

    def payload(self, e: int, segment: int, first: int, rows: int) -> Iterator[ByteArray]:
        """The bytes of lengths and values, as their checksum takes them."""
        values = self.part(e, segment, first, rows)
        if isinstance(values, Ragged):
            yield as_bytes(values.lengths)
            yield as_bytes(values.values)

    def _checked(self, starts: IntArray, ends: IntArray, segment: IntArray) -> IntArray:
        """The lengths of rows, none of which may leave the values of its segment."""
        counts = np.diff(self._values.first)[segment]
        wrong = (starts < 0) | (ends < starts) | (ends > counts)
        if wrong.any():
            bad = int(np.argmax(wrong))
            file = self._layout.offsets(self._runs.segments[int(segment[bad])], self._path)
            raise FormatError(f"expected offsets within 0:{counts[bad]}, got {starts[bad]}:{ends[bad]}", path=file)
        return ends - starts

    def _segment_of(self, rows: IntArray) -> IntArray:
        return self._runs.which[np.searchsorted(self._bounds[0].first, rows, side="right") - 1]

    @cached_property
    def _offsets(self) -> dict[int, IntArray]:
        offsets: dict[int, IntArray] = {}
        for segment, rows in zip(self._runs.segments, self._runs.sizes(self.field.align), strict=True):
            raw = self._map(self._layout.offsets(segment, self._path), (rows + 1) * 8)
            offsets[segment] = read_mapped(raw).view("<i8")
        return offsets

    @cached_property
    def _data(self) -> dict[int, AnyArray]:
        files = list(self.files())[1::2]
        return {s: self._map(*file).view(self.field.dtype) for s, file in zip(self._offsets, files, strict=True)}

    @cached_property
    def _bounds(self) -> tuple[RowMap, RowMap]:
        """Where each row starts among the values of its segment, and where it ends."""
        first, rows = self._runs.rows(self.field.align)
        buffers = [offsets.view(np.uint8) for offsets in self._offsets.values()]
        starts, ends = (RowMap.build(buffers, rows, self._runs.which, (first + i) * 8, 8) for i in (0, 1))
        return starts, ends

    @cached_property
    def _values(self) -> RowMap:
        """The values of all segments, in order."""
        buffers = [values.view(np.uint8) for values in self._data.values()]
        counts = np.array([len(values) for values in self._data.values()], np.int64)
        which = np.arange(len(buffers))
        return RowMap.build(buffers, counts, which, which * 0, self.field.dtype.itemsize)


def as_bytes(array: AnyArray) -> ByteArray:
    """The bytes of an array in C order, without a copy where they already are in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)


class Blocks:
    """The B blocks of the episodes of `entries`, numbered in their order. `first` is `[E + 1]` the first of each
    episode, `cuts` `[B + 1]` their first step rows, `episode` `[B]` whose they are.
    """

    def __init__(
        self, layout: StoreLayout, packing: Packing, entries: StructArray, offsets: IntArray, mapping: Map
    ) -> None:
        counts = packing.counts(np.diff(offsets))
        ends = entries["blocks"].astype(np.int64)
        if np.any(counts > ends):
            bad = int(np.argmax(counts > ends))
            message = f"expected at least {counts[bad]} blocks, got {ends[bad]}"
            raise FormatError(message, path=layout.table, where=f"entry {bad}")
        self.columns = list(packing.levels)
        used = {s: int(ends[entries["segment"] == s].max()) for s in np.unique(entries["segment"]).tolist()}
        self.positions = {s: self._positions(layout, s, blocks, mapping) for s, blocks in used.items()}
        self.first = offsets_of(counts)
        self.episode = np.repeat(np.arange(len(entries)), counts)
        within = np.arange(len(self.episode)) - self.first[self.episode]
        self.cuts = np.append(offsets[self.episode] + within * packing.steps, offsets[-1])
        self.segment = entries["segment"][self.episode]
        self.number = (ends - counts)[self.episode] + within  # in the segment

    def files(self, layout: StoreLayout) -> Iterator[tuple[Path, int]]:
        for segment, positions in self.positions.items():
            yield layout.blocks(segment), positions.nbytes

    def rows(self, field: Field) -> IntArray:
        """`[B + 1]` first row of each block in the row space of a column."""
        if field.align == "step":
            return self.cuts
        return self.cuts + np.append(self.episode, len(self.first) - 1)

    def _positions(self, layout: StoreLayout, segment: int, blocks: int, mapping: Map) -> IntArray:
        width = len(self.columns)
        return (
            read_mapped(mapping(layout.blocks(segment), (blocks + 1) * width * 8))
            .view("<i8")
            .reshape(blocks + 1, width)
        )


class PackedColumn:
    """A column whose rows all have the same size, compressed in blocks."""

    def __init__(self, layout: StoreLayout, path: str, blocks: Blocks, mapping: Map, decoded: Cache) -> None:
        self._layout = layout
        self._path = path
        self._blocks = blocks
        self._map = mapping
        self._decoded = decoded
        self._which = blocks.columns.index(path)
        self.field: Field = layout.spec[path]

    def files(self) -> Iterator[tuple[Path, int]]:
        for segment, positions in self._blocks.positions.items():
            file, end = self._layout.values(segment, self._path), int(positions[-1, self._which])
            if not 0 <= end < 1 << 60:
                raise FormatError(f"expected the blocks to end at a byte of the file, got {end}", path=file)
            yield file, end

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Fill the covered places of `out`. Every block that is touched is decoded once."""
        pieces = cut(self._rows, selection.start, selection.length, selection.destination)
        pieces = pieces.take(np.argsort(pieces.run, kind="stable"))
        row = pieces.start - self._rows[pieces.run]
        touched, begin = np.unique(pieces.run, return_index=True)
        target = out.reshape(-1).view(np.uint8)
        cuts = [*begin.tolist(), len(row)]
        for b, (lo, hi) in zip(touched.tolist(), pairwise(cuts), strict=True):
            rows = RowMap.of(self._block(b).reshape(-1, self.field.row_bytes))
            rows.gather(row[lo:hi], pieces.length[lo:hi], pieces.destination[lo:hi], target)

    def part(self, e: int, segment: int, first: int, rows: int) -> Array:
        """All rows of an episode, in a new array."""
        numbers = range(int(self._blocks.first[e]), int(self._blocks.first[e + 1]))
        flat = np.concatenate([self._block(b) for b in numbers])
        return flat.view(self.field.dtype).reshape(rows, *self.field.shape)

    def payload(self, e: int, segment: int, first: int, rows: int) -> Iterator[ByteArray]:
        """The bytes of the rows, as their checksum takes them."""
        part = self.part(e, segment, first, rows)
        yield as_bytes(np.asarray(part))

    def _block(self, b: int) -> ByteArray:
        segment, number = int(self._blocks.segment[b]), int(self._blocks.number[b])
        size = int(self._rows[b + 1] - self._rows[b]) * self.field.row_bytes
        return self._decoded.array((self._path, segment, number), lambda: self._inflated(segment, number, size))

    def _inflated(self, segment: int, number: int, size: int) -> ByteArray:
        file = self._layout.values(segment, self._path)
        low, high = self._blocks.positions[segment][number : number + 2, self._which].tolist()
        raw = read_mapped(self._data[segment][low:high]) if 0 <= low <= high else np.zeros(0, np.uint8)
        if len(raw) != high - low or size > _MOST_GAIN * (len(raw) + 1):
            message = f"expected a block of {size} bytes, got {len(raw)} compressed ones from byte {low} to {high}"
            raise FormatError(message, path=file, where=f"block {number}")
        inflater = zlib.decompressobj()
        try:
            inflated = inflater.decompress(raw.data, size + 1)
        except zlib.error as error:
            raise FormatError(f"damaged block: {error}", path=file, where=f"block {number}") from error
        if len(inflated) != size or not inflater.eof:
            message = f"expected {size} bytes, got {'more' if len(inflated) > size else len(inflated)}"
            raise FormatError(message, path=file, where=f"block {number}")
        return np.frombuffer(inflated, np.uint8)

    @cached_property
    def _rows(self) -> IntArray:
        return self._blocks.rows(self.field)

    @cached_property
    def _data(self) -> dict[int, ByteArray]:
        return {s: self._map(*file) for s, file in zip(self._blocks.positions, self.files(), strict=True)}
