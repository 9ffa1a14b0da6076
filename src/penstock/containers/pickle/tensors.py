"""Tensors of PyTorch as arrays: the names in their pickles, and the two layouts of their values.

A tensor is a view of a storage: values of one dtype, an offset, a size and a stride for each axis. `torch.save` writes
a ZIP file with a pickle that names storages by number, and one member for the bytes of each. `pickle.dumps` of a tensor
has the bytes of its storage in the older layout, between pickles that are alike but for names and numbers; these are
compared with a pattern, not interpreted. Numbers of bfloat16 become float32, which holds them as they are. PyTorch is
not needed.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from penstock.containers.pickle.machine import Machine, Symbol, brief
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_listed, is_tuple

_BFLOAT16 = "BFloat16Storage"
_DTYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    _BFLOAT16: "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
    "ComplexFloatStorage": "<c8",
    "ComplexDoubleStorage": "<c16",
}
_TEXT = rb"X.{4}([\w:.-]{1,64})(?:q.)?"  # a text of a pickle of protocol 2, perhaps remembered
_OLDER = re.compile(
    rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.\x80\x02M\xe9\x03\.\x80\x02\}.{1,256}?\."  # number, version, system
    rb"\x80\x02\(X\x07\0\0\0storage(?:q.)?ctorch\n(\w{1,24})\n(?:q.)?"
    + _TEXT
    + _TEXT  # name, key, device
    + rb"(?:K.|M..|J....|\x8a..{1,8}?)N?t(?:q.)?Q\.\x80\x02\](?:q.)?"
    + _TEXT
    + rb"a\.(.{8})",  # count, keys, count
    re.DOTALL,
)


class TensorStorage:
    """`values` `[n]` of a storage, which tensors are views of."""

    __slots__ = ("values",)

    def __init__(self, values: AnyArray) -> None:
        self.values = values


def storage_of(m: Machine, description: Any) -> TensorStorage:
    """The storage that a persistent id of `torch.save` names. Raises `UnsafeDataError`."""
    match description:
        case ("storage", Symbol(module="torch", name=name), str() as key, str(), int() as count, *_) if name in _DTYPES:
            raw = None if m.storages is None else m.storages.get(key)
        case _:
            raise m.unsafe(f"expected the id of a storage, got {brief(description)}")
    if raw is None:
        raise m.error(f"expected the storage {key!r}, got none")
    return _storage(m, name, raw, count)


def _storage(m: Machine, name: str, raw: bytes, count: int) -> TensorStorage:
    dtype = np.dtype(_DTYPES[name])
    if len(raw) != count * dtype.itemsize:
        raise m.error(f"expected a storage of {count * dtype.itemsize} bytes, got {len(raw)}")
    if dtype.kind == "b" and np.frombuffer(raw, np.uint8).max(initial=0) > 1:
        raise m.error("expected bools of 0 and 1, got others")
    values = np.frombuffer(raw, dtype)
    if name == _BFLOAT16:
        m.charge(2 * len(raw))
        values = (values.astype("<u4") << 16).view("<f4")
    return TensorStorage(values)


def _load_from_bytes(m: Machine, args: tuple[Any, ...]) -> TensorStorage:
    match args:
        case (bytes() as raw,) if (match := _OLDER.match(raw)) is not None and match[1].decode() in _DTYPES:
            m.charge(len(raw) - match.end())
            return _storage(m, match[1].decode(), raw[match.end() :], int.from_bytes(match[5], "little"))
        case _:
            raise m.unsafe("expected the bytes of a storage of PyTorch, got others")


def _rebuild_tensor(m: Machine, args: tuple[Any, ...]) -> AnyArray:
    match args:
        case (TensorStorage(values=values), int() as offset, size, stride, *_) if is_tuple(size) and is_tuple(stride):
            numbers: list[Any] = [offset, *size, *stride]
        case _:
            raise m.unsafe(f"expected a storage, an offset, sizes and strides, got {', '.join(map(brief, args[:4]))}")
    sound = len(size) == len(stride) <= 32 and all(type(n) is int and 0 <= n < 1 << 40 for n in numbers)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if sound else 0
    count = int(np.prod([int(n) for n in size], dtype=object)) if sound else 0
    if not sound or (count and last >= len(values)) or count * values.itemsize > m.limits.nbytes:
        raise m.unsafe(f"expected a tensor within a storage of {len(values)} values, got {brief(args[1:4])}")
    if not count:
        return _frozen(np.zeros(size, values.dtype))
    m.charge(count * values.itemsize)
    strides = [step * values.itemsize for step in stride]
    return _frozen(np.lib.stride_tricks.as_strided(values[offset:], size, strides).copy(order="C"))


def _frozen(array: AnyArray) -> AnyArray:
    array.setflags(write=False)
    return array


def _rebuild_parameter(m: Machine, args: tuple[Any, ...]) -> AnyArray:
    if not args or not is_array(args[0]):
        raise m.unsafe("expected a tensor as a parameter")
    return args[0]


def _size(m: Machine, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) != 1 or not is_listed(args[0]):
        raise m.unsafe("expected the sizes of a tensor")
    m.charge(8 * len(args[0]))
    return tuple(args[0])


TENSOR_SYMBOLS = (
    *(Symbol("torch", name) for name in _DTYPES),
    Symbol("torch", "Size", call=_size),
    Symbol("torch._utils", "_rebuild_tensor", call=_rebuild_tensor),
    Symbol("torch._utils", "_rebuild_tensor_v2", call=_rebuild_tensor),
    Symbol("torch._utils", "_rebuild_parameter", call=_rebuild_parameter),
    Symbol("torch.storage", "_load_from_bytes", call=_load_from_bytes),
)
