"""Fields of the messages of a topic as arrays: which there are, and their rows.

The first messages, and some over the whole file, tell which fields there are. Each message that is read later must fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_list, is_mapping
from penstock.core.order import in_natural_order
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.formats.mapping.tree import NUMBERS

JOINTS = ("name", "names", "joint_names")
NAN = float("nan")
NOTHING = "it is empty, or absent, in all messages that were looked at"


def flat(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a message by path. Lists of messages are lists of each of their fields.

    Arrays next to a list of names, as of joints, are numbers by these names: their order differs between messages.
    """
    values = dict(_flat(message, ""))
    for path in [path for path in values if path.rpartition("/")[2] in JOINTS]:
        names = values[path]
        if not is_list(names) or not names or not all(isinstance(name, str) for name in names):
            continue
        rows = {other: values[other] for other in values if other != path and _has_one_each(values, other, path)}
        for other, row in rows.items():
            numbers = row.tolist() if is_array(row) and row.dtype == np.float64 else row
            values |= {other + ending: numbers[i] for ending, i in _endings(tuple(names))}
        for known in (*rows, path) if rows else ():
            del values[known]
    return values


@lru_cache(maxsize=1024)
def _endings(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """The end of a path for each name, in natural order, and the place of its number."""
    if len(set(names)) < len(names):
        raise FormatError(f"expected names that differ, got {list(names)}")
    return [(f"/{name.replace('/', '_')}", names.index(name)) for name in in_natural_order(names)]


def _has_one_each(values: Mapping[str, Any], path: str, names: str) -> bool:
    """Whether a path next to the names has a number for each of them."""
    row = values[path]
    if path.rpartition("/")[0] != names.rpartition("/")[0] or not (is_array(row) or is_list(row)):
        return False
    is_flat = row.ndim == 1 if is_array(row) else all(isinstance(each, int | float) for each in row)
    return is_flat and len(row) == len(values[names])


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if is_mapping(value):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}/{name}" if path else str(name).replace("/", "_"))
    elif is_list(value) and value and all(is_mapping(each) for each in value):
        for name in dict.fromkeys(str(name) for each in value for name in each):
            yield from _flat([each.get(name) for each in value], f"{path}/{name}")
    else:
        yield path, value


def field_of(values: Sequence[Any]) -> Field | str:
    """Return the field of some values of one path, or why it is none."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, str) for value in present):
        return Field(np.dtype(np.uint8), kind="text")
    if present and all(isinstance(value, bytes | bytearray) for value in present):
        present = [np.frombuffer(value, np.uint8) for value in present]
    try:
        arrays = [np.asarray(value) for value in present]
    except ValueError:
        return "expected numbers, or lists of numbers of one length"
    full = [array for array in arrays if array.size]
    return _field_of_arrays(arrays, full) if full else NOTHING


def _field_of_arrays(arrays: Sequence[AnyArray], full: Sequence[AnyArray]) -> Field | str:
    if any(array.dtype.kind not in NUMBERS for array in full):
        return f"expected numbers or text, got {full[0].dtype}"
    dtype = np.result_type(*{array.dtype for array in full})
    if len({array.shape for array in arrays}) == 1:
        return Field(dtype, arrays[0].shape)
    if len({array.shape[1:] for array in full}) == 1 and all(array.ndim for array in full):
        return Field(dtype, full[0].shape[1:], kind="ragged")
    return f"expected arrays of one shape, or that differ in their first axis, got {full[0].shape} and others"


def rows_of(field: Field, values: Sequence[Any], path: str, first: int) -> Array:
    """Return the values of messages as rows. Raises `FormatError` with the number of the message that does not fit."""
    if field.kind == "text":
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise _misfit(field, value, path, first + i)
        return Ragged.from_strings(values)
    if field.kind == "array" and (whole := _whole(field, values)) is not None:
        return whole
    rows = [_row(field, value, path, first + i) for i, value in enumerate(values)]
    if field.kind == "ragged":
        return Ragged.from_rows(rows, field.dtype)
    return np.stack(rows) if rows else np.zeros((0, *field.shape), field.dtype)


def _whole(field: Field, values: Sequence[Any]) -> AnyArray | None:
    """Rows that are alike, at once; None if one is not."""
    try:
        rows = np.asarray(values)
    except ValueError:
        return None
    fits = rows.shape == (len(values), *field.shape) and rows.dtype.kind in NUMBERS
    return rows.astype(field.dtype, copy=False) if fits and np.can_cast(rows.dtype, field.dtype, "same_kind") else None


def _row(field: Field, value: Any, path: str, number: int) -> Any:
    """One row. Floats that a message lacks are NaN."""
    if value is None:
        if field.kind == "array" and field.dtype.kind == "f":
            return np.full(field.shape, NAN, field.dtype)
        raise _misfit(field, value, path, number)
    try:
        row = np.frombuffer(value, np.uint8) if isinstance(value, bytes | bytearray) else np.asarray(value)
    except ValueError as error:
        raise _misfit(field, value, path, number) from error
    shape = row.shape[1:] if field.kind == "ragged" else row.shape
    if field.kind == "ragged" and row.ndim and not row.size:
        return np.zeros((0, *field.shape), field.dtype)
    fits = (
        shape == field.shape and row.dtype.kind in NUMBERS and row.ndim == len(field.shape) + (field.kind == "ragged")
    )
    if not fits or not np.can_cast(row.dtype, field.dtype, "same_kind"):
        raise _misfit(field, value, path, number)
    return row.astype(field.dtype, copy=False)


def _misfit(field: Field, value: Any, path: str, number: int) -> FormatError:
    expected = "text" if field.kind == "text" else f"{field.dtype}{list(field.shape)} as in other messages"
    got = "nothing" if value is None else repr(value)[:80]
    return FormatError(f"expected {expected}, got {got} in message {number}", where=path)
