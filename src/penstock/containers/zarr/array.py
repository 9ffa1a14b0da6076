"""An array: rows in chunks, read by number through a cache of decoded pieces.

A *piece* is the smallest part of a chunk that is decoded at once: the rows of a Blosc block, otherwise the whole chunk.
`gather` decodes each piece once for a batch, even if the cache is too small to keep it. Decoded pieces are read-only,
so the cache can return them to several threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.chunks import TABLE_BYTES, AssembledChunk, Chunk, FilledChunk, chunk_of
from penstock.containers.zarr.codecs import tiles
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.containers.zarr.rows import ZarrRows, as_bytes, as_void, from_void
from penstock.containers.zarr.stores import ZarrStore
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.cache import Cache
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.flow import cores, for_each

Missing = Literal["fill", "refuse"]
_THREAD_BYTES = 1 << 20  # of chunks to decode, from which on threads pay
_OVERHEAD = 1 << 16  # by which compressed bytes may be more than those they hold


class ZarrArray(ZarrRows):
    """The array called `name` in a store. Its rows are read-only.

    A piece of rows (a Blosc block, otherwise a chunk) is decoded once and kept in `cache`; a read that covers whole
    chunks decodes them to where they go and keeps nothing. `tables` keeps where the blocks of a chunk begin.
    """

    def __init__(
        self,
        store: ZarrStore,
        name: str,
        metadata: ArrayMetadata,
        cache: Cache,
        missing: Missing = "fill",
        tables: Cache | None = None,
    ) -> None:
        self.store = store
        self.name = name
        self.metadata = metadata
        self.missing = missing
        self.dtype, self.shape = metadata.dtype, metadata.shape
        self._cache, self._chunk_rows = cache, metadata.chunk_rows
        self._tables = cache if tables is None else tables
        self._mark = object()  # of this array in keys of the cache; alive as long as any of them
        self._piece_rows: dict[int, int] = {}  # of the chunks seen so far

    @property
    def mapped(self) -> bool:
        """Whether any row is cheap: nothing is compressed."""
        return self.metadata.compressor is None and self.metadata.codecs.plain and not self.metadata.gridded

    def chunk(self, c: int) -> Chunk:
        """Chunk `c`, its table read."""
        return self._tables.get((self._mark, c), lambda: self._opened(c))

    def _opened(self, c: int) -> tuple[Chunk, int]:
        metadata = self.metadata
        raw = self._stored(metadata.key(c)) if not metadata.gridded else None
        if metadata.gridded:
            chunk = self._across(c)
        elif raw is None:
            chunk = self._filled(c)
        else:
            try:
                chunk = chunk_of(metadata, raw, owned=isinstance(raw.base, bytes))
            except FormatError as error:
                raise self._placed(error, c) from error
        self._piece_rows[c] = chunk.piece_rows
        return chunk, chunk.nbytes

    def is_stored(self, row: int) -> bool:
        """Whether any chunk with a part of a row is in the store. Nothing is read."""
        metadata, folder = self.metadata, f"{self.name}/" if self.name else ""
        across = tiles(metadata.shape[1:], metadata.chunks[1:])
        return any(self.store.has(folder + metadata.key(row // self._chunk_rows, *i)) for i, _ in across)

    def _stored(self, key: str) -> ByteArray | None:
        limit = self.metadata.stored_bytes
        return self.store.value(f"{self.name}/{key}" if self.name else key, limit + limit // 8 + _OVERHEAD)

    def _across(self, c: int) -> Chunk:
        """The chunks across the other axes that have a part of the same rows."""
        metadata = self.metadata
        parts = [
            (place, self._stored(metadata.key(c, *i))) for i, place in tiles(metadata.shape[1:], metadata.chunks[1:])
        ]
        owned = sum(len(raw) for _, raw in parts if raw is not None and isinstance(raw.base, bytes))
        if all(raw is None for _, raw in parts):
            return self._filled(c)
        return AssembledChunk(metadata, parts, TABLE_BYTES + owned)

    def _filled(self, c: int) -> Chunk:
        if self.missing == "refuse":
            a, b = c * self._chunk_rows, min((c + 1) * self._chunk_rows, len(self))
            message = f"expected chunk {c}, of rows {a}:{b}, got none; the store is not whole"
            raise FormatError(message, path=self.store.name, where=f"{self.name}/{self.metadata.key(c)}")
        return FilledChunk(self.metadata)

    def _placed(self, error: FormatError, c: int) -> FormatError:
        where = f"{self.name}/{self.metadata.key(c)}"
        return type(error)(str(error), path=self.store.name, where=where)

    def _piece(self, c: int, p: int) -> AnyArray:
        """`[k, ...]` rows of piece `p` of chunk `c`, read-only. Cost if it is kept: 1 µs."""
        key = (self._mark, c, p)
        cached = self._cache.peek(key)
        return self._cache.get(key, lambda: self._made(c, p)) if cached is None else cached

    def _made(self, c: int, p: int) -> tuple[AnyArray, int]:
        chunk = self.chunk(c)
        try:
            raw = chunk.piece(p)
        except FormatError as error:
            raise self._placed(error, c) from error
        rows = raw.view(self.dtype).reshape(-1, *self.shape[1:])
        rows.setflags(write=False)
        return rows, 256 if chunk.decoded else raw.nbytes

    def _locate(self, i: int) -> tuple[AnyArray, int]:
        """The piece that holds row `i`, and which row of all is its first."""
        c, r = divmod(i, self._chunk_rows)
        size = self._piece_rows.get(c) or self.chunk(c).piece_rows
        p = r // size
        return self._piece(c, p), c * self._chunk_rows + p * size

    def row(self, i: int) -> Any:
        """One look into the cache, on a hit."""
        rows, first = self._locate(i)
        return rows[i - first].copy()

    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        """Whole chunks are decoded in place; of others, the pieces that are needed."""
        target, size = as_bytes(out), self._chunk_rows

        position = start
        while position < stop:
            c = position // size
            if position == c * size and position + size <= stop:
                self._read_chunk(c, target[position - start : position - start + size])
                position += size
                continue
            rows, first = self._locate(position)
            end = min(first + len(rows), stop)
            target[position - start : end - start] = as_bytes(rows[position - first : end - first])
            position = end

    def _read_chunk(self, c: int, out: ByteArray) -> None:
        chunk = self.chunk(c)
        try:
            chunk.whole(out.reshape(-1))
        except FormatError as error:
            raise self._placed(error, c) from error

    def present(self, start: int, stop: int) -> None:
        """Chunks are looked for, where they are several."""
        if self.missing == "refuse" and stop - start > self._chunk_rows:
            for c in range(start // self._chunk_rows, -(-stop // self._chunk_rows)):
                if c not in self._piece_rows:
                    self.chunk(c)

    def gather(self, start: IntArray, length: IntArray, destination: IntArray, out: ByteArray) -> None:
        """Copy rows `start[j] : start[j] + length[j]` to rows `destination[j]` on of `out`, for every span.

        Spans are cut where chunks begin, and the parts within a chunk are read together in the order of their rows. So
        each piece is decoded once, even if it is not kept for long. Threads decode several chunks at once. A long
        span, whose pieces would push all others out of the cache, is decoded in place.
        """
        target = out.reshape(-1, self.metadata.row_bytes)
        most = max(self._cache.limit // 4 // self.metadata.row_bytes, self._chunk_rows)
        row, n, place, span = _cut(self._chunk_rows, start, length, destination)
        if not len(row):
            return
        order = np.argsort(row, kind="stable")
        row = row[order]
        n = n[order]
        place = place[order]
        large = (length > most)[span[order]]
        borders = (np.flatnonzero(np.diff(row // self._chunk_rows)) + 1).tolist()
        parts = [slice(a, b) for a, b in zip([0, *borders], [*borders, len(row)], strict=True)]

        def copy(part: slice) -> None:
            if n[part].max() == 1:
                self._copy_rows(row[part], place[part], target)
            else:
                self._copy_spans(row[part], n[part], place[part], large[part], target)

        missing = [part for part in parts if not self._is_kept(int(row[part.start]))]
        if cores() > 1 and len(missing) > 1 and len(missing) * self.metadata.chunk_bytes >= _THREAD_BYTES:
            for_each(copy, missing)
            begun = {part.start for part in missing}
            parts = [part for part in parts if part.start not in begun]
        for part in parts:
            copy(part)

    def remote_ranges(self, start: IntArray, length: IntArray) -> list[Wanted]:
        if not self.store.remote:
            return []
        row, *_ = _cut(self._chunk_rows, start, length, start)
        metadata, folder = self.metadata, f"{self.name}/" if self.name else ""
        across = [i for i, _ in tiles(metadata.shape[1:], metadata.chunks[1:])] if metadata.gridded else [()]
        chunks: list[int] = np.unique(row // self._chunk_rows).tolist()
        keys = (folder + metadata.key(c, *i) for c in chunks for i in across)
        return [wanted for key in keys for wanted in self.store.remote_ranges(key)]

    def _is_kept(self, i: int) -> bool:
        """Whether the piece of row `i` is in the cache."""
        c, r = divmod(i, self._chunk_rows)
        size = self._piece_rows.get(c)
        return size is not None and self._cache.peek((self._mark, c, r // size)) is not None

    def _copy_rows(self, numbers: IntArray, places: IntArray, target: ByteArray) -> None:
        """Copy single rows, whose numbers rise."""
        voids = target.view(np.dtype((np.void, target.shape[1])))[:, 0]
        for a, b, rows, first in self._runs(numbers):
            voids[places[a:b]] = as_void(rows)[numbers[a:b] - first]

    def _copy_spans(
        self, start: IntArray, length: IntArray, destination: IntArray, large: BoolArray, target: ByteArray
    ) -> None:
        """Copy spans, whose first rows rise; pieces are held: other threads may push them out of the cache."""
        pieces: list[tuple[int, ByteArray]] = []  # first row and rows, without gaps
        spans = zip(start.tolist(), length.tolist(), destination.tolist(), large.tolist(), strict=True)
        for row, n, place, in_place in spans:
            if in_place:
                self.read_into(row, row + n, target[place : place + n])
                continue
            while pieces and pieces[0][0] + len(pieces[0][1]) <= row:
                pieces.pop(0)
            a, k = 0, 0
            while a < n:
                if k == len(pieces):
                    rows, first = self._locate(row + a)
                    pieces.append((first, as_bytes(rows)))
                first, raw = pieces[k]
                b = min(first + len(raw) - row, n)
                target[place + a : place + b] = raw[row + a - first : row + b - first]
                a, k = b, k + 1

    @override
    def take(self, numbers: IntArray) -> AnyArray:
        if len(numbers) == 0:
            return np.empty((0, *self.shape[1:]), self.dtype)
        rising = bool(np.all(numbers[1:] >= numbers[:-1]))
        order = None if rising else np.argsort(numbers, kind="stable")
        sorted_numbers = numbers if order is None else numbers[order]
        out = np.empty(len(numbers), np.dtype((np.void, self.metadata.row_bytes)))
        for a, b, rows, first in self._runs(sorted_numbers):
            chosen = as_void(rows)[sorted_numbers[a:b] - first]
            out[slice(a, b) if order is None else order[a:b]] = chosen
        return from_void(out, self.dtype, self.shape[1:])

    def _runs(self, numbers: IntArray) -> Iterator[tuple[int, int, AnyArray, int]]:
        """Rising numbers, cut where another piece begins: from, to, the piece and its first row."""
        a = 0
        while a < len(numbers):
            rows, first = self._locate(int(numbers[a]))
            b = int(numbers.searchsorted(first + len(rows)))
            yield a, b, rows, first
            a = b


def _cut(
    size: int, start: IntArray, length: IntArray, destination: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Cut spans of rows at the multiples of `size`."""
    filled = np.flatnonzero(length > 0)
    start = start[filled]
    stop = start + length[filled]
    destination = destination[filled]
    first = start // size
    count = (stop - 1) // size - first + 1
    span = np.repeat(np.arange(len(filled)), count)
    chunk = first[span] + np.arange(len(span)) - np.repeat(np.cumsum(count) - count, count)
    row = np.maximum(start[span], chunk * size)
    return row, np.minimum(stop[span], (chunk + 1) * size) - row, destination[span] + row - start[span], filled[span]
