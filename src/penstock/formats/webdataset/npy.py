"""The header of `.npy` members: written the same for the same array, read without evaluating anything."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import FormatError

MAGIC = b"\x93NUMPY"
LONGEST = 1 << 16  # bytes of a header
_PLAIN = re.compile(
    rb"\{'descr': '([<>|=]?[biufcSU]\d+)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \}\s*"
)


def array_of(raw: bytes, where: str, path: object) -> npt.NDArray[Any]:
    """The array in the bytes of a `.npy` file of plain numbers or text, read-only, in C order.

    Raises `FormatError` for anything else, objects included, and where the shape does not fit the bytes.

    >>> array_of(header("<i2", (2,)) + b"\\1\\0\\2\\0", "", None)
    array([1, 2], dtype=int16)
    """
    dtype, shape, fortran, at = _header(raw, where, path)
    count = 1
    for side in shape:
        count *= side
    if count * dtype.itemsize != len(raw) - at:
        message = f"expected {count * dtype.itemsize} bytes for {dtype}{list(shape)}, got {len(raw) - at}"
        raise FormatError(message, path=path, where=where)
    flat = np.frombuffer(raw, dtype, count, at) if count and dtype.itemsize else np.zeros(count, dtype)
    return np.ascontiguousarray(flat.reshape(shape, order="F")) if fortran else flat.reshape(shape)


@lru_cache(4096)
def header(dtype: str, shape: Sequence[int]) -> bytes:
    """What comes before the values of an array in C order; the same as NumPy writes."""
    out = io.BytesIO()
    described: Any = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(out, {"descr": described, "fortran_order": False, "shape": tuple(shape)})
    return out.getvalue()


def _header(raw: bytes, where: str, path: object) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Dtype, shape, whether in Fortran order, and where the values begin."""
    wide = raw[6:7] in (b"\2", b"\3")
    begin = 12 if wide else 10
    length = int.from_bytes(raw[8:begin], "little")
    found = _PLAIN.fullmatch(raw[begin : begin + length]) if length <= LONGEST else None
    if not raw.startswith(MAGIC) or raw[6:7] not in (b"\1", b"\2", b"\3") or found is None:
        message = f"expected an .npy file of plain numbers or text, got {raw[:120]!r}"
        raise FormatError(message, path=path, where=where)
    descr, fortran, sides = found.groups()
    try:
        dtype = np.dtype(descr.decode())
        shape = tuple(int(side) for side in sides.replace(b" ", b"").split(b",") if side)
    except (TypeError, ValueError) as error:
        message = f"expected a dtype of plain numbers or text, got {descr!r}"
        raise FormatError(message, path=path, where=where) from error
    if len(shape) > 32:
        raise FormatError(f"expected at most 32 dimensions, got {len(shape)}", path=path, where=where)
    return dtype, shape, fortran == b"True", begin + length
