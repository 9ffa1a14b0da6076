"""Columns of a table: from types and arrays of Arrow to fields and arrays of NumPy. Needs PyArrow.

A struct has a column for each of its fields, under a path. A column keeps its storage as far as possible: numbers
without missing values are views of Arrow's memory, booleans (bits in Arrow) are copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import ArgumentError, FormatError, require

Shapes = Mapping[str, tuple[int, ...]]

DEEPEST = 32  # levels of nested structs and lists


@dataclass(frozen=True)
class TableColumn:
    """A column of numbers, text or lists: the field `names[1:]` of the table's column `names[0]`."""

    names: tuple[str, ...]
    field: Field


def arrow() -> Any:
    return require("pyarrow", "arrow")


def leaves_of(schema: Any, shapes: Shapes, wanted: frozenset[str] | None, path: Path) -> dict[str, TableColumn]:
    """Return the columns of a schema by path, of all of its columns or only the `wanted` ones."""
    leaves: dict[str, TableColumn] = {}
    unreadable: dict[str, str] = {}
    for column in schema:
        if wanted is not None and column.name not in wanted:
            continue
        for names, kind in _fields((column.name,), column.type, path):
            name = "/".join(names)
            if name in leaves or not all(names):
                raise FormatError(f"expected distinct names of columns, got {name!r}", path=path)
            try:
                leaves[name] = TableColumn(names, _field(kind, shapes.get(name)))
            except ArgumentError:
                raise
            except TypeError as error:
                unreadable[name] = str(error)
    if unreadable:
        rest = sorted({leaf.names[0] for leaf in leaves.values()})
        raise FormatError(
            f"expected columns of numbers, text or lists of numbers, got {unreadable}; leave them out "
            f"with `columns`, as columns={rest}",
            path=path,
        )
    if missing := [name for name in (*shapes, *(wanted or ())) if name not in leaves and name not in schema.names]:
        raise ArgumentError(f"expected columns among {schema.names}, got {missing}")
    return leaves


def plain_type(kind: Any) -> Any:
    """Return the type as which values are read: text and lists of their views, and the values of dictionaries."""
    pa, name = arrow(), str(kind)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if name in ("string_view", "binary_view"):  # by name, for PyArrow 15 has no test of views
        return pa.large_string() if name == "string_view" else pa.large_binary()
    return pa.large_list(kind.value_field) if name.startswith(("list_view<", "large_list_view<")) else kind


def plain_array(array: Any) -> Any:
    """Return the values of an array as `plain_type`. Cost: a copy of views and dictionaries."""
    kind = plain_type(array.type)
    if kind == array.type:
        return array
    if arrow().types.is_dictionary(array.type):
        return plain_array(array.dictionary_decode())
    return _listed(array) if arrow().types.is_large_list(kind) else array.cast(kind)


def _listed(array: Any) -> Any:
    """Return views of lists, in any order, as lists. PyArrow's own cast of such views gives wrong values."""
    pa = arrow()
    sizes = np.where(np.asarray(array.is_null()), 0, array.sizes.to_numpy(zero_copy_only=False)).astype(np.int64)
    starts, ends = array.offsets.to_numpy(zero_copy_only=False), np.cumsum(sizes)
    rows = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0)
    offsets = pa.array(np.append(np.zeros(1, np.int64), ends))
    return pa.LargeListArray.from_arrays(offsets, array.values.take(pa.array(rows)), mask=array.is_null())


def _fields(names: tuple[str, ...], kind: Any, path: Path) -> Iterator[tuple[tuple[str, ...], Any]]:
    if len(names) > DEEPEST:
        raise FormatError(f"expected at most {DEEPEST} nested structs", path=path, where="/".join(names)[:80])
    if not arrow().types.is_struct(kind):
        yield names, kind
        return
    for inner in kind:
        yield from _fields((*names, inner.name), inner.type, path)


def _field(kind: Any, shape: tuple[int, ...] | None) -> Field:
    types, kind = arrow().types, plain_type(kind)
    if shape is not None:
        inner = kind
        for size in shape:
            if not _is_list(inner) or getattr(inner, "list_size", size) != size:
                raise ArgumentError(f"expected `shapes` that fit {kind}, got {shape}")
            inner = inner.value_type
        return Field(_dtype(inner), shape)
    if types.is_string(kind) or types.is_large_string(kind):
        return Field(np.dtype(np.uint8), kind="text")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Field(np.dtype(np.uint8), kind="ragged")
    if types.is_list(kind) or types.is_large_list(kind):
        inner, sizes = _fixed(kind.value_type)
        return Field(_dtype(inner), sizes, kind="ragged")
    inner, sizes = _fixed(kind)
    return Field(_dtype(inner), sizes)


def _fixed(kind: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the innermost type of fixed-size lists, and their sizes."""
    sizes: list[int] = []
    while arrow().types.is_fixed_size_list(kind):
        if kind.list_size < 0:
            raise FormatError(f"expected lists of 0 or more values, got {kind}")
        sizes.append(int(kind.list_size))
        kind = kind.value_type
    return kind, tuple(sizes)


def _is_list(kind: Any) -> bool:
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _dtype(kind: Any) -> np.dtype[Any]:
    types = arrow().types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise TypeError(str(kind))
    return np.dtype(kind.to_pandas_dtype())


def array_of(column: Any, leaf: TableColumn) -> Any:
    """Return the Arrow array of a leaf in an array of its table's column. Missing structs have missing fields."""
    for name in leaf.names[1:]:
        column = column.flatten()[column.type.get_field_index(name)]
    return plain_array(column)


def values_of(array: Any, field: Field) -> Array:
    """Return the rows of an Arrow array as an array or `Ragged`."""
    if field.kind == "text" or (field.ragged and not _is_list(array.type)):
        return _bytes(array)
    if not field.ragged:
        return _numbers(array, len(array), field)
    _no_nulls(array)
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return Ragged(_numbers(array.flatten(), int(offsets[-1] - offsets[0]), field), offsets - offsets[0])


def _numbers(array: Any, rows: int, field: Field) -> Any:
    pa = arrow()
    for size in field.shape:
        _no_nulls(array)
        if not pa.types.is_fixed_size_list(array.type):
            lengths = np.diff(array.offsets.to_numpy(zero_copy_only=False))
            if (lengths != size).any():
                numbers = sorted({int(length) for length in lengths})[:8]
                raise FormatError(f"expected lists of length {size}, got lengths {numbers}; `shapes` can name others")
        array = array.flatten()
    if field.dtype.kind != "f":
        _no_nulls(array)
    if math.prod(field.shape) == 0:
        return np.empty((rows, *field.shape), field.dtype)
    numbers = numbers_of(array).astype(field.dtype, copy=False)
    return np.ascontiguousarray(numbers.reshape(rows, *field.shape))


def numbers_of(array: Any) -> AnyArray:
    """Return an Arrow array of numbers or booleans. Missing numbers are NaN, missing booleans None."""
    if len(array) and not array.null_count and arrow().types.is_boolean(array.type):
        first, skipped = divmod(array.offset, 8)  # a tenth of the time of PyArrow's own
        packed = np.frombuffer(array.buffers()[1], np.uint8)[first:]
        return np.unpackbits(packed, count=skipped + len(array), bitorder="little")[skipped:].view(np.bool_)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _bytes(array: Any) -> Ragged:
    _no_nulls(array)
    rows = array.cast(arrow().large_binary())
    if not len(rows):
        return Ragged(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    _, begins, data = rows.buffers()
    offsets = np.frombuffer(begins, np.int64, len(rows) + 1, rows.offset * 8)
    values = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Ragged(values[offsets[0] : offsets[-1]], offsets - offsets[0])


def _no_nulls(array: Any) -> None:
    if array.null_count:
        raise FormatError(
            f"expected a value in every row, got {array.null_count} missing in {len(array)} rows; fill them, or leave "
            "the column out with `columns`"
        )
