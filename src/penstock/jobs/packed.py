"""Results of jobs as bytes: plain values as JSON, and arrays as raw bytes behind it.

The format is a length of 8 bytes, the JSON text of that length, then the arrays. In the JSON text, an array is an
object with its dtype, shape and offset. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from penstock.errors import FormatError

_ARRAY = "__array__"


def pack(value: Any) -> bytes:
    """Return plain values with arrays in them as bytes."""
    arrays: list[bytes] = []
    size = 0

    def plain(item: Any) -> dict[str, tuple[Any, ...]]:
        if isinstance(item, bytes):
            return {_ARRAY: ("bytes", (), *store(item))}
        array = np.ascontiguousarray(item)
        return {_ARRAY: (array.dtype.str, np.shape(item), *store(array.tobytes()))}

    def store(data: bytes) -> tuple[int, int]:
        nonlocal size
        arrays.append(data)
        size += len(data)
        return size - len(data), len(data)

    text = json.dumps(value, default=plain).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *arrays])


def unpack(data: bytes | memoryview) -> Any:
    """Return the values of `pack`. Arrays are read-only views of `data`."""
    raw = memoryview(data)
    end = 8 + int.from_bytes(raw[:8], "little")

    def restored(item: dict[str, Any]) -> Any:
        if item.keys() != {_ARRAY}:
            return item
        dtype, shape, offset, size = item[_ARRAY]
        part = raw[end + offset : end + offset + size]
        return bytes(part) if dtype == "bytes" else np.frombuffer(part, np.dtype(dtype)).reshape(shape)

    try:
        return json.loads(bytes(raw[8:end]), object_hook=restored)
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"expected the result of a job, got {error!r}") from error
