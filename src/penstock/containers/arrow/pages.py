"""Single values of a column of bytes in a Parquet file, such as pictures, without the rest of their row group.

The headers of the pages of a column chunk, or an offset index, say where its values are. Values of an uncompressed
page are read alone, by their places in the file, which are found once. Of a compressed page, or one with numbers of a
dictionary, the page is unpacked. Both are kept in a cache of the caller, and each read is within the chunk that the
footer names.

Other layouts give None, and PyArrow reads them: lists, missing values, pages of version 2, rare encodings and codecs.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.containers.arrow.footer import DATA, DATA_2, DICTIONARY, HEADER, ParquetPage, page_at, page_locations
from penstock.containers.arrow.values import arrow
from penstock.core.arrays import IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import equal_runs, located, offsets_of
from penstock.errors import FormatError, require

PLAIN = 0  # encodings of values
PLAIN_DICTIONARY = 2
RLE_DICTIONARY = 8
ENCODINGS = (PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY)
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD")
_PAGE = 1 << 15  # bytes from which on a page of a written column is full
_SMALL = 1 << 16  # bytes of a page that is read whole to find its values
_HEADER = 256  # bytes that the header of a page of pictures has at most
_MOST = 1 << 24  # values of a page that are looked at one by one
_ENTRY = 300  # bytes of a page in memory, about

_BYTES = "BYTE_ARRAY", "NONE", 0  # types and lists of a leaf of bytes

Take = Callable[[int, int], bytes]
"""Bytes between two places."""


def is_bytes(leaf: Any) -> bool:
    """Return whether a leaf of a Parquet schema is bytes, without text or lists."""
    return (leaf.physical_type, leaf.logical_type.type, leaf.max_repetition_level) == _BYTES


@lru_cache(16)
def stored_leaves(schema: Any) -> dict[str, Any]:
    """Return options of PyArrow's writer: bytes are stored as they are, for pictures do not become smaller.

    They are in pages of a few, which an index names, so that behind a URL not much more than one picture is fetched.
    Cost: an empty file, whose footer has the names of the leaves. An Arrow schema can be a key of the cache.
    """
    parquet = require("pyarrow.parquet", "arrow")
    empty = io.BytesIO()
    parquet.ParquetWriter(empty, schema).close()
    leaves = parquet.read_metadata(empty).schema
    pictures = {leaf.path: is_bytes(leaf) for leaf in map(leaves.column, range(len(leaves)))}
    codecs = {path: "none" if stored else "snappy" for path, stored in pictures.items()}
    others = [path for path, stored in pictures.items() if not stored]
    options = {"compression": codecs, "use_dictionary": others}
    if any(pictures.values()):
        options |= {"write_page_index": True, "data_page_size": _PAGE, "write_batch_size": 1}
        options["write_statistics"] = others  # of pictures they would be bytes of two of them in each page
    return options


@dataclass(frozen=True, eq=False)
class _Values:
    """Values of a page: their places in bytes, or in the file if these are None."""

    raw: bytes | None
    places: IntArray


@dataclass(frozen=True, eq=False)
class BytesChunk:
    """The pages of a column chunk of bytes, whose values have a definition level of at most `level`.

    Page `p` is in bytes `begin[p] : end[p]`, its header first, and has the values from `first[p]` on.
    """

    codec: str
    level: int
    unpacked: int
    dictionary: tuple[int, int] | None
    begin: IntArray
    end: IntArray
    first: IntArray

    @classmethod
    def of(cls, take: Take, leaf: Any, level: int) -> BytesChunk:
        """Walk over the headers of a chunk that a footer describes.

        Cost: a read of some hundred bytes for each page.
        """
        begin, end = chunk_range(leaf)
        dictionary: tuple[int, int] | None = None
        spans: list[tuple[int, int]] = []
        counts: list[int] = []
        values = 0
        while values < leaf.num_values:
            page = _page(take, begin, end)
            if page.kind == DICTIONARY and dictionary is None and not spans:
                dictionary = page.begin, page.end
            elif page.kind in (DATA, DATA_2):
                spans.append((page.begin, page.end))
                counts.append(page.values)
                values += page.values
            else:
                raise FormatError(f"expected pages of data, got a page of kind {page.kind}")
            begin = page.end
        if values != leaf.num_values:
            raise FormatError(f"expected pages of {leaf.num_values} values, got {values}")
        return cls._of(leaf, level, dictionary, spans, offsets_of(counts))

    @classmethod
    def indexed(cls, index: bytes, leaf: Any, level: int) -> BytesChunk:
        """Return the chunk from its offset index, as `of`. No page is read."""
        begin, end = chunk_range(leaf)
        pages = np.array(page_locations(index), np.int64).reshape(-1, 3)
        start, first = pages[:, 0], np.append(pages[:, 2], leaf.num_values)
        stop = start + pages[:, 1]
        edges = np.stack([start, stop], 1).ravel()
        if len(pages) and not (begin <= edges[0] and (np.diff(edges) >= 0).all() and edges[-1] <= end):
            raise FormatError(f"expected an offset index of pages within bytes {begin}:{end}, got {edges.tolist()[:8]}")
        if first[0] != 0 or (np.diff(first) < 0).any():
            raise FormatError(f"expected an offset index of {leaf.num_values} rows, got {first.tolist()[:8]}")
        dictionary = (begin, int(start[0])) if leaf.has_dictionary_page and len(pages) else None
        return cls._of(leaf, level, dictionary, edges, first)

    @classmethod
    def _of(cls, leaf: Any, level: int, dictionary: tuple[int, int] | None, spans: Any, first: IntArray) -> BytesChunk:
        begin, end = np.array(spans, np.int64).reshape(-1, 2).T
        return cls(leaf.compression, level, leaf.total_uncompressed_size, dictionary, begin, end, first)

    @property
    def nbytes(self) -> int:
        return _ENTRY + 3 * self.first.nbytes

    def ranges(self, rows: IntArray) -> IntArray:
        """Return where the pages of rows, and the dictionary, begin and end."""
        pages = np.unique(located(self.first, rows)[0])
        dictionary = np.array([] if self.dictionary is None else self.dictionary, np.int64).reshape(-1, 2)
        return np.concatenate([np.stack([self.begin[pages], self.end[pages]], 1), dictionary])

    def read(self, take: Take, rows: IntArray, cache: Cache, places: IntArray) -> list[bytes] | None:
        """Return the values of rows, or None where a page of theirs lacks some or is left to PyArrow.

        `places`, `[rows, 2]` bytes of the file, is filled for all values of these pages that are stored as they are.
        """
        if self.first[-1] != len(places) or (len(rows) and not 0 <= rows.min() <= rows.max() < len(places)):
            message = f"{self.first[-1]} values of the pages, got {rows.max(initial=0)} of {len(places)}"
            raise FormatError(f"expected rows within the {message}")
        blobs: list[bytes] = []
        pages, numbers = located(self.first, rows)
        for page, begin, end in equal_runs(pages):
            values = cache.get((self, page), lambda page=page: self._values(take, page, cache))
            if values is None:
                return None
            if values.raw is None:
                places[self.first[page] : self.first[page + 1]] = values.places
            source = take if values.raw is None else _taken_from(values.raw)
            blobs += [source(*place) for place in values.places[numbers[begin:end]].tolist()]
        return blobs

    def _values(self, take: Take, number: int, cache: Cache) -> tuple[_Values | None, int]:
        """Find the values of a page, or None where some are missing or it is left to PyArrow; and their size."""
        begin, end = int(self.begin[number]), int(self.end[number])
        stored = _taken_from(take(begin, end), begin) if end - begin <= _SMALL else take
        page = _page(stored, begin, end)
        first, last = int(self.first[number]), int(self.first[number + 1])
        if page.kind not in (DATA, DATA_2) or page.values != last - first:
            raise FormatError(f"expected a page of {last - first} values, got {page.values} of kind {page.kind}")
        known = page.kind == DATA and page.encoding in ENCODINGS and self.codec in CODECS
        if not known or page.values > _MOST:
            return None, _ENTRY
        in_place = self.codec == "UNCOMPRESSED" and page.encoding == PLAIN
        raw = b"" if in_place else self._unpacked(stored, page)
        begin, end = (page.data, page.end) if in_place else (0, len(raw))
        within = stored if in_place else _taken_from(raw)
        if self.level:
            size = int.from_bytes(within(begin, _inside(begin + 4, end)), "little")
            begin += 4
            levels = within(begin, _inside(begin + size, end))
            begin += size
            if any((run != self.level).any() for run in packed_numbers(levels, self.level.bit_length(), page.values)):
                return None, _ENTRY
        if page.encoding == PLAIN:
            places = _places(within, begin, end, page.values)
            return _Values(None if in_place else raw, places), places.nbytes + len(raw) + _ENTRY
        dictionary = cache.get((self, "dictionary"), lambda: self._dictionary(take))
        width = within(begin, _inside(begin + 1, end))[0]
        if width > 32:
            raise FormatError(f"expected numbers of at most 32 bits, got {width}")
        chosen = np.concatenate([np.zeros(0, np.int64), *packed_numbers(raw[begin + 1 :], width, page.values)])
        if len(chosen) and chosen.max() >= len(dictionary.places):
            raise FormatError(
                f"expected numbers of the {len(dictionary.places)} values of a dictionary, got {chosen.max()}"
            )
        places = dictionary.places[chosen]
        return _Values(dictionary.raw, places), places.nbytes + _ENTRY

    def _dictionary(self, take: Take) -> tuple[_Values, int]:
        page = None if self.dictionary is None else _page(take, *self.dictionary)
        if page is None or page.kind != DICTIONARY or page.encoding not in (PLAIN, PLAIN_DICTIONARY):
            raise FormatError("expected a dictionary of plain values")
        raw = self._unpacked(take, page)
        places = _places(_taken_from(raw), 0, len(raw), page.values)
        return _Values(raw, places), len(raw) + places.nbytes + _ENTRY

    def _unpacked(self, take: Take, page: ParquetPage) -> bytes:
        raw = take(page.data, page.end)
        if not 0 <= page.unpacked <= self.unpacked:
            raise FormatError(f"expected a page within the {self.unpacked} bytes of its column, got {page.unpacked}")
        if self.codec != "UNCOMPRESSED" and page.unpacked:
            pa = arrow()
            try:
                raw = pa.decompress(raw, page.unpacked, self.codec.lower(), asbytes=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise FormatError(f"expected a page that {self.codec} unpacks, got {error}") from error
        if len(raw) != page.unpacked:
            raise FormatError(f"expected a page of {page.unpacked} bytes, got {len(raw)}")
        return raw


def chunk_range(leaf: Any) -> tuple[int, int]:
    """Return where a column chunk that a footer describes begins and ends."""
    first = leaf.dictionary_page_offset if leaf.has_dictionary_page else leaf.data_page_offset
    begin = min(first, leaf.data_page_offset)
    return begin, begin + leaf.total_compressed_size


def _page(take: Take, begin: int, end: int) -> ParquetPage:
    """Read the header of a page that is within a chunk."""
    try:
        page = page_at(take(begin, min(begin + _HEADER, end)), begin)
    except FormatError:  # statistics make it longer
        page = page_at(take(begin, min(begin + HEADER, end)), begin)
    if page.end > end:
        raise FormatError(f"expected a page within its column chunk, got one that ends at byte {page.end} of {end}")
    return page


def file_bytes(fd: int) -> Take:
    """Return a function that reads bytes of an open file."""

    def take(begin: int, end: int) -> bytes:
        raw = os.pread(fd, end - begin, begin)
        if len(raw) != end - begin:
            raise FormatError(f"expected {end - begin} bytes at byte {begin}, got {len(raw)}")
        return raw

    return take


def _taken_from(raw: bytes, first: int = 0) -> Take:
    return lambda begin, end: raw[begin - first : end - first]


def _inside(place: int, end: int) -> int:
    if place > end:
        raise FormatError(f"expected values within their page, got a place {place - end} bytes behind it")
    return place


def _places(take: Take, begin: int, end: int, count: int) -> IntArray:
    """Return where plain values begin and end: each one is behind its length, in 4 bytes."""
    places: list[tuple[int, int]] = []
    for _ in range(count):
        first = _inside(begin + 4, end)
        begin = _inside(first + int.from_bytes(take(begin, first), "little"), end)
        places.append((first, begin))
    if begin != end:
        raise FormatError(f"expected {count} values in a page, got {end - begin} bytes behind them")
    return np.array(places, np.int64).reshape(-1, 2)


def packed_numbers(raw: bytes, width: int, count: int) -> Iterator[IntArray]:
    """Yield `count` numbers of `width` bits: runs of one number, and packed groups of 8."""
    place, size = 0, (width + 7) // 8
    while count > 0:
        head = shift = 0
        while True:
            byte = raw[_inside(place + 1, len(raw)) - 1]
            head |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                break
            if shift > 28:
                raise FormatError("expected the length of a run in 32 bits, got a longer one")
        if not head >> 1:
            raise FormatError("expected a run of numbers, got an empty one")
        if head & 1:
            end = _inside(place + (head >> 1) * width, len(raw))
            bits = np.unpackbits(np.frombuffer(raw, np.uint8, end - place, place), bitorder="little")
            run = bits.reshape(-1, width) @ (1 << np.arange(width)) if width else np.zeros(count, np.int64)
            run = run[: min(8 * (head >> 1), count)]
        else:
            end = _inside(place + size, len(raw))
            run = np.full(min(head >> 1, count), int.from_bytes(raw[place:end], "little"))
        yield run
        count -= len(run)
        place = end
