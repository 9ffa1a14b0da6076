"""The layout for the fastest reading: a `.npy` file an array, which NumPy maps into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.npy import LONGEST, header_bytes, header_of
from penstock.containers.zarr.stores import DirectoryStore
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError, SpecError
from penstock.files.remote import file_state

ATTRIBUTES = "attributes.json"


def mapped(path: Path) -> AnyArray:
    """The array of a `.npy` file, a read-only memory map. Nothing that the file says is run."""
    raw = DirectoryStore(path.parent).value(path.name, 1 << 62)
    if raw is None:
        raise FormatError("expected a file, found none", path=path)
    header = header_of(raw[: LONGEST + 12].tobytes(), path=path, fields=True)
    if len(header.shape) != 1 or header.fortran or header.dtype.hasobject or not header.dtype.itemsize:
        raise FormatError(f"expected rows of numbers, got {header.dtype}{list(header.shape)}", path=path)
    rows = raw[header.offset :][: header.nbytes]
    if len(rows) < header.nbytes:
        raise FormatError(f"expected {header.count} rows, {header.nbytes} bytes, got {len(rows)}", path=path)
    return rows.view(header.dtype)


class NpyAppender:
    """Appends rows to a `.npy` file: the rows first, their number last."""

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int) -> None:
        self.path, self.dtype = path, dtype
        self._file = path.open("r+b")
        self._head = len(header_bytes(dtype, (0,)))
        self.rollback(length)

    @classmethod
    def create(cls, path: Path, dtype: np.dtype[Any]) -> NpyAppender:
        """A file of no rows."""
        with path.open("xb") as file:
            file.write(header_bytes(dtype, (0,)))
        return cls(path, dtype, 0)

    def __len__(self) -> int:
        return self._length

    def append(self, rows: AnyArray) -> None:
        """Take `[n]` rows."""
        if rows.dtype != self.dtype or rows.ndim != 1:
            raise SpecError(f"expected rows of {self.dtype}, got {rows.dtype}{list(rows.shape[1:])}")
        self._file.write(np.ascontiguousarray(rows).view(np.uint8).data)
        self._length += len(rows)

    def commit(self) -> None:
        """Make the rows last."""
        self._file.flush()
        head = header_bytes(self.dtype, (self._length,))
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
