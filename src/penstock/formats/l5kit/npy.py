"""The layout for the fastest reading: a `.npy` file an array, which NumPy maps into memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.lib.format as npy

from penstock.containers.zarr import DirectoryStore
from penstock.core.arrays import AnyArray, ByteArray
from penstock.errors import FormatError, SpecError
from penstock.files.remote import file_state

ATTRIBUTES = "attributes.json"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_HEADER_BYTES = 1 << 16


def mapped(path: Path) -> AnyArray:
    """The array of a `.npy` file, a read-only memory map. Nothing that the file says is run.

    Raises `FormatError` for a damaged file, Python objects, or fewer bytes than it says.
    """
    raw = DirectoryStore(path.parent).value(path.name, 1 << 62)
    if raw is None:
        raise FormatError("expected a file, found none", path=path)
    try:
        shape, dtype, begin = _header(raw)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError) as error:
        raise FormatError(f"expected a .npy file: {error}", path=path) from error
    size = shape[0] * dtype.itemsize
    if len(raw) - begin < size:
        raise FormatError(f"expected {shape[0]} rows, {size} bytes, got {len(raw) - begin}", path=path)
    return raw[begin : begin + size].view(dtype)


def _header(raw: ByteArray) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    file = io.BytesIO(raw[:_HEADER_BYTES].tobytes())
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version}")
    shape, fortran, dtype = _HEADERS[version](file)
    if len(shape) != 1 or fortran or dtype.hasobject or shape[0] < 0 or dtype.itemsize == 0:
        raise ValueError(f"an array {list(shape)} of {dtype}")
    return shape, dtype, file.tell()


def header_of(dtype: np.dtype[Any], rows: int) -> bytes:
    """A header of one size for any number of rows, so that a file can grow.

    >>> len(header_of(np.dtype("<f8"), 0)) == len(header_of(np.dtype("<f8"), 10**18))
    True
    """
    file = io.BytesIO()
    entries = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows,)}
    npy.write_array_header_1_0(file, entries)
    return file.getvalue()


class NpyAppender:
    """Appends rows to a `.npy` file: the rows first, their number last."""

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int) -> None:
        self.path, self.dtype = path, dtype
        self._file = path.open("r+b")
        self._head = len(header_of(dtype, 0))
        self.rollback(length)

    @classmethod
    def create(cls, path: Path, dtype: np.dtype[Any]) -> NpyAppender:
        """A file of no rows. Raises `FileExistsError`."""
        with path.open("xb") as file:
            file.write(header_of(dtype, 0))
        return cls(path, dtype, 0)

    def __len__(self) -> int:
        return self._length

    def append(self, rows: AnyArray) -> None:
        """Take `[n]` rows. Raises `OSError`; rows of another dtype are a `SpecError`."""
        if rows.dtype != self.dtype or rows.ndim != 1:
            raise SpecError(f"expected rows of {self.dtype}, got {rows.dtype}{list(rows.shape[1:])}")
        self._file.write(np.ascontiguousarray(rows).view(np.uint8).data)
        self._length += len(rows)

    def commit(self) -> None:
        """Make the rows last."""
        self._file.flush()
        head = header_of(self.dtype, self._length)
        os.pwrite(self._file.fileno(), head, 0)

    def rollback(self, length: int) -> None:
        """Go on behind row `length`; rows behind it are overwritten."""
        self._file.flush()
        self._length = length
        self._file.seek(self._head + self._length * self.dtype.itemsize)

    def sync(self) -> None:
        """Flush to the disk itself."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def states(folder: Path, names: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Name, size and time of every file."""
    for name in names:
        state = file_state(folder / f"{name}.npy")
        yield name, state.size, state.mtime_ns
