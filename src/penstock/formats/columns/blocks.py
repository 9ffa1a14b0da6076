"""Columns whose rows are compressed in blocks: the places of the blocks, and reading that decodes each of them once."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from penstock.containers.cache import Cache
from penstock.core.arrays import AnyArray, ByteArray, IntArray, StructArray
from penstock.core.ragged import Array, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.files.mapping import read_mapped
from penstock.formats.base.pieces import cut
from penstock.formats.columns.layout import StoreLayout
from penstock.formats.columns.packing import Packing
from penstock.formats.columns.reading import Map, as_bytes
from penstock.kernels.rows import RowMap

CACHE_BYTES = 64 << 20
_MOST_GAIN = 1100  # deflate makes at most 1032 bytes out of one


class Blocks:
    """The B blocks of the episodes of `entries`, numbered in their order. `first` is `[E + 1]` the first of each
    episode, `cuts` `[B + 1]` their first step rows, `episode` `[B]` whose they are.

    Raises `FormatError` if the entries count others than the files have.
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
        """The files of block positions, and how many bytes of each are in use."""
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
        """The files of the column, and how many bytes of each are in use."""
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
