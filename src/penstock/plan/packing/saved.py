"""A plan as bytes: a line that names the format, a line of JSON, arrays of raw little-endian integers, a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import ChecksumError, FormatError

_MAGIC = b"penstock packs 2\n"
_DTYPES = {"<u2", "<u4", "<i8"}


def to_bytes(header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> bytes:
    raw = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    listed = {name: [a.dtype.str, list(a.shape)] for name, a in raw.items()}
    line = json.dumps({**header, "arrays": listed}).encode() + b"\n"
    body = b"".join([_MAGIC, line, *(a.tobytes() for a in raw.values())])
    return body + zlib.crc32(body).to_bytes(4, "little")


def from_bytes(data: bytes) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Header and arrays again."""
    end = data.find(b"\n", len(_MAGIC))
    if not data.startswith(_MAGIC) or end < 0:
        raise FormatError(f"expected a saved plan, which begins with {_MAGIC!r}, got {data[:20]!r}")
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ChecksumError("expected the bytes of a saved plan as they were written, got others; plan again")
    try:
        header = json.loads(data[len(_MAGIC) : end])
        listed = {name: (dtype, tuple(shape)) for name, (dtype, shape) in header.pop("arrays").items()}
        arrays = _arrays(data, end + 1, listed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"expected the header of a saved plan, got one that cannot be read: {error}") from error
    return header, arrays


def _arrays(data: bytes, begin: int, listed: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray] = {}
    for name, (dtype, shape) in listed.items():
        count = prod(shape)
        if dtype not in _DTYPES or min(shape, default=-1) < 0 or begin + count * int(dtype[2]) > len(data) - 4:
            raise ValueError(f"array {name} of {dtype} {list(shape)}")
        arrays[name] = np.frombuffer(data, dtype, count, begin).reshape(shape)
        begin += count * int(dtype[2])
    if begin != len(data) - 4:
        raise ValueError(f"{len(data) - 4 - begin} bytes behind the arrays")
    return arrays
