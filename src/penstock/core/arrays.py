"""Names for the types of arrays, one a dtype; and `read_only`, as kernels want arrays that they only read.

Shapes are in the docstrings of the functions that take the arrays.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntScalar: TypeAlias = int | np.int64  # in kernels: a whole number, or an element of an IntArray
IntArray: TypeAlias = npt.NDArray[np.int64]  # positions, offsets, lengths, ids
Int32Array: TypeAlias = npt.NDArray[np.int32]
UInt16Array: TypeAlias = npt.NDArray[np.uint16]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
ByteArray: TypeAlias = npt.NDArray[np.uint8]  # bytes of files, text as UTF-8
ImageArray: TypeAlias = npt.NDArray[np.uint8]  # pixels
StructArray: TypeAlias = npt.NDArray[np.void]  # rows of named fields
FloatingArray: TypeAlias = npt.NDArray[np.floating[Any]]  # float32 or float64


def read_only(array: AnyArray) -> AnyArray:
    """Return a contiguous array that cannot be written to: the array itself, a view, or a copy if it is not
    contiguous.

    A kernel compiles for each kind of array that it gets, so all arrays that it only reads come as this kind.
    """
    flags = array.flags
    if flags.c_contiguous and not flags.writeable:
        return array
    out = np.ascontiguousarray(array).view()
    out.flags.writeable = False
    return out
