"""Parquet files, and Arrow files behind URLs, of which single columns of single blocks are read.

A Parquet file is opened for each read, so that any number of files keeps no descriptor open; footers are in a cache
that the files of a dataset share. A file that changed since it was opened is an error: its footer would describe other
bytes.

Files that were put one behind the other (`cat a.parquet b.parquet`) are refused: the footer at the end is of the last
file, and would decode bytes of the first one, if they are alike without an error. Where the offsets leave more room
than small indexes need, magic bytes of an end and a beginning tell whether the last file begins behind another one.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow.footer import offset_indexes
from penstock.containers.arrow.pages import BytesChunk, Take, chunk_range, file_bytes, is_bytes
from penstock.containers.arrow.values import arrow
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.ragged import equal_runs, located, offsets_of
from penstock.errors import FormatError, require
from penstock.files.listing import read_descriptor, read_unchanged
from penstock.files.remote import FileState, Wanted, file_state, filled, open_file, path_or_file, remote_file

WINDOW = 1 << 16
"""Bytes of indexes between the data and the footer that are expected at most."""
PARQUET = b"PAR1PAR1"
ARROW = b"ARROW1ARROW1\0\0"
_END_OF_STREAM = 8
_BUFFER = 64 << 10  # bytes of a file that are read at a time for its first row
ENDS = 64 << 10  # bytes at the start and the end of a file that its identity has
_END = 8  # bytes behind the footer of a Parquet file
_PLACES = 150  # bytes of an index in memory beside its own, about
_FOOTER = 16  # reads, at most, by which PyArrow opens a file
_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])


def check_one_file(path: Path, room: int, magic: bytes) -> None:
    """Raise `FormatError` if a file has several files in it."""
    if room <= _END_OF_STREAM:
        return
    first = max(room - WINDOW, 0)
    with open_file(path, buffer=1) as file:
        file.seek(first)
        place = file.read(room + len(magic) - first).rfind(magic)
    if place >= 0:
        begin = first + place + len(magic.rstrip(b"\0")) // 2
        message = f"expected one file, got several, one behind the other; the last begins at byte {begin}"
        raise FormatError(f"{message}; split them", path=path)


def parquet_room(footer: Any, size: int) -> int:
    """Return the bytes between the data of a Parquet file and its footer."""
    end = 4
    if footer.num_row_groups and footer.num_columns:
        last = footer.row_group(footer.num_row_groups - 1).column(footer.num_columns - 1)
        end = chunk_range(last)[1]
    return size - _END - footer.serialized_size - end


def arrow_footer(data: ByteArray) -> ByteArray:
    return data[-10 - int.from_bytes(data[-10:-6].tobytes(), "little") : -10]


def arrow_room(footer: ByteArray, size: int) -> int:
    """Return the bytes between the last record batch of an Arrow file and its footer."""

    def number(place: int, dtype: str) -> int:
        return int(footer[place : place + np.dtype(dtype).itemsize].view(dtype)[0])

    table = number(0, "<u4")
    fields = table - number(table, "<i4")  # of a table of FlatBuffers
    end = 0
    for field in (2, 3):  # dictionaries, record batches
        offset = number(fields + 4 + 2 * field, "<u2") if number(fields, "<u2") > 4 + 2 * field else 0
        if not offset:
            continue
        vector = table + offset
        vector += number(vector, "<u4")
        count = number(vector, "<u4")
        blocks = footer[vector + 4 : vector + 4 + count * _BLOCK.itemsize].view(_BLOCK)
        end = max([end, *(blocks["offset"] + blocks["metadata"] + blocks["body"]).tolist()])
    return size - 10 - len(footer) - end


@dataclass(frozen=True)
class FileEnds:
    """State of a file, and the bytes at its start and its end, up to `ENDS` each."""

    state: FileState
    head: bytes
    tail: bytes

    @classmethod
    def of(cls, path: Path) -> FileEnds:
        state = file_state(path)
        with open_file(path) as file:
            head = file.read(ENDS)
            file.seek(max(state.size - ENDS, 0))
            return cls(state, head, file.read(ENDS))

    @property
    def identity(self) -> list[int | str]:
        """Size, time, and the digest of both ends: files written in one clock tick have one time."""
        return [self.state.size, self.state.mtime_ns, hashlib.sha256(self.head + self.tail).hexdigest()]


class ParquetFile:
    """A Parquet file that is open only while it is read. Cost of the constructor: reading the footer."""

    def __init__(self, path: Path, footers: Cache) -> None:
        self.path = path
        self._footers = footers
        self._leaves: dict[str, int | None] = {}  # number by path, of columns that have one leaf
        self._levels: dict[str, int | None] = {}  # definition level of values by path, of leaves of bytes
        self._state = file_state(path)
        with parsing(path):
            footer, _ = self._footer()
            check_one_file(path, parquet_room(footer, self._state.size), PARQUET)
            self.rows: list[int] = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    @cached_property
    def identity(self) -> list[int | str]:
        """Size, time, and the digest of both ends. Cost: reads up to 128 KiB at first use."""
        return FileEnds.of(self.path).identity

    @property
    def schema(self) -> Any:
        return self._footer()[1]

    def by_group(self, rows: IntArray) -> list[tuple[int, IntArray]]:
        """Return sorted rows of the file by row groups, as rows of these."""
        if len(self.rows) == 1:
            return [(0, rows)]
        groups, own = located(offsets_of(self.rows), rows)
        return [(number, own[begin:end]) for number, begin, end in equal_runs(groups)]

    def columns(self, groups: Sequence[int], name: str) -> Any:
        """Decode a column of several row groups at once, a fraction of the time of small row groups one by one."""
        return one_array(self._read(groups, name), sum(self.rows[group] for group in groups))

    def column(self, group: int, name: str) -> Any:
        return one_array(self._read([group], name), self.rows[group])

    def first(self, name: str) -> Any:
        """Return an Arrow array of the first row of a column. Cost: its first page."""

        def read(path: Path) -> Any:
            parquet = require("pyarrow.parquet", "arrow")
            with parquet.ParquetFile(path_or_file(path), metadata=self._footer()[0], buffer_size=_BUFFER) as file:
                return next(file.iter_batches(1, columns=[name], use_threads=False)).column(name)

        with parsing(self.path, name):
            return one_array(read_unchanged(self.path, self._state, read), 1)

    def constant(self, group: int, name: str) -> int | None:
        """Return the value that all rows of a row group have in a column of whole numbers or booleans, or None."""
        footer = self._footer()[0]
        if (number := self.leaf(name)) is None:
            return None
        leaf = footer.row_group(group).column(number)
        known = leaf.statistics if leaf.physical_type in ("INT32", "INT64", "BOOLEAN") else None
        if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
            return None
        return int(known.min) if known.min == known.max else None

    def leaf(self, path: str) -> int | None:
        """Return the number of a leaf, or None if there is none or several."""
        if path not in self._leaves:
            footer = self._footer()[0]
            paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
            self._leaves[path] = paths.index(path) if paths.count(path) == 1 else None
        return self._leaves[path]

    def values(self, path: str, rows: IntArray, cache: Cache) -> list[bytes] | None:
        """Return values of a leaf of bytes in sorted rows of the file, or None for a layout that `column` reads.

        Cost: bytes of these values alone, if they are stored uncompressed. The cache keeps where they are.
        """
        if self._level(path) is None:
            return None
        places = self._places(path, cache)
        known = places[rows]
        flat: list[int] = known.ravel().tolist()
        if 0 in flat:  # another thread may have written one of two
            return self._values_of_pages(path, rows, places, cache)

        def read(fd: int) -> list[bytes]:
            return list(map(file_bytes(fd), flat[::2], flat[1::2]))

        return read_descriptor(self.path, self._state, known, read)

    def _values_of_pages(self, path: str, rows: IntArray, places: IntArray, cache: Cache) -> list[bytes] | None:
        """Return values by their pages, which also say where the values are: `places` keeps it."""
        wanted = self.by_group(rows)
        chunks = self._chunks(path, wanted, cache)
        first = offsets_of(self.rows)

        def read(fd: int) -> list[bytes] | None:
            take = file_bytes(fd)
            blobs: list[bytes] = []
            for (group, mine), known in zip(wanted, chunks, strict=True):
                chunk = self._walked(take, group, path, cache) if known is None else known
                part = chunk.read(take, mine, cache, places[first[group] : first[group + 1]])
                if part is None:
                    return None
                blobs += part
            return blobs

        return read_descriptor(self.path, self._state, self._pages(path, wanted, chunks), read)

    def value_ranges(self, path: str, rows: IntArray, cache: Cache) -> list[Wanted]:
        """Return the bytes behind a URL that `values` would fetch; none for a file on this machine.

        These are pages if the file has a page index, which is fetched here, and otherwise whole column chunks.
        """
        if (remote := remote_file(self.path)) is None or self._level(path) is None:
            return []
        places = self._places(path, cache)[rows]
        if not places.all():
            wanted = self.by_group(rows)
            places = self._pages(path, wanted, self._chunks(path, wanted, cache))
        return [(remote, *places.T)]

    def _places(self, path: str, cache: Cache) -> IntArray:
        """Return `[rows, 2]` bytes of the file, of values that are stored as they are; 0 before these were found."""
        return cache.array((self, path), lambda: np.zeros((sum(self.rows), 2), np.int64))

    def _pages(
        self, path: str, wanted: Sequence[tuple[int, IntArray]], chunks: Sequence[BytesChunk | None]
    ) -> IntArray:
        """Return where the pages of rows behind a URL begin and end, or their column chunk where no page is known."""
        if remote_file(self.path) is None:
            return np.zeros((0, 2), np.int64)
        parts = [
            np.array([chunk_range(self._stored(group, path))]) if chunk is None else chunk.ranges(rows)
            for (group, rows), chunk in zip(wanted, chunks, strict=True)
        ]
        return np.concatenate(parts)

    def _chunks(self, path: str, wanted: Sequence[tuple[int, IntArray]], cache: Cache) -> list[BytesChunk | None]:
        """Return the pages of each row group, as far as they are known without a look at the pages."""
        known: list[BytesChunk | None] = [cache.peek((self, group, path)) for group, _ in wanted]
        if None not in known or remote_file(self.path) is None:
            return known
        if not (indexes := self._indexes(path)):
            return known

        def indexed(group: int) -> tuple[BytesChunk, int]:
            chunk = BytesChunk.indexed(indexes[group], self._stored(group, path), self._level(path) or 0)
            return chunk, chunk.nbytes

        pairs = zip(wanted, known, strict=True)
        return [
            cache.get((self, group, path), partial(indexed, group)) if chunk is None else chunk
            for (group, _), chunk in pairs
        ]

    def _indexes(self, path: str) -> list[bytes]:
        """Return the index of the pages of a leaf, of each row group; nothing if one has none.

        Cost: parses the footer, once. All indexes are fetched at once, for they are next to each other.
        """

        def fetched() -> tuple[list[bytes], int]:
            groups = range(len(self.rows))
            if not all(self._stored(group, path).has_offset_index for group in groups):
                return [], _PLACES
            end = self._state.size - _END
            (footer,) = self._fetched([(end - self._footer()[0].serialized_size, end)])
            indexes = self._fetched(offset_indexes(footer, self.leaf(path) or 0))
            return indexes, _PLACES * len(indexes) + sum(map(len, indexes))

        return self._footers.get((self.path, path), fetched)

    def _fetched(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return bytes of the file."""
        ranges = np.array(places, np.int64).reshape(-1, 2)
        begin, end = ranges.T
        if not ((begin >= 0) & (begin <= end) & (end <= self._state.size)).all():
            raise FormatError(f"expected an index within the {self._state.size} bytes of the file, got {places[:8]}")
        return read_descriptor(self.path, self._state, ranges, lambda fd: [file_bytes(fd)(*place) for place in places])

    def _walked(self, take: Take, group: int, path: str, cache: Cache) -> BytesChunk:
        def walked() -> tuple[BytesChunk, int]:
            chunk = BytesChunk.of(take, self._stored(group, path), self._level(path) or 0)
            return chunk, chunk.nbytes

        return cache.get((self, group, path), walked)

    def _stored(self, group: int, path: str) -> Any:
        """Return what the footer says about a column chunk, which is within the file."""
        leaf = self._footer()[0].row_group(group).column(self.leaf(path))
        begin, end = chunk_range(leaf)
        if not 4 <= begin <= end <= self._state.size:
            raise FormatError(
                f"expected a column chunk within the {self._state.size} bytes of the file, got {begin}:{end}"
            )
        return leaf

    def _level(self, path: str) -> int | None:
        """Return the definition level of the values of a leaf of bytes, or None of any other."""
        if path not in self._levels:
            number = self.leaf(path)
            leaf = None if number is None else self._footer()[0].schema.column(number)
            self._levels[path] = leaf.max_definition_level if leaf is not None and is_bytes(leaf) else None
        return self._levels[path]

    def _read(self, groups: Sequence[int], name: str) -> Any:
        def read(path: Path) -> Any:
            parquet = require("pyarrow.parquet", "arrow")
            # PyArrow asks for one chunk after the other; they are fetched at once, and nothing around them.
            with (
                filled(self._ranges(groups, name)),
                parquet.ParquetFile(path_or_file(path, 1), metadata=self._footer()[0]) as file,
            ):
                # The threads of Arrow do not survive a fork.
                return file.read_row_groups(groups, columns=[name], use_threads=False).column(name)

        return read_unchanged(self.path, self._state, read)

    def remote_ranges(self, group: int, name: str) -> list[Wanted]:
        """Return the bytes behind a URL that `column` would fetch; none for a file on this machine."""
        return self._ranges([group], name)

    def _ranges(self, groups: Sequence[int], name: str) -> list[Wanted]:
        remote = remote_file(self.path)
        if remote is None:
            return []
        metadata, schema = self._footer()
        begin, end = chunks_of(metadata, schema, groups, name)
        return [(remote, begin, end)]

    def _footer(self) -> tuple[Any, Any]:
        def read() -> tuple[tuple[Any, Any], int]:
            with require("pyarrow.parquet", "arrow").ParquetFile(path_or_file(self.path)) as file:
                return (file.metadata, file.schema_arrow), 4 * file.metadata.serialized_size

        return self._footers.get(self.path, read)


def chunks_of(metadata: Any, schema: Any, groups: Iterable[int], name: str) -> tuple[IntArray, IntArray]:
    """Return where the stored chunks of a column begin and end, one for each of its leaves and row groups."""
    longer = tuple(f"{other}." for other in schema.names if other.startswith(f"{name}."))
    chunks: list[tuple[int, int]] = []
    for group in groups:
        row_group = metadata.row_group(group)
        for leaf in map(row_group.column, range(row_group.num_columns)):
            path = f"{leaf.path_in_schema}."
            if path.startswith(f"{name}.") and not path.startswith(longer):
                chunks.append(chunk_range(leaf))
    begin, end = np.array(chunks, np.int64).reshape(-1, 2).T
    return begin, end


def one_array(column: Any, rows: int) -> Any:
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which copies
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    column.validate(full=True)
    if len(column) != rows:
        raise FormatError(f"expected {rows} rows, got {len(column)}")
    return column


class RangedArrowFile:
    """An Arrow file of which parts are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._described: dict[tuple[int, int], bytes] = {}  # footer and descriptions of record batches, by range
        self._named: dict[tuple[int, str], tuple[IntArray, IntArray]] = {}
        self.schema: Any = self._reader(None)[0].schema
        self._check_one_file()
        narrowest, file = self._reader(min(range(len(self.schema)), key=self._width, default=None))
        self.rows: list[int] = []
        for number in range(narrowest.num_record_batches):
            file.keeping = 1
            self.rows.append(narrowest.get_batch(number).num_rows)

    def _check_one_file(self) -> None:
        """Raise `FormatError` if the file has several files in it. PyArrow read the footer."""
        size = file_state(self._path).size
        for (place, _), raw in self._described.items():
            footer = np.frombuffer(raw, np.uint8)
            if place + len(raw) == size - 10:
                check_one_file(self._path, arrow_room(footer, size), ARROW)
            elif place + len(raw) == size and len(raw) > 10:
                check_one_file(self._path, arrow_room(arrow_footer(footer), size), ARROW)

    def _reader(self, column: int | None) -> tuple[Any, _DescribedFile]:
        """A reader of one column, and its file. Readers are not shared by threads."""
        pa = arrow()
        fields = [] if column is None else [column]
        file = _DescribedFile(self._path, self._described)
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
        file.keeping = 0
        return reader, file

    def _width(self, column: int) -> int:
        """Bits of a row; types without a fixed width are wider than all others."""
        try:
            return int(self.schema.field(column).type.bit_width)
        except ValueError:
            return 1 << 62

    def remote_ranges(self, batch: int, name: str) -> list[Wanted]:
        remote = remote_file(self._path)
        if remote is None:
            return []
        if (batch, name) not in self._named:
            self._named[batch, name] = self._asked(batch, self.schema.names.index(name))
        return [(remote, *self._named[batch, name])]

    def _asked(self, batch: int, column: int) -> tuple[IntArray, IntArray]:
        """Where the ranges begin and end that PyArrow reads of a column."""
        reader, file = self._reader(column)
        file.naming = True
        with suppress(arrow().ArrowException, OSError, ValueError):  # zeros may be no valid buffers
            reader.get_batch(batch)
        begin, end = np.array(file.missing_ranges, np.int64).reshape(-1, 2).T
        return begin, end

    def column(self, batch: int, name: str) -> Any:
        return self._reader(self.schema.names.index(name))[0].get_batch(batch).column(0)


class _DescribedFile(io.RawIOBase):
    """A file whose footer and descriptions of record batches are read once."""

    def __init__(self, path: Path, described: dict[tuple[int, int], bytes]) -> None:
        super().__init__()
        self._file = open_file(path, buffer=1)
        self._described = described
        self.keeping = _FOOTER
        """How many of the next reads are kept."""
        self.naming = False
        """Whether other reads are only noted, and give zeros."""
        self.missing_ranges: list[tuple[int, int]] = []

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    @override
    def tell(self) -> int:
        return self._file.tell()

    @override
    def read(self, size: int = -1, /) -> bytes:
        place = self.tell(), size
        if (raw := self._described.get(place)) is None and self.naming:
            self.missing_ranges.append((place[0], place[0] + size))
            raw = bytes(size)
        if raw is not None:
            self.seek(place[0] + size)
            return raw
        raw = self._file.read(size)
        if self.keeping:
            self.keeping -= 1
            self._described[place] = raw
        return raw

    @override
    def close(self) -> None:
        self._file.close()
        super().close()
