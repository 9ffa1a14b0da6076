"""Rows by number: what zarr arrays, memory maps and arrays in memory have in common."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, ByteArray, IntArray, StructArray
from penstock.core.narrowing import is_array, is_list

_STRIDE = 1 << 16  # rows that are read at a time where one field of many is wanted


class ZarrRows(ABC):
    """`n` rows of one dtype, read by number, slice, numbers, mask or name of a field; always copies."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @abstractmethod
    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        """Copy rows `start:stop`, which there are, to `out` `[stop - start, ...]`, C-contiguous, of the same dtype."""

    @abstractmethod
    def row(self, i: int) -> Any:
        """A copy of row `i`, which there is."""

    @abstractmethod
    def take(self, numbers: IntArray) -> AnyArray:
        """A copy of existing rows, in any order. Cost: each block that they touch is decoded once."""

    def present(self, start: int, stop: int) -> None:
        """Raise what reading rows `start:stop` would raise if they are merely claimed, before memory is taken."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, start: int, stop: int) -> AnyArray:
        """A copy of rows `start:stop`, which there are."""
        self.present(start, stop)
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, stop, out)
        return out

    def __getitem__(self, index: Any) -> Any:
        if type(index) is int:
            return self.row(self._number(index))
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self.read(start, max(start, stop)) if step == 1 else self.take(np.arange(start, stop, step))
        if isinstance(index, str):
            return self.field(index)
        if index is Ellipsis:
            return self.read(0, len(self))
        if is_list(index) or is_array(index):
            return self.take(self._numbers(np.asarray(index)))
        try:
            return self.row(self._number(operator.index(index)))
        except TypeError:
            message = "expected a number, a slice, numbers, a mask or the name of a field"
            raise TypeError(f"{message}, got {type(index).__name__}") from None

    def field(self, name: str) -> AnyArray:
        """One field of all rows `[n, ...]`. Memory: that field alone."""
        fields = self.dtype.fields
        if fields is None or name not in fields:
            raise KeyError(f"no field {name!r}; there are {list(fields or ())}")
        self.present(0, len(self))
        out = np.empty(self.shape, self.dtype[name])
        for a in range(0, len(self), _STRIDE):
            b = min(a + _STRIDE, len(self))
            out[a:b] = self.read(a, b)[name]
        return out

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("expected that a copy may be made: these rows are read from somewhere else")
        rows = self.read(0, len(self))
        return rows if dtype is None else rows.astype(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.shape)}, {self.dtype})"

    def _number(self, i: int) -> int:
        n = self.shape[0]
        if not -n <= i < n:
            raise IndexError(f"expected a row within 0:{n}, got {i}")
        return i + n if i < 0 else i

    def _numbers(self, index: AnyArray) -> IntArray:
        n = len(self)
        if index.dtype == np.bool_:
            if index.shape != (n,):
                raise IndexError(f"expected a mask of {n} rows, got {list(index.shape)}")
            return np.flatnonzero(index)
        if index.size == 0:
            return np.zeros(0, np.int64)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise IndexError(f"expected a mask or [m] whole numbers, got {list(index.shape)} {index.dtype}")
        if index.min() < -n or index.max() >= n:
            raise IndexError(f"expected rows within 0:{n}, got {index.min()} to {index.max()}")
        numbers = index.astype(np.int64)
        return np.where(numbers < 0, numbers + n, numbers)


def as_bytes(array: AnyArray) -> ByteArray:
    """`[n, row_bytes]` the bytes of the rows of a C-contiguous array: copied at once, not field by field."""
    n = len(array)
    width = array.dtype.itemsize * math.prod(array.shape[1:])
    return array.reshape(-1).view(np.uint8).reshape(n, width)


def as_void(array: AnyArray) -> StructArray:
    """`[n]` the rows of a C-contiguous array as opaque bytes, which NumPy gathers faster than structures."""
    raw = as_bytes(array)
    return raw.view(np.dtype((np.void, raw.shape[1])))[:, 0]


def from_void(rows: StructArray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """The rows `[n, *shape]` again; `rows` is C-contiguous."""
    return np.ascontiguousarray(rows).view(dtype).reshape(len(rows), *shape)
