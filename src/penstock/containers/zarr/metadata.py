"""The JSON next to the chunks: the description of an array, and the attributes of a group."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from penstock.containers.zarr.dtypes import described, dtype_of, fill_described, fill_of
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError

ARRAY = ".zarray"
GROUP = ".zgroup"
ATTRIBUTES = ".zattrs"
CONSOLIDATED = ".zmetadata"
LARGEST_JSON = 1 << 24
_MOST_BYTES = 1 << 62
BLOSC_LZ4: Mapping[str, Any] = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


@dataclass(frozen=True, eq=False)
class ArrayMetadata:
    """A `.zarray`: rows of `dtype`, in chunks of `chunks[0]` rows. `compressor` is None or a codec's configuration.

    >>> rows = ArrayMetadata.of(np.dtype("<f8"), (250, 2), 100)
    >>> rows.chunk_rows, rows.row_bytes, rows.count, rows.key(2)
    (100, 16, 3, '2.0')
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    compressor: Mapping[str, Any] | None
    fill_value: Any
    separator: str | None = None

    @classmethod
    def of(
        cls,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        chunk_rows: int,
        compressor: Mapping[str, Any] | None = BLOSC_LZ4,
    ) -> ArrayMetadata:
        """Of a new array. Raises `DataError` for a dtype that zarr cannot store."""
        described(dtype)
        return cls(shape, (chunk_rows, *shape[1:]), dtype, compressor, fill_described(dtype))

    @cached_property
    def row(self) -> np.dtype[Any]:
        """One row as a dtype, with a sub-array where the array has more than one axis."""
        return self.dtype if len(self.shape) == 1 else np.dtype((self.dtype, self.shape[1:]))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.row.itemsize

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        return self.chunks[0]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk once it is decoded; the last one is as large as the others."""
        return self.chunk_rows * self.row_bytes

    @property
    def count(self) -> int:
        """How many chunks the rows need."""
        return -(-self.shape[0] // self.chunk_rows)

    @cached_property
    def fill(self) -> bytes:
        """The bytes of one row where nothing was written."""
        return fill_of(self.fill_value, self.dtype) * math.prod(self.shape[1:])

    def key(self, c: int) -> str:
        """The name of chunk `c` below the array."""
        return (self.separator or ".").join([str(c), *["0"] * (len(self.shape) - 1)])

    def resized(self, rows: int) -> ArrayMetadata:
        """The same with another number of rows."""
        return replace(self, shape=(rows, *self.shape[1:]))

    def to_json(self) -> bytes:
        """As the zarr library writes it."""
        told = {
            "chunks": list(self.chunks),
            "compressor": None if self.compressor is None else dict(self.compressor),
            "dtype": described(self.dtype),
            "fill_value": self.fill_value,
            "filters": None,
            "order": "C",
            "shape": list(self.shape),
            "zarr_format": 2,
        }
        return dumped(told if self.separator is None else {**told, "dimension_separator": self.separator})


def dumped(told: Mapping[str, Any]) -> bytes:
    """JSON laid out as the zarr library does.

    >>> dumped({"zarr_format": 2})
    b'{\\n    "zarr_format": 2\\n}'
    """
    return json.dumps(told, indent=4, sort_keys=True, ensure_ascii=True, separators=(",", ": ")).encode("ascii")


def loaded(raw: bytes, path: object, where: str) -> dict[str, Any]:
    """A JSON object. Raises `FormatError` for anything else.

    >>> loaded(b'{"zarr_format": 2}', None, ".zgroup")
    {'zarr_format': 2}
    """
    try:
        told: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON, got {raw[:40]!r}: {error}", path=path, where=where) from error
    if not isinstance(told, dict):
        raise FormatError(f"expected a JSON object, got {raw[:40]!r}", path=path, where=where)
    return cast("dict[str, Any]", told)


def array_metadata(told: Mapping[str, Any], path: object = None, where: str = ARRAY) -> ArrayMetadata:
    """Check what a `.zarray` says. Raises `FormatError`, `UnsafeDataError`.

    >>> array_metadata({"zarr_format": 2, "shape": [3], "chunks": [2], "dtype": "<i4"}).count
    2
    """
    place: Any = {"path": path, "where": where}
    if told.get("zarr_format") != 2:
        raise FormatError(f"expected zarr_format 2, got {told.get('zarr_format')!r}", **place)
    shape, chunks = (_sizes(told.get(name), name, least, place) for name, least in (("shape", 0), ("chunks", 1)))
    if len(shape) != len(chunks) or not 1 <= len(shape) <= 8 or shape[1:] != chunks[1:]:
        message = f"expected chunks along the first axis alone, got shape {list(shape)} and chunks {list(chunks)}"
        raise FormatError(message, **place)
    dtype = dtype_of(told.get("dtype"), **place)
    if max(shape[0], chunks[0]) * max(math.prod(shape[1:]), 1) * dtype.itemsize > _MOST_BYTES:
        message = f"expected sizes that can be, got shape {list(shape)} and chunks {list(chunks)} of {dtype.itemsize}"
        raise FormatError(f"{message} bytes", **place)
    if math.prod(shape[1:]) == 0:
        raise FormatError(f"expected rows that hold something, got shape {list(shape)}", **place)
    order = told.get("order", "C")
    filters = told.get("filters")
    separator = told.get("dimension_separator")
    if not (order == "C" or (order == "F" and len(shape) == 1)):
        raise FormatError(f"expected order 'C', got {order!r}", **place)
    if filters:
        raise FormatError(f"expected no filters, got {repr(filters)[:200]}", **place)
    if separator not in (None, ".", "/"):
        raise FormatError(f"expected dimension_separator '.' or '/', got {separator!r}", **place)
    compressor: Any = told.get("compressor")
    if compressor is not None and not (is_dict(compressor) and isinstance(compressor.get("id"), str)):
        raise FormatError(f"expected compressor null or an object with an id, got {repr(compressor)[:200]}", **place)
    fill_of(told.get("fill_value"), dtype, **place)
    return ArrayMetadata(shape, chunks, dtype, compressor, told.get("fill_value"), separator)


def _sizes(given: Any, name: str, least: int, place: Any) -> tuple[int, ...]:
    listed: list[Any] = given if is_list(given) else [None]
    if not all(type(n) is int and least <= n < 1 << 62 for n in listed):
        raise FormatError(f"expected {name} as a list of numbers from {least} on, got {repr(given)[:200]}", **place)
    return tuple(listed)
