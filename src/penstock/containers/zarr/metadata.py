"""The JSON next to the chunks: the description of an array, and the attributes of a group."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from penstock.containers.zarr.codecs import ChunkCodecs
from penstock.containers.zarr.dtypes import described, dtype_of, fill_described, fill_of
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError

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
        """Of a new array of version 2. Raises `DataError` for a dtype that zarr cannot store."""
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
        """Bytes of one row."""
        return self.row.itemsize

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
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
    """Check what a `.zarray` says. Raises `FormatError`, `UnsafeDataError`."""
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
    """A list of whole numbers. Raises `FormatError` for anything else."""
    listed: list[Any] = value if is_list(value) else [None]
    if not all(type(n) is int and least <= n < 1 << 62 for n in listed):
        raise FormatError(f"expected {name} as a list of numbers from {least} on, got {repr(value)[:200]}", **place)
    return tuple(listed)
