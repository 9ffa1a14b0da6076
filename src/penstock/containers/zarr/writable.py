"""Arrays whose rows can be assigned and appended, chunk by chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.containers.cache import Cache
from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.containers.zarr.rows import ZarrRows
from penstock.containers.zarr.stores import DirectoryStore
from penstock.containers.zarr.writing import ArrayWriter
from penstock.core.arrays import AnyArray, IntArray
from penstock.files import write_atomic


class WritableRows(ZarrRows):
    """The array at `folder`; missing chunks are zeros. Assigned values are on disk when the call returns.

    One writer at a time. Cost: every chunk that an assignment touches is decoded and encoded, so assign many rows at
    once.
    """

    def __init__(self, folder: Path, metadata: ArrayMetadata) -> None:
        self.folder, self.metadata = folder, metadata
        self.dtype, self.shape = metadata.dtype, metadata.shape

    @classmethod
    def create(cls, folder: Path, metadata: ArrayMetadata) -> WritableRows:
        """An array of zeros of the length that `metadata` says. Raises `FileExistsError`."""
        ArrayWriter.create(folder, metadata).close()
        rows = cls(folder, metadata)
        rows.resize(metadata.shape[0])
        return rows

    def resize(self, length: int) -> None:
        """Another number of rows; new ones are zeros."""
        self.metadata = self.metadata.resized(length)
        self.shape = self.metadata.shape
        write_atomic(self.folder / self.metadata.file, self.metadata.to_json())

    def append(self, rows: npt.ArrayLike) -> None:
        """More rows behind the last."""
        values = np.asarray(rows, self.dtype)
        begin = len(self)
        self.resize(begin + len(values))
        self[begin:] = values

    def __setitem__(self, index: Any, rows: npt.ArrayLike) -> None:
        """Replace a row, or rows `a:b`. Raises `IndexError`, `ValueError` for rows of another number."""
        if index is Ellipsis:
            index = slice(None)
        if not isinstance(index, slice):
            index = slice(self._number(int(index)), self._number(int(index)) + 1)
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise IndexError(f"expected rows a:b, got steps of {step}")
        stop = max(start, stop)
        values = np.empty(stop - start, self.dtype)
        values[...] = np.asarray(rows, self.dtype)
        size = self.metadata.chunk_rows
        for c in range(start // size, -(-stop // size) if stop > start else start // size):
            self._replace(c, values, start)

    def _replace(self, c: int, rows: AnyArray, start: int) -> None:
        """Chunk `c` with the part of `rows`, which begin at `start`, that it covers."""
        size = self.metadata.chunk_rows
        first, last = max(c * size, start), min((c + 1) * size, start + len(rows))
        whole = np.zeros(size, self.dtype)
        end = min((c + 1) * size, len(self))
        self._held().read_into(c * size, end, whole[: end - c * size])
        whole[first - c * size : last - c * size] = rows[first - start : last - start]
        ArrayWriter(self.folder, self.metadata, c * size).append(whole)  # which writes a chunk as soon as it is full

    def _held(self) -> ZarrArray:
        """The array as it is on disk now."""
        return ZarrArray(DirectoryStore(self.folder.parent), self.folder.name, self.metadata, Cache(0), "fill")

    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        """Decoded again each time, because rows may have changed."""
        self._held().read_into(start, stop, out)

    @override
    def row(self, i: int) -> Any:
        return self._held().row(i)

    @override
    def take(self, numbers: IntArray) -> AnyArray:
        return self._held().take(numbers)
