"""Names for the types of arrays, one a dtype. Shapes are in the docstrings of the functions that take them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]  # positions, offsets, lengths, ids
Int32Array: TypeAlias = npt.NDArray[np.int32]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
ByteArray: TypeAlias = npt.NDArray[np.uint8]  # bytes of files, text as UTF-8
ImageArray: TypeAlias = npt.NDArray[np.uint8]  # pixels
StructArray: TypeAlias = npt.NDArray[np.void]  # rows of named fields
FloatingArray: TypeAlias = npt.NDArray[np.floating[Any]]  # float32 or float64
