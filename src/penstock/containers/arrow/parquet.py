"""A Parquet file whose row groups are decoded one column at a time.

The file is opened for each read, so that any number of files keeps no descriptor open. Footers are in a cache that the
files of a dataset share, because a footer of many columns takes more memory than the rest of the object. A file that
changed since it was opened is an error: its footer would describe other bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow.joined_files import PARQUET, check_one_file, parquet_room
from penstock.containers.arrow.values import arrow
from penstock.containers.cache import Cache
from penstock.core.arrays import IntArray
from penstock.core.boundary import parsing
from penstock.errors import FormatError, require
from penstock.files.listing import read_unchanged
from penstock.files.remote import FileState, Wanted, file_state, filled, open_file, path_or_file, remote_file

_BUFFER = 64 << 10  # bytes of a file that are read at a time for its first row
ENDS = 64 << 10  # bytes at the start and the end of a file that its identity has


@dataclass(frozen=True)
class FileEnds:
    """State of a file, and the bytes at its start and its end, up to `ENDS` each."""

    state: FileState
    head: bytes
    tail: bytes

    @classmethod
    def of(cls, path: Path) -> FileEnds:
        """Read them."""
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
        """Arrow schema."""
        return self._footer()[1]

    def columns(self, groups: Sequence[int], name: str) -> Any:
        """Decode a column of several row groups at once, a fraction of the time of small row groups one by one."""
        return one_array(self._read(groups, name), sum(self.rows[group] for group in groups))

    def column(self, group: int, name: str) -> Any:
        """Decode a column of a row group."""
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
        if name not in self._leaves:
            paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
            self._leaves[name] = paths.index(name) if paths.count(name) == 1 else None
        if (number := self._leaves[name]) is None:
            return None
        leaf = footer.row_group(group).column(number)
        known = leaf.statistics if leaf.physical_type in ("INT32", "INT64", "BOOLEAN") else None
        if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
            return None
        return int(known.min) if known.min == known.max else None

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
        """Return the footer and the Arrow schema."""

        def read() -> tuple[tuple[Any, Any], int]:
            with require("pyarrow.parquet", "arrow").ParquetFile(path_or_file(self.path)) as file:
                return (file.metadata, file.schema_arrow), 4 * file.metadata.serialized_size

        return self._footers.get(self.path, read)


def chunks_of(metadata: Any, schema: Any, groups: Iterable[int], name: str) -> tuple[IntArray, IntArray]:
    """Return where the stored chunks of a column begin and end in its file, one for each of its leaves
    and row group.
    """
    longer = tuple(f"{other}." for other in schema.names if other.startswith(f"{name}."))
    begins: list[int] = []
    ends: list[int] = []
    for group in groups:
        row_group = metadata.row_group(group)
        for leaf in map(row_group.column, range(row_group.num_columns)):
            path = f"{leaf.path_in_schema}."
            if path.startswith(f"{name}.") and not path.startswith(longer):
                first = leaf.dictionary_page_offset if leaf.has_dictionary_page else leaf.data_page_offset
                begins.append(min(first, leaf.data_page_offset))
                ends.append(begins[-1] + leaf.total_compressed_size)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def one_array(column: Any, rows: int) -> Any:
    """Return the chunks of a column as one valid array. Raises `FormatError` for another number of rows."""
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which copies
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    column.validate(full=True)
    if len(column) != rows:
        raise FormatError(f"expected {rows} rows, got {len(column)}")
    return column
