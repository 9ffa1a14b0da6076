"""Files of a table, as blocks of rows that are decoded together.

A block is a row group of a Parquet file, a record batch of an Arrow file, or all rows of JSON-lines files. Arrow files
are mapped and stay in place; behind a URL their columns are fetched for each block. Parquet files are opened for each
block (`containers/arrow`). JSON lines are parsed once, when the table is opened.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import FileEnds, ParquetFile, RangedArrowFile, arrow, one_array
from penstock.containers.arrow.files import ARROW, arrow_footer, arrow_room, check_one_file
from penstock.core.arrays import ByteArray
from penstock.core.boundary import json_object, parsing
from penstock.core.cache import Cache
from penstock.core.narrowing import is_dict, is_list
from penstock.core.order import in_natural_order, natural
from penstock.errors import FormatError
from penstock.files.listing import list_files, spread
from penstock.files.mapping import check_mapped, map_file
from penstock.files.remote import Wanted, open_file, read_bytes, read_in_order, remote_file
from penstock.formats.base.account import LeftOut, unused_beside
from penstock.formats.base.signatures import is_narrower_table

Kind = Literal["parquet", "arrow", "arrow stream", "json lines"]

SUFFIXES = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson")
JSON_SUFFIXES = (".jsonl", ".ndjson")
MARK = b"\xef\xbb\xbf"  # by which some editors say that a file is UTF-8
STATE = "state.json"  # lists the shards of a saved Hugging Face dataset
INFO = "dataset_info.json"
SPLITS = "dataset_dict.json"  # lists the splits of a saved Hugging Face dataset
_BESIDE = (".json", ".md", ".txt", ".lock", ".crc")  # files of a folder of shards that describe the shards
_HIDDEN = (".", "_", "cache-", "tmp")  # of Spark, and caches of Hugging Face
_HEAD = 64 << 10  # bytes of a file that are inspected


def kind_of(path: Path) -> Kind | None:
    """Return the kind of table in a file, by its first bytes, or None for another file."""
    with open_file(path) as file:
        return kind_by(file.read(_HEAD), path.suffix)


def kind_by(head: bytes, suffix: str) -> Kind | None:
    """Return the kind of table in a file, or None. Streams and JSON lines have no magic: the suffix must agree."""
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1":
        return "arrow"
    if suffix == ".arrow" and begins_stream(head):
        return "arrow stream"
    return "json lines" if suffix in JSON_SUFFIXES and head.removeprefix(MARK).lstrip()[:1] == b"{" else None


def begins_stream(head: bytes) -> bool:
    """Return whether an Arrow stream begins with these bytes: a marker, and the size of its schema."""
    return head[:4] == b"\xff\xff\xff\xff" and int.from_bytes(head[4:8], "little", signed=True) > 0


def instead_of_table(path: Path) -> str:
    """Return what was expected of a file that is no table, and what it is."""
    with open_file(path) as file:
        begins = file.read(16)
    other = f"a file that begins {begins!r}" if begins else "no bytes"
    return f"expected a file of a Parquet, Arrow or JSON-lines table, got {other}"


def unused_in(path: Path | Sequence[Path], files: Sequence[Path]) -> list[LeftOut]:
    """Return everything in a folder that is not a file of its table, nor describes the table."""
    used = {*(file.name for file in files), STATE, INFO}
    expected = f"files of the table, which end with {', '.join(SUFFIXES)}"
    return unused_beside(path, used.__contains__, expected, _HIDDEN)


def files_at(path: Path | Sequence[Path]) -> Sequence[Path]:
    """Return the file, the given files, or the shards of a folder, which a saved Hugging Face dataset lists."""
    if not isinstance(path, Path):
        return list(path)
    if not path.is_dir():
        return [path]
    if (path / SPLITS).is_file():
        splits = read_object(path / SPLITS).get("splits")
        raise FormatError(
            f"expected one split, got a folder of the splits {splits}; open one of its folders", path=path
        )
    if (path / STATE).is_file():
        entries: Any = read_object(path / STATE).get("_data_files")
        names: list[Any] = [e.get("filename") for e in entries if is_dict(e)] if is_list(entries) else []
        if not names or not all(isinstance(name, str) and name == Path(name).name for name in names):
            raise FormatError(f"expected names of shards under _data_files, got {entries}", path=path / STATE)
        return [path / name for name in names]
    return list_files(path, _is_shard)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small file."""
    return json_object(read_bytes(path), path)


def has_table(path: Path) -> bool:
    """Return whether there is a table: a file of one of the kinds, or a folder with nothing but shards."""
    if is_narrower_table(path):
        return False
    if not path.is_dir():
        return path.is_file() and kind_of(path) is not None
    if (path / SPLITS).is_file():
        return True
    if (path / STATE).is_file():
        return "_data_files" in read_object(path / STATE)
    with os.scandir(path) as entries:
        shards = [entry for entry in entries if _suffix(entry.name) not in _BESIDE and entry.name[0] not in "._"]
        if not shards or not all(_is_shard(entry.name) and entry.is_file() for entry in shards):
            return False
    names = [entry.name for entry in shards]
    first = [min(names, key=natural)]  # without sorting all, if it tells
    return any(kind_of(path / name) is not None for name in chain(first, spread(in_natural_order(names))))


def _is_shard(name: str) -> bool:
    return name.endswith(SUFFIXES) and name[0] not in "._"


def _suffix(name: str) -> str:
    """The suffix of a name, as `Path` has it."""
    return os.path.splitext(name)[1]


LINES = 4096  # lines of JSON that become Arrow arrays at a time


class TableShard(ABC):
    """One file of a table: its schema, the rows of each block, and the columns of a block."""

    schema: Any
    rows: list[int]
    together: int = 0  # rows up to which blocks are decoded at once where columns of all blocks are read
    behind: int | None = None  # first byte of what follows the end of the content and is no table

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def identity(self) -> list[int | str]:
        """Size, time, and the digest of the ends of the file. Cost: reads up to 128 KiB at first use."""
        return FileEnds.of(self.path).identity

    @abstractmethod
    def column(self, block: int, name: str) -> Any:
        """Return a column of a block as one Arrow array."""

    def columns(self, blocks: Sequence[int], name: str) -> Any:
        """Return a column of several blocks, at least one, as one Arrow array."""
        parts = [self.column(block, name) for block in blocks]
        return parts[0] if len(parts) == 1 else arrow().concat_arrays(parts)

    def constant(self, block: int, name: str) -> int | None:
        """Return the integer or boolean that all rows of a block have in a column, or None if that is not known."""
        return None

    def remote_ranges(self, block: int, name: str) -> list[Wanted]:
        """Return the bytes behind a URL that `column` fetches. The default is none: the file is on this machine."""
        return []

    def check(self) -> None:
        """Raise `FormatError` if mapped bytes are no longer there."""


class ParquetShard(TableShard):
    """A Parquet file. Cost of opening: its footer."""

    together = 1 << 20

    def __init__(self, path: Path, footers: Cache) -> None:
        self._file = ParquetFile(path, footers)
        super().__init__(path)
        self.schema = self._file.schema
        self.rows = self._file.rows

    def column(self, block: int, name: str) -> Any:
        return self._file.column(block, name)

    @override
    def columns(self, blocks: Sequence[int], name: str) -> Any:
        return self._file.columns(blocks, name)

    @override
    def constant(self, block: int, name: str) -> int | None:
        return self._file.constant(block, name)

    @override
    def remote_ranges(self, block: int, name: str) -> list[Wanted]:
        return self._file.remote_ranges(block, name)


class ArrowShard(TableShard):
    """An Arrow file, or streams of one schema, one behind the other, mapped."""

    def __init__(self, path: Path, *, stream: bool) -> None:
        super().__init__(path)
        pa = arrow()
        self._raw: ByteArray = map_file(path)
        if stream:
            self.schema, self._batches = self._streams()
        else:
            reader = pa.ipc.open_file(pa.py_buffer(self._raw))
            check_one_file(path, arrow_room(arrow_footer(self._raw), len(self._raw)), ARROW)
            self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            self.schema = reader.schema
        for batch in self._batches:
            batch.validate()  # sizes and buffers, so that no memory is allocated for a false size
        self.rows = [batch.num_rows for batch in self._batches]

    def _streams(self) -> tuple[Any, list[Any]]:
        """The schema and the record batches of all streams in the file."""
        pa = arrow()
        file = pa.BufferReader(pa.py_buffer(self._raw))
        schema: Any = None
        batches: list[Any] = []
        while schema is None or begins_stream(self._raw[file.tell() :][:8].tobytes()):
            begin = file.tell()
            reader = pa.ipc.open_stream(file)
            schema = schema or reader.schema
            if not reader.schema.equals(schema):
                message = f"expected streams of the columns {schema.names}, got {reader.schema.names} from byte {begin}"
                raise FormatError(f"{message}; write them to two files", path=self.path)
            batches += list(reader)
        if self._raw[file.tell() :].any():
            self.behind = file.tell()
        return schema, batches

    def check(self) -> None:
        check_mapped(self._raw)

    def column(self, block: int, name: str) -> Any:
        """Return the column of a record batch, after a check of its offsets."""
        self.check()
        return one_array(self._batches[block].column(name), self.rows[block])


class RangedArrowShard(TableShard):
    """An Arrow file behind a URL, of which the columns of record batches are fetched when they are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = RangedArrowFile(path)
        self.schema = self._file.schema
        self.rows = self._file.rows

    @override
    def column(self, block: int, name: str) -> Any:
        return one_array(self._file.column(block, name), self.rows[block])

    @override
    def remote_ranges(self, block: int, name: str) -> list[Wanted]:
        return self._file.remote_ranges(block, name)


class JsonShard(TableShard):
    """Files of JSON lines, in memory as one Arrow table, because a column has one type in all files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths[0])
        self._paths = paths
        pa = arrow()
        tables: list[Any] = []
        for path in paths:
            with parsing(path):
                tables += _json_tables(path)
        with parsing(paths[0].parent):
            table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
            self._columns = {
                name: _regular(one_array(table.column(name), table.num_rows)) for name in table.column_names
            }
        self.schema = pa.schema([(name, column.type) for name, column in self._columns.items()])
        self.rows = [table.num_rows]

    @cached_property
    def identity(self) -> list[int | str]:
        return [entry for path in self._paths for entry in FileEnds.of(path).identity]

    @override
    def column(self, block: int, name: str) -> Any:
        return self._columns[name]


def _json_tables(path: Path) -> list[Any]:
    """Return JSON lines as Arrow tables. Empty lines are skipped; a column that a line lacks is missing there."""
    pa = arrow()
    tables: list[Any] = []
    with read_in_order(path) as file:
        lines = ((number, line) for number, line in enumerate(_unmarked(file), 1) if line.strip())
        while block := list(islice(lines, LINES)):
            rows = [json_object(line, f"{path}:{number}") for number, line in block]
            names = dict.fromkeys(name for row in rows for name in row)
            with parsing(path, f"lines {block[0][0]} to {block[-1][0]}"):
                tables.append(pa.table({name: pa.array([row.get(name) for row in rows]) for name in names}))
    if not tables:
        raise FormatError("expected at least one line, got none", path=path)
    return tables


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without the mark of UTF-8 at their start."""
    rest = iter(lines)
    yield from (line.removeprefix(MARK) for line in islice(rest, 1))
    yield from rest


def _regular(array: Any) -> Any:
    """Return an array with lists of a fixed size where all lists have one length, also in structs and lists."""
    pa = arrow()
    if array.null_count or not len(array):
        return array
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays([_regular(inner) for inner in array.flatten()], names=names)
    if not pa.types.is_list(array.type):
        return array
    values = _regular(array.flatten())
    lengths = np.diff(array.offsets.to_numpy(zero_copy_only=False))
    if lengths[0] > 0 and (lengths == lengths[0]).all():
        return pa.FixedSizeListArray.from_arrays(values, int(lengths[0]))
    return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), values)


def open_shards(paths: Sequence[Path], footers: Cache) -> tuple[list[TableShard], list[Path]]:
    """Open the files of a table. Return them, and the files that are no tables, if others are."""
    kinds: list[Kind | None] = [kind_of(path) for path in paths]
    tables = [path for path, kind in zip(paths, kinds, strict=True) if kind is not None]
    others = [path for path, kind in zip(paths, kinds, strict=True) if kind is None]
    if not tables and paths:
        raise FormatError(instead_of_table(paths[0]), path=paths[0])
    if tables and set(kinds) <= {"json lines", None}:
        return [JsonShard(tables)], others
    opened = (open_shard(path, kind, footers) for path, kind in zip(paths, kinds, strict=True) if kind is not None)
    return list(opened), others


def open_shard(path: Path, kind: Kind | None, footers: Cache) -> TableShard:
    """Open a file of a table. Raises as `open_shards` does."""
    with parsing(path):
        if kind == "parquet":
            return ParquetShard(path, footers)
        if kind == "arrow" and remote_file(path) is not None:
            return RangedArrowShard(path)
        if kind in ("arrow", "arrow stream"):
            return ArrowShard(path, stream=kind == "arrow stream")
        raise FormatError(
            "expected JSON lines alone, got other tables next to them" if kind else instead_of_table(path)
        )
