"""Chunk indexes to tiles: the byte of the file of each stored chunk of a dataset.

HDF5 has six ways to find chunks: B-trees of both versions, a single chunk, chunks that follow each other (implicit), a
fixed array, and an extensible array. Each is read once into `Tiles`, whose offsets and sizes are compared with the
file, so that gathers need no checks. A chunk that was never written has no row.

Source: "HDF5 File Format Specification", version 3.0, on data layout messages of version 4 and their indexes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.containers.hdf5.btree import CHUNK_NODES, leaves, read_records
from penstock.containers.hdf5.image import UNDEFINED, Image, verify
from penstock.containers.hdf5.messages import BTREE_V2, EXTENSIBLE, FIXED, IMPLICIT, SINGLE, DataLayout
from penstock.core.arrays import IntArray
from penstock.errors import FormatError

_FIXED = struct.Struct("<4sBBBBQQI")
_EXTENSIBLE = struct.Struct("<4sBB6B7QI")
Shape = tuple[int, ...]
Entry = tuple[int, int, int]  # address, stored bytes, filter mask


@dataclass(frozen=True, slots=True)
class Tiles:
    """The byte map of a dataset: one row a stored chunk; chunks that were never written are missing.

    `origin` [n, ndim] int64, index of the first element; `offset` [n] int64, byte in the file; `nbytes` [n]
    int64, as stored; `filter_mask` [n] int64, bit i set where filter i was skipped.
    """

    origin: IntArray
    offset: IntArray
    nbytes: IntArray
    filter_mask: IntArray

    def __len__(self) -> int:
        return len(self.offset)


def make_tiles(image: Image, rank: int, rows: list[tuple[Any, ...]]) -> Tiles:
    """Tiles from rows `(address, stored bytes, mask, *origin)`, which must be in the file."""
    table = np.array(rows, np.uint64).reshape(len(rows), 3 + rank)
    offset, nbytes = table[:, 0], table[:, 1]
    size = np.uint64(image.size)
    bad = (offset > size) | (nbytes > size) | (offset + nbytes > size)
    if bad.any():
        raise FormatError(f"chunk at byte {offset[bad][0]} of {nbytes[bad][0]} bytes is outside the file")
    if (table >> np.uint64(63)).any():
        raise FormatError("a chunk is at an impossible place")
    signed = table.astype(np.int64)
    return Tiles(signed[:, 3:], signed[:, 0] + image.base, signed[:, 1], signed[:, 2])


def read_tiles(
    image: Image, layout: DataLayout, shape: Shape, limits: tuple[int | None, ...], *, filtered: bool
) -> Tiles:
    """All stored chunks of a chunked dataset."""
    if layout.address == UNDEFINED:
        return make_tiles(image, len(shape), [])
    if layout.index == 0:
        return _from_btree_v1(image, layout)
    if layout.index == BTREE_V2:
        return make_tiles(image, len(shape), _from_btree_v2(image, layout, filtered=filtered))
    grid = _Grid(layout, shape, limits)
    entries = _ChunkIndex(image, layout, grid, filtered).entries()
    rows: list[tuple[Any, ...]] = []
    for number, (address, nbytes, mask) in entries:
        if address != UNDEFINED and (origin := grid.origin(number)) is not None:
            rows.append((address, nbytes, mask, *origin))
    return make_tiles(image, len(shape), rows)


def first_tile(image: Image, layout: DataLayout) -> tuple[int, int] | None:
    """Address and stored bytes of the only chunk of a one-chunk dataset, None where it was not written."""
    raw = image.take(layout.address, 40 + 8 * (len(layout.chunk) + 1), "B-tree node")
    if raw[:6] != b"TREE\x01\x00":
        return None
    count, nbytes = raw[6], int.from_bytes(raw[24:28], "little")
    address = int.from_bytes(raw[-8:], "little")
    if count != 1 or raw[7] or any(raw[32 : 32 + 8 * len(layout.chunk)]) or address + nbytes > image.size:
        return None
    return address, nbytes


def _from_btree_v1(image: Image, layout: DataLayout) -> Tiles:
    rank = len(layout.chunk)
    pair = np.dtype([("nbytes", "<u4"), ("mask", "<u4"), ("origin", "<u8", (rank,)), ("_", "<u8"), ("at", "<u8")])
    leaf_entries = list(leaves(image, layout.address, CHUNK_NODES, pair.itemsize - 8))
    table = np.frombuffer(b"".join(raw for raw, _ in leaf_entries), pair)
    columns = (table["at"], table["nbytes"], table["mask"], *table["origin"].T)
    rows = np.stack([column.astype(np.uint64) for column in columns], axis=1)
    tiles = make_tiles(image, rank, rows)  # type: ignore[arg-type]
    if (tiles.origin % np.array(layout.chunk, np.int64)).any():
        raise FormatError("a chunk does not begin at a multiple of the chunk shape")
    return tiles


def _from_btree_v2(image: Image, layout: DataLayout, *, filtered: bool) -> list[tuple[Any, ...]]:
    rank, width = len(layout.chunk), layout.size_bytes
    plain = _chunk_bytes(layout)
    rows: list[tuple[Any, ...]] = []
    for record in read_records(image, layout.address, 11 if filtered else 10):
        nbytes = plain
        mask = 0
        offset = 8
        if filtered:
            offset = 12 + width
            nbytes = int.from_bytes(record[8 : 8 + width], "little")
            mask = int.from_bytes(record[8 + width : offset], "little")
        scaled = struct.unpack_from(f"<{rank}Q", record, offset)
        origin = tuple(s * c for s, c in zip(scaled, layout.chunk, strict=True))
        if max(origin) >= 1 << 63:
            raise FormatError("a chunk is at an impossible place")
        rows.append((int.from_bytes(record[:8], "little"), nbytes, mask, *origin))
    return rows


class _Grid:
    """Chunk number <-> origin.  Numbers run over the largest shape, the unlimited dimension slowest."""

    def __init__(self, layout: DataLayout, shape: Shape, limits: tuple[int | None, ...]) -> None:
        self._chunk, self._shape = layout.chunk, shape
        largest = tuple(n if limit is None else limit for n, limit in zip(shape, limits, strict=True))
        self._counts = [-(-n // c) for n, c in zip(largest, layout.chunk, strict=True)]
        self._order = list(range(len(shape)))
        if layout.index == EXTENSIBLE and None in limits:
            self._order.insert(0, self._order.pop(limits.index(None)))
        self.total = math.prod(self._counts)

    def origin(self, number: int) -> Shape | None:
        """Where chunk `number` begins, None if that is outside the current shape."""
        out = [0] * len(self._shape)
        for axis in reversed(self._order):
            if axis == self._order[0]:
                out[axis] = number
            elif self._counts[axis]:
                number, out[axis] = divmod(number, self._counts[axis])
        origin = tuple(i * c for i, c in zip(out, self._chunk, strict=True))
        return origin if all(o < n for o, n in zip(origin, self._shape, strict=True)) else None


def _chunk_bytes(layout: DataLayout) -> int:
    return layout.element * math.prod(layout.chunk)


@dataclass(frozen=True, slots=True)
class _ChunkIndex:
    """A chunk index of layout version 4: chunk numbers -> entries."""

    image: Image
    layout: DataLayout
    grid: _Grid
    filtered: bool

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Number and entry of every chunk that may be stored."""
        kind, layout = self.layout.index, self.layout
        if kind == SINGLE:
            return iter([(0, (layout.address, layout.nbytes or _chunk_bytes(layout), layout.filter_mask))])
        if kind == IMPLICIT:
            return self._implicit()
        if kind == FIXED:
            return self._fixed()
        if kind == EXTENSIBLE:
            return _ExtensibleArray(self).entries()
        raise FormatError(f"chunk index of type {kind} is unknown")

    def _implicit(self) -> Iterator[tuple[int, Entry]]:
        nbytes, total = _chunk_bytes(self.layout), self.grid.total
        if total * nbytes > self.image.size:
            raise FormatError(f"{total} chunks of {nbytes} bytes do not fit in the file")
        for number in range(total):
            yield number, (self.layout.address + number * nbytes, nbytes, 0)

    def decode(self, raw: bytes) -> Iterator[Entry]:
        if not self.filtered:
            nbytes = _chunk_bytes(self.layout)
            for (address,) in struct.iter_unpack("<Q", raw):
                yield address, nbytes, 0
            return
        width = self.layout.size_bytes
        for offset in range(0, len(raw), 12 + width):
            address = int.from_bytes(raw[offset : offset + 8], "little")
            nbytes = int.from_bytes(raw[offset + 8 : offset + 8 + width], "little")
            yield address, nbytes, int.from_bytes(raw[offset + 8 + width : offset + 12 + width], "little")

    def entry_bytes(self, claimed: int) -> int:
        """Bytes of an entry, which must be what the index claims."""
        expected = 12 + self.layout.size_bytes if self.filtered else 8
        if claimed != expected:
            raise FormatError(f"expected chunk index entries of {expected} bytes, got {claimed}")
        return expected

    def _fixed(self) -> Iterator[tuple[int, Entry]]:
        raw = self.image.checked(self.layout.address, _FIXED.size, b"FAHD", "fixed array")
        _, _, _, claimed, page_bits, count, block, _ = _FIXED.unpack(raw)
        size = self.entry_bytes(claimed)
        if block == UNDEFINED:
            return
        if count * size > self.image.size or page_bits > 32:
            raise FormatError(f"fixed array of {count} chunks does not fit in the file")
        page = 1 << page_bits
        if count <= page:
            raw = self.image.checked(block, 14 + count * size + 4, b"FADB", "fixed array block")
            yield from enumerate(self.decode(raw[14:-4]))
            return
        bitmap = (-(-count // page) + 7) // 8
        raw = self.image.checked(block, 14 + bitmap + 4, b"FADB", "fixed array block")
        yield from self.pages(block + 18 + bitmap, raw[14 : 14 + bitmap], count, page, size)

    def pages(self, address: int, written: bytes, count: int, page: int, size: int) -> Iterator[tuple[int, Entry]]:
        """Entries of a block that is cut into pages, those pages that `written` has a bit for."""
        for start in range(0, count, page):
            n = min(page, count - start)
            bit = start // page
            if written[bit // 8] & 0x80 >> bit % 8:
                raw = self.image.take(address, n * size + 4, "page of a chunk index")
                verify(raw, "page of a chunk index", address)
                yield from enumerate(self.decode(raw[:-4]), start)
            address += n * size + 4


class _ExtensibleArray:
    """An index block with the first entries, then data blocks that double in size, reached through super blocks."""

    def __init__(self, table: _ChunkIndex) -> None:
        self._table, self._image = table, table.image
        raw = table.image.checked(table.layout.address, _EXTENSIBLE.size, b"EAHD", "extensible array")
        fields = _EXTENSIBLE.unpack(raw)
        claimed, bits, self._direct, self._least, pointers, page_bits = fields[3:9]
        self._last, self._index = fields[13], fields[15]
        self._size = table.entry_bytes(claimed)
        powers = all(n and n & (n - 1) == 0 for n in (self._least, pointers))
        if not powers or bits > 64 or page_bits > 32 or self._last * self._size > table.image.size:
            raise FormatError(f"extensible array at byte {table.layout.address} is malformed")
        self._page = 1 << page_bits
        self._head = 14 + (bits + 7) // 8
        self._supers = 1 + bits - (self._least.bit_length() - 1)
        self._blocks = 2 * (pointers - 1)  # data blocks that the index block names itself
        self._inline = 2 * (pointers.bit_length() - 1)  # super blocks that those stand for

    def entries(self) -> Iterator[tuple[int, Entry]]:
        if self._index == UNDEFINED:
            return
        supers = max(self._supers - self._inline, 0)
        length = 14 + self._direct * self._size + 8 * (self._blocks + supers) + 4
        raw = self._image.checked(self._index, length, b"EAIB", "index of an extensible array")
        offset = 14 + self._direct * self._size
        yield from enumerate(self._table.decode(raw[14:offset]))
        addresses = struct.unpack_from(f"<{self._blocks + supers}Q", raw, offset)
        start, used = self._direct, 0
        for level in range(self._supers):
            count, nelements = 1 << level // 2, self._least << (level + 1) // 2
            if start >= self._last:
                return
            if level < self._inline:
                blocks, bitmap = addresses[used : used + count], b""
                used += count
            else:
                blocks, bitmap = self._super(addresses[self._blocks + level - self._inline], count, nelements)
            for i, block in enumerate(blocks):
                if block != UNDEFINED:
                    yield from self._block(block, start + i * nelements, nelements, bitmap, i)
            start += count * nelements

    def _super(self, address: int, count: int, nelements: int) -> tuple[tuple[int, ...], bytes]:
        if address == UNDEFINED:
            return (), b""
        pages = -(-nelements // self._page) if nelements > self._page else 0
        bitmap = count * ((pages + 7) // 8)
        if bitmap + 8 * count > self._image.size:
            raise FormatError("super block of an extensible array does not fit in the file")
        raw = self._image.checked(address, self._head + bitmap + 8 * count + 4, b"EASB", "extensible array block")
        return struct.unpack_from(f"<{count}Q", raw, self._head + bitmap), raw[self._head : self._head + bitmap]

    def _block(self, address: int, start: int, count: int, bitmap: bytes, i: int) -> Iterator[tuple[int, Entry]]:
        if count <= self._page:
            length = self._head + count * self._size + 4
            raw = self._image.checked(address, length, b"EADB", "extensible array block")
            entries = enumerate(self._table.decode(raw[self._head : -4]))
        else:
            self._image.checked(address, self._head + 4, b"EADB", "extensible array block")
            width = (count // self._page + 7) // 8
            written = bitmap[i * width : (i + 1) * width]
            body = address + self._head + 4
            entries = self._table.pages(body, written, count, self._page, self._size)
        for number, entry in entries:
            yield start + number, entry
