"""`.npy` files: headers written the same for the same array; and read without believing or evaluating anything."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from penstock.containers.pickle import loads
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array
from penstock.errors import FormatError, UnsafeDataError, UnsupportedDtypeError
from penstock.files.mapping import map_file

MAGIC = b"\x93NUMPY"
WIDE = (b"\2", b"\3")  # versions whose header has its length in 4 bytes
LONGEST = 1 << 16  # bytes of a header
RANK = 32
_WORD = re.compile(r"'[\w<>|=]*+'|True|False|\d++L?|[()]", re.ASCII)
# Possessive, so its time is linear in the length of the header.
_HEADER = re.compile(rf"(?:{_WORD.pattern}|[][{{}}:,\s])*+", re.ASCII)
_TIMES = re.compile(rb"'[<>|=]?[mMV]\d")
_KIND = re.compile(r"[<>|=]?(?:[biufcSU]\d{1,9}|O8?)")


@dataclass(frozen=True)
class NpyHeader:
    """Contents of the header of an `.npy` file, and the position of the values."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def count(self) -> int:
        """How many elements there are."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes the values have."""
        return self.count * self.dtype.itemsize


@lru_cache(4096)
def header_bytes(dtype: str | np.dtype[Any], shape: Sequence[int]) -> bytes:
    """The bytes before the values, as NumPy writes them: as many for any first axis, so that a file can grow."""
    out = io.BytesIO()
    described: Any = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(out, {"descr": described, "fortran_order": False, "shape": tuple(shape)})
    return out.getvalue()


def header_of(raw: bytes, *, path: object, where: str | None = None, fields: bool = False) -> NpyHeader:
    """The header of an `.npy` file of numbers, text or objects; with `fields`, of rows of named fields as well."""
    begin = 12 if raw[6:7] in WIDE else 10
    length = int.from_bytes(raw[8:begin], "little")
    if not raw.startswith(MAGIC) or raw[6:7] not in (b"\1", *WIDE):
        raise FormatError(f"expected an .npy file of numbers or text, got {raw[:80]!r}", path=path, where=where)
    try:
        dtype, shape, fortran = _described(raw[begin : begin + min(length, LONGEST)])
        if dtype.names is not None and not fields:
            raise UnsupportedDtypeError(f"rows of the fields {', '.join(dtype.names)}")
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        message = f"expected an .npy file of numbers or text, got {raw[:80]!r} ({error})"
        unsupported = isinstance(error, UnsupportedDtypeError) or _TIMES.search(raw[begin : begin + length])
        kind = UnsupportedDtypeError if unsupported else FormatError
        raise kind(message, path=path, where=where) from error
    return NpyHeader(dtype, shape, fortran, begin + length)


@lru_cache(4096)
def _described(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """The dtype, the shape, and whether the order is Fortran's.

    A header is a Python literal, which NumPy reads by `ast`. Before Python 3.13 that fails by chance where two threads
    parse at a time. Here only plain names, numbers and brackets pass; after a change of signs they are JSON.
    """
    text = header.decode("latin-1")
    if not _HEADER.fullmatch(text):
        raise ValueError("expected a dict of plain values")
    text = re.sub(r",\s*([]}])", r"\1", _WORD.sub(_as_json, text))  # JSON has no comma before an end
    entries: dict[str, Any] = json.loads(text)
    descr, fortran, shape = entries["descr"], entries["fortran_order"], entries["shape"]
    if len(entries) > 3 or not isinstance(fortran, bool):
        raise ValueError("expected descr, fortran_order and shape")
    return _dtype_of(descr), _sizes(shape), fortran


def _as_json(word: re.Match[str]) -> str:
    text = word[0]
    if text.startswith("'"):
        return f'"{text[1:-1]}"'
    return {"(": "[", ")": "]"}.get(text, text.lower().removesuffix("l"))


def _dtype_of(descr: Any) -> np.dtype[Any]:
    """A dtype of one number, text or object (`"<f4"`), or of fields (`[name, descr, shape or nothing]` each)."""
    if isinstance(descr, list):
        fields = cast(list[list[Any]], descr)
        if not all(isinstance(field[0], str) and field[0] for field in fields):
            raise ValueError("expected fields with names")
        return np.dtype([(name, _dtype_of(kind), *map(_sizes, shape)) for name, kind, *shape in fields])
    if not isinstance(descr, str) or not _KIND.fullmatch(descr):
        raise ValueError(f"expected a dtype of numbers, text or objects, got {descr!r}")
    return np.dtype(descr)


def _sizes(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(sizes := cast(list[object], shape)) > RANK:
        raise ValueError(f"expected a shape of at most {RANK} sizes, got {shape!r}")
    if any(type(size) is not int for size in sizes):
        raise ValueError(f"expected sizes that are integers, got {shape!r}")
    return tuple(cast(list[int], sizes))


def array_of(raw: bytes, *, path: object, where: str | None = None, objects: bool = False) -> AnyArray:
    """The array in the bytes of an `.npy` file, a read-only view. With `objects`, plain values of a pickle too."""
    header = header_of(raw, path=path, where=where)
    if header.dtype.hasobject:
        if not objects:
            raise FormatError("expected an .npy file of numbers or text, got objects", path=path, where=where)
        return objects_of(memoryview(raw)[header.offset :], header, path=path, where=where)
    size = header.nbytes
    if size != len(raw) - header.offset:
        message = f"expected {size} bytes for {header.dtype}{list(header.shape)}, got {len(raw) - header.offset}"
        raise FormatError(message, path=path, where=where)
    if header.dtype.kind == "b" and size and np.frombuffer(raw, np.uint8, size, header.offset).max() > 1:
        raise UnsafeDataError("expected booleans of 0 or 1, got others", path=path, where=where)
    if not size:
        return _nothing(header, path, where)
    flat = np.frombuffer(raw, header.dtype, header.count, header.offset)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def map_array(path: Path) -> AnyArray:
    """Map the array of an `.npy` file of numbers, read-only; it allocates no memory, and processes share it."""
    raw = map_file(path)
    header = header_of(raw[: LONGEST + 12].tobytes(), path=path)
    if header.dtype.hasobject or header.nbytes != len(raw) - header.offset:
        message = (
            f"expected {header.nbytes} bytes for {header.dtype}{list(header.shape)}, got {len(raw) - header.offset}"
        )
        raise FormatError(message, path=path)
    if not header.nbytes:
        return _nothing(header, path, None)
    return raw[header.offset :].view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def objects_of(payload: bytes | memoryview, header: NpyHeader, *, path: object, where: str | None = None) -> AnyArray:
    """The array of objects, as plain values, in what follows a header."""
    value = loads(payload, path=path, where=f"of {where}" if where else "")
    same = is_array(value) and value.dtype.hasobject and value.shape == header.shape
    if not header.dtype.hasobject or not same:
        got = f"{value.dtype}{list(value.shape)}" if is_array(value) else type(value).__name__
        message = f"expected {header.dtype}{list(header.shape)} as objects, got {got}"
        raise FormatError(message, path=path, where=where)
    return value


def _nothing(header: NpyHeader, path: object, where: str | None) -> AnyArray:
    try:
        return np.zeros(header.shape, header.dtype)
    except (ValueError, MemoryError) as error:
        raise FormatError(
            f"expected a shape that there can be, got {list(header.shape)}", path=path, where=where
        ) from error
