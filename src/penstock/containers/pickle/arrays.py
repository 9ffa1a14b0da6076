"""NumPy's arrays, scalars and dtypes out of their pickled parts; NumPy is handed only what was checked here.

Dtypes come from a fixed list, and shapes are checked against the number of bytes. Tensors of PyTorch are views of
storages. `torch.save` writes a ZIP file with a pickle that names storages by number; `pickle.dumps` has the older
layout between pickles that are compared with a pattern, not interpreted. Numbers of bfloat16 become float32.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np

from penstock.containers.pickle.machine import Machine, Pending, Symbol, brief
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_dtype, is_list, is_listed, is_tuple

DType = np.dtype[Any]
Order = Literal["C", "F"]

RANK = 32
OBJECT_NESTING = 32  # of object arrays directly in object arrays: NumPy frees them recursively
NUMBERS = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_PLAIN: dict[tuple[str, str], DType] = {
    **{(code, order): np.dtype(order + code) for code in NUMBERS for order in "<>"},
    **{(code, "|"): np.dtype(code) for code in ("b1", "i1", "u1")},
    **{(code, "|"): np.dtype(object) for code in ("O8", "O4")},
}
_TEXT = re.compile(r"[SU](\d{1,9})", re.ASCII)


def _dtype(m: Machine, args: tuple[Any, ...]) -> Pending:
    """`numpy.dtype(code, align, copy)`; its byte order and size follow as a state."""
    match args:
        case (str() as code, int(), int()):
            return Pending(DTYPE, code)
        case _:
            raise m.unsafe(f"expected a dtype by its code, such as 'f4', got {_parts(args)}")


def _finish_dtype(m: Machine, code: str, state: Any) -> DType:
    if not is_tuple(state) or len(state) not in (8, 9):
        raise m.unsafe(f"expected the 8 or 9 parts of a dtype, got {_parts(state)}")
    version, order, subdtype, names, fields, size, align, flags = state[:8]
    if subdtype is not None or names is not None or fields is not None:
        raise m.unsafe("structured dtypes are not read; store their fields as separate arrays")
    if not all(type(part) is int for part in (version, size, align, flags)) or version not in (3, 4):
        raise m.unsafe(f"expected a dtype of version 3 or 4, got {_parts(state)}")
    if type(order) is not str:
        raise m.unsafe(f"expected a byte order, got {_parts(state)}")
    if code in ("M8", "m8"):
        return _time(m, code, order, state[8:])
    dtype = _PLAIN.get((code, order)) if (size, len(state)) == (-1, 8) else _text(code, order, size)
    if dtype is None or len(state) == 9:
        known = f"{', '.join(('b1', 'i1', 'u1', *NUMBERS))}, S and U with a length, M8, m8, O8"
        raise m.unsafe(f"expected a dtype out of {known}, got {brief(order)} {brief(code)} of {brief(size)} bytes")
    return dtype


def _text(code: str, order: str, size: int) -> DType | None:
    match = _TEXT.fullmatch(code)
    if match is None or order not in (("|",) if code[0] == "S" else ("<", ">")):
        return None
    length = int(match[1])
    unit = 1 if code[0] == "S" else 4
    return np.dtype(f"{order}{code[0]}{length}") if size == unit * length and size < 1 << 31 else None


def _time(m: Machine, code: str, order: str, extra: tuple[Any, ...]) -> DType:
    match extra:
        case ((None, (bytes() as unit, count, 1, int())),) if type(count) is int and order in ("<", ">"):
            name = unit.decode("latin-1")
            if name == "generic" and count == 1:
                return np.dtype(f"{order}{code}")
            if name in UNITS and 1 <= count < 1 << 31:
                return np.dtype(f"{order}{code}[{count}{name}]")
        case _:
            pass
    raise m.unsafe(f"expected a unit of time such as (b's', 1, 1, 1), got {_parts(extra)}")


def _reconstruct(m: Machine, args: tuple[Any, ...]) -> Pending:
    """`_reconstruct(ndarray, (0,), b"b")`: an array without content, which follows as a state."""
    match args:
        case (Symbol() as kind, (int() as size,), bytes() | str() as code) if kind is NDARRAY:
            if size == 0 and code in (b"b", "b"):
                return Pending(NDARRAY)
        case _:
            pass
    raise m.unsafe(f"expected (ndarray, (0,), b'b') to start an array, got {_parts(args)}")


def _finish_array(m: Machine, _: Any, state: Any) -> AnyArray:
    match state:
        case (int() as version, shape, dtype, int() as fortran, payload) if (
            version == 1 and is_tuple(shape) and is_dtype(dtype)
        ):
            return build_array(m, dtype, shape, "F" if fortran else "C", payload)
        case _:
            raise m.unsafe(f"expected (1, shape, dtype, fortran, content) of an array, got {_parts(state)}")


def _frombuffer(m: Machine, args: tuple[Any, ...]) -> AnyArray:
    """Protocol 5: `_frombuffer(content, dtype, shape, order)`, or order "K" and the permutation of its axes."""
    if not isinstance(args[0] if args else None, bytes | bytearray):
        raise m.unsafe(f"expected the bytes of an array, got {_parts(args)}")
    match args:
        case (payload, dtype, shape, str() as order) if order in ("C", "F") and is_dtype(dtype) and is_tuple(shape):
            return build_array(m, dtype, shape, "F" if order == "F" else "C", payload)
        case (payload, dtype, shape, "K", axes) if is_dtype(dtype) and is_tuple(shape) and is_tuple(axes):
            array = build_array(m, dtype, shape, "C", payload)
            if not all(type(axis) is int for axis in axes) or sorted(axes) != list(range(array.ndim)):
                raise m.unsafe(f"expected a permutation of {array.ndim} axes, got {_parts(axes)}")
            return array.transpose(axes)
        case _:
            raise m.unsafe(f"expected (content, dtype, shape, order) of an array, got {_parts(args)}")


def build_array(m: Machine, dtype: DType, shape: tuple[Any, ...], order: Order, payload: Any) -> AnyArray:
    """Array over `payload`, without a copy and read-only, once shape, dtype and bytes agree."""
    count = _count(m, shape, dtype.itemsize)
    if dtype.hasobject:
        return _object_array(m, shape, count, payload)
    raw = _raw(m, payload)
    if dtype.itemsize == 0 or len(raw) != count * dtype.itemsize:
        raise m.unsafe(f"expected {count * dtype.itemsize} bytes for {dtype} {list(shape)}, got {len(raw)}")
    _check_items(m, dtype, raw)
    m.dtype = dtype
    array = np.frombuffer(raw, dtype, count).reshape(shape, order=order)
    array.flags.writeable = False
    return array


def _raw(m: Machine, payload: Any) -> bytes | bytearray:
    if isinstance(payload, bytes | bytearray):
        return payload
    if isinstance(payload, str) and payload.isascii():  # Python 2 had one type for text and bytes
        m.charge(len(payload))
        return payload.encode()
    raise m.unsafe(f"expected the bytes of an array, got {brief(payload)}")


def _count(m: Machine, shape: tuple[Any, ...], itemsize: int) -> int:
    """Number of elements; the extents without the empty ones have to be addressable too."""
    if len(shape) > RANK or not all(type(n) is int and n >= 0 for n in shape):
        raise m.unsafe(f"expected a shape of at most {RANK} sizes, got {_parts(shape)}")
    span = max(itemsize, 1)
    for n in shape:
        span *= n or 1
        if span >= 1 << 62:
            raise m.unsafe(f"an array of shape {_parts(shape)} cannot be addressed")
    return 0 if 0 in shape else span // max(itemsize, 1)


def _check_items(m: Machine, dtype: DType, payload: bytes | bytearray) -> None:
    """Booleans are 0 or 1, characters are Unicode: NumPy relies on it."""
    if dtype.kind == "b":
        m.charge(len(payload))
        if payload and (largest := int(np.frombuffer(payload, np.uint8).max())) > 1:
            raise m.unsafe(f"expected booleans of 0 or 1, got {largest}")
    if dtype.kind == "U" and payload:
        m.charge(len(payload))
        if (largest := int(np.frombuffer(payload, f"{dtype.str[0]}u4").max())) > 0x10FFFF:
            raise m.unsafe(f"expected characters up to U+10FFFF, got {largest:#x}")


def _object_array(m: Machine, shape: tuple[Any, ...], count: int, items: Any) -> AnyArray:
    """The elements are listed in C order, for any order of the array."""
    if not is_list(items) or len(items) != count:
        got = f"{len(items)} in a list" if is_list(items) else type(items).__name__
        raise m.unsafe(f"expected {count} elements for an object array of shape {list(shape)}, got {got}")
    m.charge(8 * count)
    height = 1 + max((m.heights.get(id(x), 0) for x in items if is_array(x) and x.dtype.hasobject), default=0)
    if height > OBJECT_NESTING:
        raise m.unsafe(f"object arrays are nested more than {OBJECT_NESTING} deep")
    flat = np.empty(count, object)
    for i, item in enumerate(items):  # one by one: NumPy would take equal lists for another axis
        flat[i] = item
    array = flat.reshape(shape)
    array.flags.writeable = False
    m.heights[id(array)] = height
    return array


def _scalar(m: Machine, args: tuple[Any, ...]) -> Any:
    """`scalar(dtype, bytes)`."""
    match args:
        case (np.dtype() as dtype, bytes() | bytearray() | str() as payload) if not dtype.hasobject:
            if dtype.itemsize == 0 and not payload:
                return np.str_("") if dtype.kind == "U" else np.bytes_(b"")
            return build_array(m, dtype, (), "C", payload)[()]
        case _:
            raise m.unsafe(f"expected the dtype and the bytes of a scalar, got {_parts(args)}")


def _parts(value: Any) -> str:
    """Types of the parts of a tuple, short."""
    if not is_tuple(value):
        return brief(value)
    return f"({', '.join(brief(part) for part in value[:10])}{', ...' if len(value) > 10 else ''})"


DTYPE = Symbol("numpy", "dtype", call=_dtype, finish=_finish_dtype)
NDARRAY = Symbol("numpy", "ndarray", finish=_finish_array)
ARRAY_SYMBOLS = (
    DTYPE,
    NDARRAY,
    *(Symbol(f"numpy.{core}.multiarray", "_reconstruct", call=_reconstruct) for core in ("core", "_core")),
    *(Symbol(f"numpy.{core}.multiarray", "scalar", call=_scalar) for core in ("core", "_core")),
    *(Symbol(f"numpy.{core}.numeric", "_frombuffer", call=_frombuffer) for core in ("core", "_core")),
)


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
_PICKLED_TEXT = rb"X.{4}([\w:.-]{1,64})(?:q.)?"  # a text of a pickle of protocol 2, perhaps remembered
_OLDER = re.compile(
    rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.\x80\x02M\xe9\x03\.\x80\x02\}.{1,256}?\."  # number, version, system
    rb"\x80\x02\(X\x07\0\0\0storage(?:q.)?ctorch\n(\w{1,24})\n(?:q.)?"
    + _PICKLED_TEXT
    + _PICKLED_TEXT  # name, key, device
    + rb"(?:K.|M..|J....|\x8a..{1,8}?)N?t(?:q.)?Q\.\x80\x02\](?:q.)?"
    + _PICKLED_TEXT
    + rb"a\.(.{8})",  # count, keys, count
    re.DOTALL,
)


class TensorStorage:
    """`values` `[n]` of a storage, which tensors are views of."""

    __slots__ = ("values",)

    def __init__(self, values: AnyArray) -> None:
        self.values = values


def storage_of(m: Machine, description: Any) -> TensorStorage:
    """The storage that a persistent id of `torch.save` names."""
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
