"""`TensorBase`: the description of an array under the names of Leela Chess Zero's loader."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray


class TensorBase:
    """Shape, strides and type of an array.

    In the original, tensors own the memory of the arrays that `get_next` returns. Here arrays own their memory, and a
    tensor describes one that it is given.
    """

    def __init__(self, array: AnyArray) -> None:
        self._array = np.asarray(array)

    def shape(self) -> list[int]:
        """Return the length of each axis."""
        return list(self._array.shape)

    def strides(self) -> list[int]:
        """Return the bytes from one element to the next on each axis."""
        return list(self._array.strides)

    def element_size(self) -> int:
        return self._array.itemsize

    def py_format(self) -> str:
        """Return the format of an element, as the `struct` module writes it: "f", "d", "i" or "q", and others."""
        dtype = self._array.dtype
        return "q" if dtype == np.int64 else dtype.char

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(self._array, dtype, copy=copy)
