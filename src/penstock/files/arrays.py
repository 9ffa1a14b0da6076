"""Cache files of a header and named arrays, on `penstock.files.checked`.

The content is the length of a JSON text (8 bytes, little-endian), the text, and the arrays in the order that the
text lists. Spaces behind the text and zeros behind each array let every array begin at a multiple of `ALIGNED` bytes
of the file, because a large file is read by a memory map, and compiled loops want aligned arrays.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.files.checked import head_bytes, read_checked, write_checked
from penstock.files.descriptors import StrPath

Arrays = Mapping[str, AnyArray]


ALIGNED = 64
SPILLED = 64 << 20
"""Bytes from which on `scratch_zeros` uses a file."""


def write_arrays(path: StrPath, magic: bytes, key: str, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a header that JSON can hold (arrays in it become lists) and arrays. Raises as `write_checked` does."""
    listed = [[name, array.dtype.str, list(array.shape), ALIGNED] for name, array in arrays.items()]
    raw = json.dumps({"header": header, "arrays": listed}, default=np.ndarray.tolist).encode()
    raw += b" " * _gap(head_bytes(magic, key) + 8 + len(raw))
    parts: list[Any] = []
    for array in arrays.values():
        data = np.ascontiguousarray(array)
        parts += [data.reshape(-1).view(np.uint8).data if data.size else b"", bytes(_gap(data.nbytes))]
    write_checked(path, magic, key, len(raw).to_bytes(8, "little"), raw, *parts)


def read_arrays(path: StrPath, magic: bytes, key: str) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
    """Read what `write_arrays` wrote under this key, arrays read-only; None where `read_checked` says so."""
    content = read_checked(path, magic, key, mapped=True)
    if content is None:
        return None
    try:
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(bytes(content[8:begin]))
        return dict(header["header"]), _arrays(content, begin, header["arrays"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # something else of the same magic


def _arrays(content: memoryview, begin: int, listed: list[Any]) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray] = {}
    for name, code, shape, aligned in listed:
        dtype, count = np.dtype(code), int(np.prod(shape, dtype=np.int64))
        if dtype.hasobject or count < 0 or aligned != ALIGNED:
            raise ValueError(f"array {name} of {dtype} {shape}, aligned to {aligned}")
        end = begin + count * dtype.itemsize
        arrays[name] = (
            np.frombuffer(content[begin:end], dtype, count).reshape(shape) if count else np.empty(shape, dtype)
        )
        begin = end + _gap(end - begin)
    return arrays


def scratch_zeros(shape: tuple[int, ...], dtype: Any) -> AnyArray:
    """Return zeros to write to. Large ones are in a temporary file without a name (`TMPDIR`), so the system can write
    them out when it needs the memory. Without space for the file, they are in memory.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size >= SPILLED:
        with suppress(OSError), tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and would end the process later
            return np.frombuffer(mmap.mmap(file.fileno(), size), kind).reshape(shape)
    return np.zeros(shape, kind)


def _gap(size: int) -> int:
    """Bytes from `size` to the next multiple of `ALIGNED`."""
    return -size % ALIGNED
