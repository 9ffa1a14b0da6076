"""Writing pickles of plain values, arrays and spaces, so that the original code and every NumPy read them.

Protocol 4, arrays under the name `numpy.core`, which NumPy 1 and 2 know. Nothing is memoised, so the same value gives
the same bytes, and the bytes of an array are a prefix, its values and a suffix.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.core.spaces import Box, Discrete, Space
from penstock.errors import DataError

START, STOP = b"\x80\x04", b"."
DEPTH = 64
_NONE = b"N"
_TRUE = b"\x88"
_FALSE = b"\x89"


def dumps(value: Any) -> bytes:
    """The pickle of a value of dicts, lists, tuples, text, bytes, numbers, arrays, spaces and colour spaces."""
    return START + _value(value, DEPTH) + STOP


@lru_cache(1024)
def around(dtype: str, shape: tuple[int, ...], scalar: bool) -> tuple[bytes, bytes]:
    """The bytes before and after the values of an array, or of a NumPy number, in a pickle of nothing else."""
    before, after = _around(dtype, shape, scalar)
    return START + before, after + STOP


def _around(dtype: str, shape: tuple[int, ...], scalar: bool) -> tuple[bytes, bytes]:
    size = np.dtype(dtype).itemsize * math.prod(shape)
    if scalar:
        return _global("numpy.core.multiarray", "scalar") + _dtype(dtype) + _length(size), b"\x86R"
    prefix = _global("numpy.core.multiarray", "_reconstruct") + _global("numpy", "ndarray") + b"K\0\x85C\1b\x87R"
    state = b"(K\1" + _value(shape, DEPTH) + _dtype(dtype) + _FALSE
    return prefix + state + _length(size), b"tb"


def _value(value: Any, depth: int) -> bytes:
    if depth == 0:
        raise DataError(f"expected values nested less than {DEPTH} deep")
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    for kind, write in _LEAVES:
        if isinstance(value, kind):
            return write(value)
    for kind, write in _NESTED:
        if isinstance(value, kind):
            return write(value, depth - 1)
    raise DataError(f"expected plain values, arrays and spaces, got {type(value).__name__}")


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes((value,))
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(raw) > 255:
        raise DataError(f"expected integers of at most 255 bytes, got {len(raw)}")
    return b"\x8a" + bytes((len(raw),)) + raw


def _text(value: str) -> bytes:
    raw = value.encode()
    short = len(raw) < 256
    return (b"\x8c" + bytes((len(raw),)) if short else b"X" + len(raw).to_bytes(4, "little")) + raw


def _length(size: int) -> bytes:
    if size < 256:
        return b"C" + bytes((size,))
    return b"B" + size.to_bytes(4, "little") if size < 1 << 32 else b"\x8e" + size.to_bytes(8, "little")


def _mapping(value: Mapping[Any, Any], depth: int) -> bytes:
    inner = b"".join(_value(k, depth) + _value(v, depth) for k, v in value.items())
    return b"}(" + inner + b"u" if value else b"}"


def _list(value: list[Any], depth: int) -> bytes:
    return b"](" + b"".join(_value(v, depth) for v in value) + b"e" if value else b"]"


def _tuple(value: tuple[Any, ...], depth: int) -> bytes:
    inner = b"".join(_value(v, depth) for v in value)
    if len(value) > 3:
        return b"(" + inner + b"t"
    return inner + (b")", b"\x85", b"\x86", b"\x87")[len(value)]


def _numpy(value: Any) -> bytes:
    if value.dtype.kind not in "biufc":
        raise DataError(f"expected arrays of numbers, got {value.dtype}")
    before, after = _around(value.dtype.str, value.shape, isinstance(value, np.generic))
    return before + value.tobytes() + after


def _space(value: Space) -> bytes:
    """A space as il-representations stores it: a call of its function with the class and its arguments."""
    code = _global("il_representations.envs.utils", "_inflate_object")
    if isinstance(value, Box):
        arguments = {"low": value.low, "high": value.high, "shape": value.shape}
        inner = b"".join(_value(k, DEPTH) + _value(v, DEPTH) for k, v in arguments.items())
        inner = b"}(" + inner + _text("dtype") + _dtype(value.dtype.str) + b"u"
        return code + _global("gym.spaces.box", "Box") + inner + b"\x86R"
    if isinstance(value, Discrete):
        sized = {"n": value.n} if value.start == 0 else {"n": value.n, "start": value.start}
        return code + _global("gym.spaces.discrete", "Discrete") + _mapping(sized, DEPTH) + b"\x86R"
    raise DataError(f"expected a Box or Discrete space, which this layout can hold, got {value}")


def _enum(value: Enum) -> bytes:
    return _global("imitation.augment.color", "ColorSpace") + _text(str(value.value)) + b"\x85R"


def _dtype(dtype: str) -> bytes:
    code = _global("numpy", "dtype") + _text(dtype[1:]) + _FALSE + _TRUE + b"\x87R"
    minus = b"J\xff\xff\xff\xff"
    return code + b"(K\3" + _text(dtype[0]) + _NONE * 3 + minus * 2 + b"K\0tb"


def _global(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _float(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


_LEAVES: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (np.ndarray | np.generic, _numpy),
    (Enum, _enum),
    (int, _integer),
    (float, _float),
    (str, _text),
    (bytes, _bytes),
    (Space, _space),
)
_NESTED: tuple[tuple[Any, Callable[[Any, int], bytes]], ...] = ((Mapping, _mapping), (list, _list), (tuple, _tuple))
