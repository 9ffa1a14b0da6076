"""The JSON next to the chunks: the description of an array with its dtype, and the attributes of a group."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from penstock.containers.zarr.codecs import ChunkCodecs
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import DataError, FormatError, UnsafeDataError, UnsupportedDtypeError

ARRAY = ".zarray"
GROUP = ".zgroup"
ATTRIBUTES = ".zattrs"
CONSOLIDATED = ".zmetadata"
NODE = "zarr.json"  # of a group or array of version 3
LARGEST_JSON = 1 << 24
_MOST_BYTES = 1 << 62
_MOST_ASSEMBLED = 1 << 30  # bytes of rows that are put in order in memory
_MOST_ACROSS = 1 << 16  # chunks that have a part of the same rows
BLOSC_LZ4: Mapping[str, Any] = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
_PLAIN = re.compile(r"\|b1|\|[iu]1|[<>][iu][248]|[<>]f[248]|[<>]c(8|16)|[<>]U[1-9]\d{0,5}|\|[SV][1-9]\d{0,6}")
_DEPTH = 4  # of structures in structures
_WIDEST = 1 << 24  # bytes of one element
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, eq=False)
class ArrayMetadata:
    """The description of an array: rows of `dtype`, in chunks of `chunks[0]` rows.

    `codecs` says how a chunk is stored. `description` is all of the JSON, which a writer keeps but for the shape.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    codecs: ChunkCodecs
    description: Mapping[str, Any]
    separator: str = "."
    prefix: str = ""  # of the keys of chunks

    @classmethod
    def of(
        cls,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        chunk_rows: int,
        compressor: Mapping[str, Any] | None = BLOSC_LZ4,
    ) -> ArrayMetadata:
        """Of a new array of version 2."""
        entries = {
            "chunks": [chunk_rows, *shape[1:]],
            "compressor": None if compressor is None else dict(compressor),
            "dtype": described(dtype),
            "fill_value": fill_described(dtype),
            "filters": None,
            "order": "C",
            "shape": list(shape),
            "zarr_format": 2,
        }
        return array_metadata(entries)

    @property
    def compressor(self) -> Mapping[str, Any] | None:
        """The configuration of the compressor of a plain chunk, None for one that is stored as it is."""
        return self.codecs.packers[0] if self.codecs.packers else None

    @property
    def zarr_format(self) -> int:
        """The version of the description: 2 or 3."""
        return self.description["zarr_format"]

    @property
    def file(self) -> str:
        """The name of the description in the folder of the array."""
        return ARRAY if self.zarr_format == 2 else NODE

    @cached_property
    def row(self) -> np.dtype[Any]:
        """One row as a dtype, with a sub-array where the array has more than one axis."""
        return self.dtype if len(self.shape) == 1 else np.dtype((self.dtype, self.shape[1:]))

    @property
    def row_bytes(self) -> int:
        return self.row.itemsize

    @property
    def chunk_rows(self) -> int:
        return self.chunks[0]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of all rows of a chunk once they are decoded; the last chunk is as large as the others."""
        return self.chunk_rows * self.row_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of one stored chunk once it is decoded, with the table of a shard."""
        return self.codecs.nbytes + (0 if self.codecs.shards is None else self.codecs.shards.table_bytes)

    @property
    def gridded(self) -> bool:
        """Whether chunks divide other axes than the first."""
        return self.shape[1:] != self.chunks[1:]

    @property
    def count(self) -> int:
        """How many chunks the rows need along the first axis."""
        return -(-self.shape[0] // self.chunk_rows)

    @cached_property
    def fill(self) -> bytes:
        """The bytes of one row where nothing was written."""
        return self.codecs.fill * math.prod(self.shape[1:])

    def key(self, c: int, *others: int) -> str:
        """The name of chunk `c` below the array; `others` are its numbers along the other axes, 0 by default."""
        numbers = [c, *(others or (0,) * (len(self.shape) - 1))]
        return self.prefix + self.separator.join(map(str, numbers))

    def resized(self, rows: int) -> ArrayMetadata:
        """The same with another number of rows."""
        return replace(self, shape=(rows, *self.shape[1:]))

    def to_json(self) -> bytes:
        """As the zarr library writes it."""
        return dumped({**self.description, "shape": list(self.shape)})


def dumped(entries: Mapping[str, Any]) -> bytes:
    """JSON laid out as the zarr library does."""
    return json.dumps(entries, indent=4, sort_keys=True, ensure_ascii=True, separators=(",", ": ")).encode("ascii")


def array_metadata(entries: Mapping[str, Any], path: object = None, where: str = ARRAY) -> ArrayMetadata:
    """Check what a `.zarray` says."""
    place: Any = {"path": path, "where": where}
    if entries.get("zarr_format") != 2:
        raise FormatError(f"expected zarr_format 2, got {entries.get('zarr_format')!r}", **place)
    shape, chunks = (sizes_of(entries.get(name), name, least, place) for name, least in (("shape", 0), ("chunks", 1)))
    dtype = dtype_of(entries.get("dtype"), **place)
    check_sizes(shape, chunks, dtype, place)
    order, separator = entries.get("order", "C"), entries.get("dimension_separator")
    filters: Any = entries.get("filters") or []
    if order not in ("C", "F"):
        raise FormatError(f"expected order 'C' or 'F', got {order!r}", **place)
    if not is_list(filters) or not all(_is_codec(entry) for entry in filters):
        raise FormatError(f"expected filters as a list of objects with an id, got {repr(filters)[:200]}", **place)
    if separator not in (None, ".", "/"):
        raise FormatError(f"expected dimension_separator '.' or '/', got {separator!r}", **place)
    compressor: Any = entries.get("compressor")
    if compressor is not None and not _is_codec(compressor):
        raise FormatError(f"expected compressor null or an object with an id, got {repr(compressor)[:200]}", **place)
    fill = fill_of(entries.get("fill_value"), dtype, **place)
    axes = tuple(reversed(range(len(shape)))) if order == "F" and len(shape) > 1 else None
    packers = () if compressor is None else (compressor,)
    codecs = ChunkCodecs(chunks, dtype, fill, tuple(filters), axes, packers)
    check_codecs(codecs, shape, place)
    return ArrayMetadata(shape, chunks, dtype, entries.get("fill_value"), codecs, entries, separator or ".")


def check_sizes(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any], place: Any) -> None:
    """Raise `FormatError` for shapes that do not fit, and for sizes that no store has."""
    sizes = f"shape {list(shape)} and chunks {list(chunks)}"
    if len(shape) != len(chunks) or not 1 <= len(shape) <= 8:
        raise FormatError(f"expected as many chunk sizes as there are axes, 1 to 8, got {sizes}", **place)
    if math.prod(shape[1:]) == 0:
        raise FormatError(f"expected rows that hold something, got shape {list(shape)}", **place)
    if max(shape[0], chunks[0]) * math.prod(shape[1:]) * dtype.itemsize > _MOST_BYTES:
        raise FormatError(f"expected sizes that can be, got {sizes} of {dtype.itemsize} bytes", **place)
    across = math.prod(-(-n // size) for n, size in zip(shape[1:], chunks[1:], strict=True))
    if across > _MOST_ACROSS:
        raise FormatError(f"expected at most {_MOST_ACROSS} chunks across the other axes, got {sizes}", **place)


def check_codecs(codecs: ChunkCodecs, shape: tuple[int, ...], place: Any) -> None:
    """Raise `FormatError` for codecs that are not known, and for chunks too large to be put in order in memory."""
    try:
        codecs.check()
        if not codecs.plain or codecs.shape[1:] != shape[1:]:
            rows = codecs.shape[0] if codecs.shards is None else codecs.shards.inner.shape[0]
            size = max(rows * math.prod(shape[1:]) * codecs.dtype.itemsize, codecs.nbytes)
            if size > _MOST_ASSEMBLED:
                raise FormatError(f"expected chunks of at most {_MOST_ASSEMBLED} bytes to decode, got {size}")
    except FormatError as error:
        raise type(error)(str(error), **place) from error


def _is_codec(value: Any) -> bool:
    return is_dict(value) and isinstance(value.get("id"), str)


def sizes_of(value: Any, name: str, least: int, place: Any) -> tuple[int, ...]:
    """A list of whole numbers."""
    listed: list[Any] = value if is_list(value) else [None]
    if not all(type(n) is int and least <= n < 1 << 62 for n in listed):
        raise FormatError(f"expected {name} as a list of numbers from {least} on, got {repr(value)[:200]}", **place)
    return tuple(listed)


class ObjectDtypeError(UnsupportedDtypeError, UnsafeDataError):
    """Values are objects, which may be code to run."""


def dtype_of(described: object, path: object = None, where: str | None = None, depth: int = _DEPTH) -> np.dtype[Any]:
    """The dtype that a `.zarray` describes: a plain one, or a list of fields in order, without padding."""
    if is_list(described) and described and depth:
        fields = [_field(entry, path, where, depth) for entry in described]
        names = [field[0] for field in fields]
        if len(set(names)) != len(names):
            raise FormatError(f"expected fields of different names, got {names}", path=path, where=where)
        dtype = np.dtype(fields)
    elif isinstance(described, str) and _PLAIN.fullmatch(described):
        dtype = np.dtype(described)
    elif isinstance(described, str) and described.lstrip("|<>=").startswith("O"):
        message = "expected a dtype of plain bytes, got Python objects, as text of variable length is stored"
        raise ObjectDtypeError(message, path=path, where=where)
    else:
        text = repr(described)[:200]
        message = f"expected a plain dtype or a list of fields, got {text}"
        raise UnsupportedDtypeError(message, path=path, where=where)
    if dtype.itemsize > _WIDEST:
        message = f"expected elements of at most {_WIDEST} bytes, got {dtype.itemsize}"
        raise FormatError(message, path=path, where=where)
    return dtype


def _field(entry: Any, path: object, where: str | None, depth: int) -> tuple[Any, ...]:
    if not is_list(entry) or len(entry) not in (2, 3):
        message = f"expected a field as [name, dtype] or [name, dtype, shape], got {repr(entry)[:200]}"
        raise FormatError(message, path=path, where=where)
    name, described, *shape = entry
    if not isinstance(name, str) or not name or "\0" in name:
        raise FormatError(f"expected a name of a field, got {name!r}", path=path, where=where)
    inner = dtype_of(described, path, where, depth - 1)
    if not shape:
        return name, inner
    sizes: Any = shape[0]
    sound = is_list(sizes) and all(type(n) is int and n > 0 for n in sizes)
    if not sound or len(sizes) > 8 or math.prod(sizes) * inner.itemsize > _WIDEST:
        message = f"expected the shape of field {name!r} as a list of positive numbers, got {repr(sizes)[:200]}"
        raise FormatError(message, path=path, where=where)
    return name, inner, tuple(sizes)


def described(dtype: np.dtype[Any]) -> str | list[Any]:
    """What `dtype_of` reads back."""
    description = dtype.str if dtype.fields is None else [_listed(entry) for entry in dtype.descr]
    try:
        again = dtype_of(description)
    except FormatError as error:
        raise DataError(f"expected a dtype that zarr has a place for, got {dtype}: {error}") from error
    if again != dtype:
        raise DataError(f"expected a dtype without padding between its fields, got {dtype}")
    return description


def _listed(entry: tuple[Any, ...]) -> list[Any]:
    name, inner, *shape = entry
    kind = [_listed(field) for field in inner] if is_list(inner) else inner
    return [name, kind, *([list(shape[0])] if shape else [])]


def fill_of(value: Any, dtype: np.dtype[Any], path: object = None, where: str | None = None) -> bytes:
    """The bytes of one element where nothing was written: `null` and 0 are zero bytes; structures are base64."""
    if value is None or (type(value) is int and value == 0) or value == "":
        return bytes(dtype.itemsize)
    try:
        if dtype.fields is not None or dtype.kind in "SV":
            raw = base64.b64decode(str(value), validate=True)
            if len(raw) != dtype.itemsize:
                raise ValueError(f"{len(raw)} bytes")
            return raw
        if dtype.kind == "c" and is_list(value):
            return np.array(complex(*value), dtype).tobytes()
        given = _NUMBERS.get(value, value) if dtype.kind in "fc" and isinstance(value, str) else value
        if isinstance(given, str) != (dtype.kind == "U") or not isinstance(given, (str, int, float, bool)):
            raise ValueError("another type")
        return np.array(given, dtype).tobytes()
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        message = f"expected a fill value of {dtype.itemsize} bytes for {dtype}, got {repr(value)[:100]}: {error}"
        raise FormatError(message, path=path, where=where) from error


def fill_described(dtype: np.dtype[Any]) -> Any:
    """A fill value of zero bytes as zarr v2 writes it."""
    if dtype.fields is not None or dtype.kind in "SV":
        return base64.b64encode(bytes(dtype.itemsize)).decode("ascii")
    return {"b": False, "U": "", "f": 0.0, "c": [0.0, 0.0]}.get(dtype.kind, 0)
