"""Dtypes as zarr v2 writes them in JSON, read from a short list of kinds, and fill values."""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any

import numpy as np

from penstock.core.narrowing import is_list
from penstock.errors import DataError, FormatError, UnsafeDataError, UnsupportedDtypeError

_PLAIN = re.compile(r"\|b1|\|[iu]1|[<>][iu][248]|[<>]f[248]|[<>]c(8|16)|[<>]U[1-9]\d{0,5}|\|[SV][1-9]\d{0,6}")
_DEPTH = 4  # of structures in structures
_WIDEST = 1 << 24  # bytes of one element
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class ObjectDtypeError(UnsupportedDtypeError, UnsafeDataError):
    """Values are objects, which may be code to run."""


def dtype_of(described: object, path: object = None, where: str | None = None, depth: int = _DEPTH) -> np.dtype[Any]:
    """The dtype that a `.zarray` describes: a plain one (`"<f8"`), or a list of fields, each with a name, a dtype and
    perhaps the shape of a sub-array. Fields are in order, without padding.

    Raises `FormatError` for anything else, and `UnsafeDataError` for Python objects.
    """
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
    """What `dtype_of` reads back. Raises `DataError` for padding, and for dtypes that it would refuse."""
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
    """The bytes of one element where nothing was written: `null` and 0 are zero bytes; structures are base64.

    Raises `FormatError` for a value that the dtype cannot have.
    """
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
        scalar = _NUMBERS.get(value, value) if dtype.kind in "fc" and isinstance(value, str) else value
        if isinstance(scalar, str) != (dtype.kind == "U") or not isinstance(scalar, (str, int, float, bool)):
            raise ValueError("another type")
        return np.array(scalar, dtype).tobytes()
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        message = f"expected a fill value of {dtype.itemsize} bytes for {dtype}, got {repr(value)[:100]}: {error}"
        raise FormatError(message, path=path, where=where) from error


def fill_described(dtype: np.dtype[Any]) -> Any:
    """A fill value of zero bytes as zarr v2 writes it."""
    if dtype.fields is not None or dtype.kind in "SV":
        return base64.b64encode(bytes(dtype.itemsize)).decode("ascii")
    return {"b": False, "U": "", "f": 0.0, "c": [0.0, 0.0]}.get(dtype.kind, 0)
