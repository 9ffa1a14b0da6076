"""Columns of one episode in Arrow: from arrays of Arrow to NumPy and back. Needs PyArrow (the extra `arrow`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import ParquetFile, RangedArrowFile, arrow, chunks_of, plain_array, plain_type
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.boundary import is_of_data, parsing
from penstock.core.cache import Cache
from penstock.core.columns import under
from penstock.core.narrowing import is_dict, is_list
from penstock.core.ragged import Array, Ragged
from penstock.core.spaces import Box, MultiBinary, MultiDiscrete, Space
from penstock.core.spec import Align, Kind
from penstock.errors import FormatError, PenstockError, SpecError, require
from penstock.files.mapping import check_mapped, map_file
from penstock.files.remote import Wanted, file_state, path_or_file, range_of, read_bytes, remote_file
from penstock.formats.minari.columns import FLAGS, required

ALIGNS = b"penstock.align"  # schema metadata: which optional columns have not T + 1 rows, as JSON
_ENTRY = 200  # bytes of an entry of the places of columns, about
_OPENED = 1 << 16  # bytes of an opened Arrow file, about
_OPENED_PARQUET = 1 << 11  # the same of a Parquet file, whose footer is in another cache
MAPPED = 1 << 20  # bytes from which a file is mapped instead of read
SHAPE = b"shape"  # field metadata: the shape of a row, as "2,3"


@dataclass(frozen=True)
class ArrowColumn:
    """How a file stores one column: `rows` counted by `align`; `images` for JPEG frames."""

    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    align: Align
    images: bool = False


def read_schema(path: Path) -> tuple[Any, int]:
    """Schema and number of rows of a part. Cost: its footer."""
    pa = arrow()
    try:
        if path.suffix == ".parquet":
            meta = require("pyarrow.parquet", "arrow").read_metadata(path_or_file(path))
            return meta.schema.to_arrow_schema(), int(meta.num_rows)
        if remote_file(path) is not None:
            ranged = RangedArrowFile(path)
            return ranged.schema, sum(ranged.rows)
        reader = pa.ipc.open_file(pa.py_buffer(map_file(path)))
        return reader.schema, sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
    except (pa.ArrowException, OSError, ValueError) as error:
        _require_of_data(error)
        raise FormatError(f"expected a whole {path.suffix[1:]} file, got {error}", path=path) from error


def _require_of_data(error: Exception) -> None:
    """Raise an error of the system or of a server again: no episode may be left out for it, as for damaged data."""
    if isinstance(error, OSError) and not is_of_data(error):
        raise error


def is_small(path: Path) -> bool:
    """Return whether a file is fetched whole."""
    return file_state(path).size < MAPPED


def remote_ranges(path: Path, name: str, places: Cache) -> list[Wanted]:
    """Return the bytes behind a URL that `EpisodeFile.column` fetches; none for a file on this machine."""
    remote = remote_file(path)
    if remote is None:
        return []
    if is_small(path):
        return [range_of(remote, 0, remote.state.size)]

    def found() -> tuple[tuple[IntArray, IntArray], int]:
        if path.suffix == ".parquet":
            with require("pyarrow.parquet", "arrow").ParquetFile(path_or_file(path)) as file:
                metadata = file.metadata
                begin, end = chunks_of(metadata, file.schema_arrow, range(metadata.num_row_groups), name)
        else:
            ranged = RangedArrowFile(path)
            parts = [part for i in range(len(ranged.rows)) for part in ranged.remote_ranges(i, name)]
            begin = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
            end = np.concatenate([np.zeros(0, np.int64), *(part[2] for part in parts)])
        return (begin, end), begin.nbytes + end.nbytes + _ENTRY

    return [(remote, *places.get((path, name), found))]


class EpisodeFile:
    """The file of an episode: small Arrow files are read, large ones mapped or fetched by the column. Parquet files are
    open while they are read.
    """

    def __init__(self, path: Path, footers: Cache) -> None:
        self._path = path
        pa = arrow()
        self._raw: memoryview | ByteArray = memoryview(b"")
        try:
            if path.suffix == ".parquet":
                self._file: Any = ParquetFile(path, footers)
                return
            small = path.stat().st_size < MAPPED
            if remote_file(path) is not None and not small:
                self._file = RangedArrowFile(path)
                return
            self._raw = memoryview(read_bytes(path)) if small else map_file(path)
            self._file = pa.ipc.open_file(pa.py_buffer(self._raw)).read_all()
        except (pa.ArrowException, OSError, ValueError) as error:
            _require_of_data(error)
            raise FormatError(f"expected a whole {path.suffix[1:]} file, got {error}", path=path) from error

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the file takes; pages of a mapped file are of the system."""
        opened = _OPENED_PARQUET if isinstance(self._file, ParquetFile) else _OPENED
        return opened + (self._raw.nbytes if isinstance(self._raw, memoryview) else 0)

    def nbytes_of(self, values: Array) -> int:
        """Bytes of memory that values of a column take beside the mapped file."""
        part = values.values if isinstance(values, Ragged) else values
        in_place = isinstance(self._raw, np.ndarray) and np.may_share_memory(part, self._raw)
        return values.nbytes - (part.nbytes if in_place else 0)

    def blobs(self, column: str, rows: IntArray, cache: Cache) -> list[bytes] | None:
        """Values of sorted rows of a column of bytes, or None where they are not read one by one."""
        if not isinstance(self._file, ParquetFile):
            return None
        with parsing(self._path, column):
            return self._file.values(column.replace("/", "."), rows, cache)

    def blob_ranges(self, column: str, rows: IntArray, cache: Cache) -> list[Wanted] | None:
        """Return the bytes behind a URL that `blobs` fetches, or None where it reads no values alone."""
        if not isinstance(self._file, ParquetFile):
            return None
        with parsing(self._path, column):
            return self._file.value_ranges(column.replace("/", "."), rows, cache)

    def check(self) -> None:
        """Raise `FormatError` if the file was truncated since it was mapped."""
        if isinstance(self._raw, np.ndarray):
            check_mapped(self._raw)

    def column(self, name: str) -> Any:
        """One top-level column as one array. Cost: no copy where the file is Arrow."""
        pa = arrow()
        try:
            column = self._table(name).column(0).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            column.validate()
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            _require_of_data(error)
            raise FormatError(f"expected a whole column, got {error}", path=self._path, where=name) from error
        return column

    def _table(self, name: str) -> Any:
        if isinstance(self._file, RangedArrowFile):
            batches = range(len(self._file.rows))
            kind = self._file.schema.field(name).type
            return arrow().table({name: arrow().chunked_array([self._file.column(i, name) for i in batches], kind)})
        if isinstance(self._file, ParquetFile):
            return arrow().table({name: self._file.columns(range(len(self._file.rows)), name)})
        return self._file.select([name])


def leaves(schema: Any, spaces: Mapping[str, Space], path: Path, unreadable: dict[str, str]) -> dict[str, ArrowColumn]:
    """Every column of a schema. Optional ones of types that are not read go to `unreadable`, with what is wrong."""
    try:
        aligns = json.loads(schema.metadata.get(ALIGNS, b"{}") if schema.metadata else b"{}")
    except ValueError as error:
        raise FormatError(f"expected alignments as JSON, got {error}", path=path) from error
    columns: dict[str, ArrowColumn] = {}
    for field in schema:
        if field.name != "episode_id":
            for name, kind in _fields(field.name, field, path):
                try:
                    columns[name] = _leaf(name, kind, spaces.get(name), _align(name, aligns), path)
                except FormatError as error:
                    if required(name):
                        raise
                    unreadable.setdefault(name, str(error))
    return columns


def _align(name: str, aligns: Any) -> Align:
    if name in FLAGS or under("actions", name):
        return "step"
    stated = aligns.get(name) if is_dict(aligns) else None
    return stated if stated in ("step", "episode") and not under("observations", name) else "boundary"


def _fields(name: str, field: Any, path: Path) -> Iterator[tuple[str, Any]]:
    if len(name) > 4096:
        raise FormatError("expected columns nested less deep", path=path, where=name[:64])
    if arrow().types.is_struct(field.type):
        for inner in field.type:
            yield from _fields(f"{name}/{inner.name}", inner, path)
    else:
        yield name, field


def _leaf(name: str, field: Any, space: Space | None, align: Align, path: Path) -> ArrowColumn:
    types, kind = arrow().types, plain_type(field.type)
    if types.is_fixed_size_list(kind):
        return ArrowColumn("array", _dtype(kind.value_type, name, path), _shape(name, field, space, path), align)
    if types.is_string(kind) or types.is_large_string(kind):
        return ArrowColumn("text", np.dtype(np.uint8), (), align)
    if types.is_binary(kind) or types.is_large_binary(kind):
        if isinstance(space, Box) and space.dtype == np.uint8 and space.shape:
            return ArrowColumn("array", np.dtype(np.uint8), space.shape, align, images=True)
        return ArrowColumn("ragged", np.dtype(np.uint8), (), align)
    if types.is_list(kind) or types.is_large_list(kind):
        return ArrowColumn("ragged", _dtype(kind.value_type, name, path), (), align)
    return ArrowColumn("array", _dtype(kind, name, path), (), align)


def _dtype(kind: Any, name: str, path: Path) -> np.dtype[Any]:
    types = arrow().types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise FormatError(f"expected numbers, text or structs of them, got {kind}", path=path, where=name)
    return np.dtype(kind.to_pandas_dtype())


def _shape(name: str, field: Any, space: Space | None, path: Path) -> tuple[int, ...]:
    size = int(field.type.list_size)
    shape: tuple[int, ...] = (size,)
    if isinstance(space, (Box, MultiDiscrete, MultiBinary)):
        shape = space.shape
    elif field.metadata and SHAPE in field.metadata:
        shape = _told_shape(field.metadata[SHAPE], size)
    if math.prod(shape) != size:
        raise FormatError(
            f"expected {math.prod(shape)} values a row for shape {shape}, got {size}", path=path, where=name
        )
    return shape


def _told_shape(raw: bytes, size: int) -> tuple[int, ...]:
    """The shape that field metadata tells: as "2,3", or (Minari 0.5.0) one byte a dimension."""
    parts = raw.decode("ascii", "replace").split(",") if raw else []
    shape = tuple(int(part) for part in parts) if all(p.isdigit() and len(p) < 10 for p in parts) else None
    return shape if shape is not None and math.prod(shape) == size else tuple(raw)


def values(column: Any, name: str, leaf: ArrowColumn, rows: int, path: Path) -> Array:
    """The first `rows` rows of the leaf `name` below an Arrow column; JPEG frames as ragged bytes."""
    for key in name.split("/")[1:]:
        column = column.field(key)
    column = plain_array(column).slice(0, rows)
    _no_nulls(column.null_count, name, path)
    try:
        if leaf.images or leaf.kind != "array":
            return _ragged(column, leaf)
        if math.prod(leaf.shape) == 0:
            return np.empty((rows, *leaf.shape), leaf.dtype)
        if leaf.shape or arrow().types.is_fixed_size_list(column.type):
            flat = column.flatten()
            _no_nulls(flat.null_count, name, path)
            return flat.to_numpy(zero_copy_only=False).reshape(rows, *leaf.shape)
        return column.to_numpy(zero_copy_only=False)
    except (arrow().ArrowException, PenstockError, ValueError) as error:
        raise FormatError(
            f"expected {rows} rows of {leaf.dtype}{list(leaf.shape)}, got {error}", path=path, where=name
        ) from error


def _no_nulls(count: int, name: str, path: Path) -> None:
    if count:
        raise FormatError(f"expected values in every row, got {count} missing", path=path, where=name)


def _ragged(column: Any, leaf: ArrowColumn) -> Ragged:
    column = arrow().concat_arrays([column]) if column.offset == 0 else column
    wide = str(column.type).startswith("large_")
    listed = leaf.kind == "ragged" and not leaf.images and hasattr(column, "values")
    raw = column.buffers()[1]
    count = len(column) + 1
    width = np.dtype(np.int64 if wide else np.int32)
    if raw is None:
        return Ragged(np.empty(0, leaf.dtype), np.zeros(count, np.int64))
    offsets = np.frombuffer(raw, width, count, column.offset * width.itemsize).astype(np.int64)
    if np.any(np.diff(offsets) < 0) or offsets[0] < 0:
        raise FormatError("expected offsets that never decrease")
    if listed:
        data = column.values.to_numpy(zero_copy_only=False)
    else:
        buffer = column.buffers()[2]
        data = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.empty(0, np.uint8)
    if offsets[-1] > len(data):
        raise FormatError(f"expected offsets within {len(data)} values, got {offsets[-1]}")
    return Ragged(data[offsets[0] : offsets[-1]].astype(leaf.dtype, copy=False), offsets - offsets[0])


def encode(columns: Mapping[str, Any], rows: int, aligns: Mapping[str, str]) -> Any:
    """A record batch of `rows` rows out of columns by path: arrays, lists of text or bytes; short ones are padded."""
    pa = arrow()
    tree: dict[str, Any] = {}
    for path, value in columns.items():
        *parents, leaf = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = _encoded(path, value, rows)
    fields, arrays = zip(*(_struct(name, node) for name, node in tree.items()), strict=True)
    note = {ALIGNS: json.dumps(dict(aligns)).encode()} if aligns else None
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(list(fields), metadata=note))


def _struct(name: str, node: Any) -> tuple[Any, Any]:
    if not is_dict(node):
        return node[0].with_name(name), node[1]
    pa = arrow()
    fields, arrays = zip(*(_struct(key, child) for key, child in node.items()), strict=True)
    array = pa.StructArray.from_arrays(list(arrays), fields=list(fields))
    return pa.field(name, array.type), array


def _encoded(path: str, value: Any, rows: int) -> tuple[Any, Any]:
    pa = arrow()
    if isinstance(value, Ragged):
        return _encoded_lists(path, value, rows)
    if is_list(value):
        array = pa.array(value + [None] * (rows - len(value)), pa.binary() if _has_bytes(value) else pa.string())
        return pa.field(path, array.type), array
    try:
        kind = pa.from_numpy_dtype(value.dtype)
    except pa.ArrowException as error:
        raise SpecError(f"expected a dtype that Arrow has, got {value.dtype} for {path}") from error
    short = rows - len(value)
    padded = np.concatenate([value, np.zeros((short, *value.shape[1:]), value.dtype)]) if short else value
    if value.ndim == 1:
        return pa.field(path, kind), pa.array(padded, kind)
    flat = pa.array(np.ascontiguousarray(padded).reshape(-1), kind)
    size = math.prod(value.shape[1:])
    # Not from_arrays, which divides by the size; a size of zero would end the process.
    array = pa.Array.from_buffers(pa.list_(kind, size), rows, [None], children=[flat])
    return pa.field(path, array.type, metadata={SHAPE: ",".join(map(str, value.shape[1:]))}), array


def _encoded_lists(path: str, value: Ragged, rows: int) -> tuple[Any, Any]:
    pa = arrow()
    offsets = np.concatenate([value.offsets, np.full(rows - len(value), value.offsets[-1])])
    array = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(value.values))
    return pa.field(path, array.type), array


def _has_bytes(value: list[Any]) -> bool:
    return any(isinstance(item, bytes) for item in value)
