"""Arrays in `.npy` files, and objects in `.npz` archives; nothing in a header is believed or evaluated."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.containers.pickle import loads
from penstock.errors import FormatError, UnsafeDataError

MAGIC = b"\x93NUMPY"
ZIP = b"PK\x03\x04"
RANK = 32
_WIDE = (b"\2", b"\3")  # versions whose header has its length in 4 bytes
_LONGEST = 1 << 16  # bytes of a header
_PIECE = 1 << 20
_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?(?:[biufcSU]\d{1,9}|O8?))', 'fortran_order': (True|False), "
    rb"'shape': \(([\dL, ]{0,400})\), \}\s*"
)
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip  what zipfile and its decompressors raise for bytes that are no archive


@dataclass(frozen=True)
class Header:
    """What the header of an `.npy` file says, and where the values begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    at: int

    @property
    def count(self) -> int:
        """How many elements there are."""
        count = 1
        for side in self.shape:
            count *= side
        return count


def header_of(raw: bytes, *, path: object, where: str | None = None) -> Header:
    """The header of an `.npy` file of numbers, text or objects. Raises `FormatError` for any other.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((2, 3), "f4"))
    >>> header_of(file.getvalue(), path=None).shape
    (2, 3)
    """
    begin = 12 if raw[6:7] in _WIDE else 10
    length = int.from_bytes(raw[8:begin], "little")
    found = _HEADER.fullmatch(raw[begin : begin + min(length, _LONGEST)])
    if not raw.startswith(MAGIC) or raw[6:7] not in (b"\1", b"\2", b"\3") or found is None:
        raise FormatError(f"expected an .npy file of numbers or text, got {raw[:80]!r}", path=path, where=where)
    descr, fortran, sides = found.groups()
    try:
        shape = tuple(int(side) for side in re.findall(rb"\d+", sides))
        dtype = np.dtype(descr.decode())
    except (TypeError, ValueError) as error:
        raise FormatError(f"expected a dtype of numbers or text, got {descr!r}", path=path, where=where) from error
    if len(shape) > RANK or len(shape) != len(re.findall(rb"[^, ]+", sides)):
        raise FormatError(f"expected a shape of at most {RANK} sizes, got {sides!r}", path=path, where=where)
    return Header(dtype, shape, fortran == b"True", begin + length)


def array_of(raw: bytes, *, path: object, where: str | None = None) -> npt.NDArray[Any]:
    """The array in the bytes of an `.npy` file, read-only; a view of them unless it holds objects, which are read as
    plain values from a pickle that nothing of is run.

    Raises `FormatError` where the shape does not fit the bytes, `UnsafeDataError` for objects that are not data.
    """
    header = header_of(raw, path=path, where=where)
    if header.dtype.hasobject:
        return _objects(memoryview(raw)[header.at :], header, path, where)
    size = header.count * header.dtype.itemsize
    if size != len(raw) - header.at:
        message = f"expected {size} bytes for {header.dtype}{list(header.shape)}, got {len(raw) - header.at}"
        raise FormatError(message, path=path, where=where)
    if header.dtype.kind == "b" and size and np.frombuffer(raw, np.uint8, size, header.at).max() > 1:
        raise UnsafeDataError("expected booleans of 0 or 1, got others", path=path, where=where)
    if not size:
        return np.zeros(header.shape, header.dtype)
    flat = np.frombuffer(raw, header.dtype, header.count, header.at)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def names_of(path: Path) -> list[str]:
    """The names of the members of an `.npz` file, without `.npy`; none where it is no archive. Never raises."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except DAMAGED:
        return []


def member_head(path: Path, name: str, size: int) -> bytes:
    """The first bytes of a member; b"" where that fails. Never raises."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            return member.read(size)
    except DAMAGED:
        return b""


def object_member(path: Path, name: str, max_bytes: int) -> npt.NDArray[Any]:
    """The object array in a member of an `.npz` file, its objects read as plain values.

    Raises `FormatError` for a damaged archive or another array, `UnsafeDataError` for more than `max_bytes` or objects
    that are not data. Memory: twice the unpacked member for a moment.
    """
    pieces: list[bytes] = []
    size = 0
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            begin = member.read(8)
            begin += member.read(4 if begin[6:7] in _WIDE else 2)
            begin += member.read(min(int.from_bytes(begin[8:], "little"), _LONGEST))
            header = header_of(begin, path=path, where=name)
            while piece := member.read(_PIECE):  # bounded pieces, for the size in the archive may be a lie
                size += len(piece)
                if size > max_bytes:
                    message = f"expected at most {max_bytes} bytes unpacked, got more; `max_bytes` allows them"
                    raise UnsafeDataError(message, path=path, where=name)
                pieces.append(piece)
    except FormatError:
        raise
    except DAMAGED as error:
        raise FormatError(f"expected an .npz file, got {error}", path=path, where=name) from error
    payload = b"".join(pieces)
    del pieces
    return _objects(payload, header, path, name)


def _objects(payload: bytes | memoryview, header: Header, path: object, where: str | None) -> npt.NDArray[Any]:
    value = loads(payload, path=path, where=f"of {where}" if where else "")
    same = isinstance(value, np.ndarray) and value.dtype.hasobject and value.shape == header.shape
    if not header.dtype.hasobject or not same:
        got = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        message = f"expected {header.dtype}{list(header.shape)} as objects, got {got}"
        raise FormatError(message, path=path, where=where)
    return value
