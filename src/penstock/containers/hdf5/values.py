"""Datatype messages -> numpy dtypes, stored bytes -> numpy values, and attributes."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from penstock.containers.hdf5.btree import read_records
from penstock.containers.hdf5.heap import FractalHeap, GlobalHeap
from penstock.containers.hdf5.image import UNDEFINED, Image, located
from penstock.containers.hdf5.messages import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    DATASPACE,
    DATATYPE,
    RANK,
    Message,
    parse_dataspace,
    resolve_shared,
)
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError, UnsupportedDtypeError

_REFERENCE = struct.Struct("<IQI")  # items, address of the collection, index in it
DENSE_ATTRIBUTES = 8  # type of the B-tree that finds them by name
Kind = Literal["array", "string", "vlen_string", "vlen"]
DType = np.dtype[Any]

CLASSES = (
    "fixed-point", "floating-point", "time", "string", "bit field", "opaque", "compound", "reference",
    "enumeration", "variable-length", "array", "complex",
)  # fmt: skip
IEEE = {2: (10, 5, 0, 10), 4: (23, 8, 0, 23), 8: (52, 11, 0, 52)}  # exponent at, bits; mantissa at, bits
OTHER_FLOATS: dict[tuple[int, ...], str] = {  # precision; exponent at, bits; mantissa at, bits
    (16, 7, 8, 0, 7): "bfloat16",
    (80, 64, 15, 0, 64): "long double",
    (128, 112, 15, 0, 112): "float128",
}
DEPTH = 32  # of types inside types

_HEAD = struct.Struct("<B3sI")


def as_array(raw: bytes | memoryview, datatype: Datatype, shape: tuple[int, ...]) -> AnyArray:
    """Array of `shape` over `raw`; no copy except for booleans, which are normalised."""
    full = shape + datatype.inner
    if datatype.boolean:
        return (np.frombuffer(raw, np.uint8) != 0).reshape(full)
    return np.frombuffer(raw, datatype.dtype).reshape(full)


def read_references(raw: bytes | memoryview, datatype: Datatype, heap: GlobalHeap, limit: int) -> list[memoryview]:
    """Bytes of each variable-length element whose references are `raw`; together at most `limit` bytes."""
    out: list[memoryview] = []
    item = datatype.dtype.itemsize
    total = 0
    for count, address, index in _REFERENCE.iter_unpack(raw):
        nbytes = count * item
        total += nbytes
        if total > limit:
            raise FormatError(f"variable-length values claim more than the {limit} bytes of the file")
        out.append(heap.get(address, index, nbytes) if nbytes else memoryview(b""))
    return out


class Attributes(Mapping[str, Any]):
    """Attributes of an object, decoded when they are asked for."""

    def __init__(self, image: Image, heap: GlobalHeap, messages: list[Message], name: str) -> None:
        self.path, self.where = image.path, f"attributes of {name}"
        self._image, self._heap = image, heap
        self._raw = self._collect(messages)

    @located
    def _collect(self, messages: list[Message]) -> dict[str, bytes]:
        out: dict[str, bytes] = {}
        for kind, flags, body in messages:
            if kind == ATTRIBUTE:
                if flags & 2:
                    body = resolve_shared(self._image, ATTRIBUTE, body)  # noqa: PLW2901
                out[attribute_name(body)] = body
            elif kind == ATTRIBUTE_INFO:
                for body in read_dense_attributes(self._image, body):  # noqa: PLW2901, B020
                    out[attribute_name(body)] = body
        return out

    def __getitem__(self, name: str) -> Any:
        return self._decode(self._raw[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __repr__(self) -> str:
        return f"Attributes({dict(self)!r})"

    def raw(self) -> dict[str, bytes]:
        """Attribute messages as they are stored."""
        return dict(self._raw)

    @located
    def _decode(self, body: bytes) -> Any:
        datatype, shape, data = _split_attribute(self._image, body)
        if shape is None:
            return None
        count = math.prod(shape)
        if count * datatype.size > len(data):
            raise FormatError(f"attribute of {count} elements runs over its message")
        raw = data[: count * datatype.size]
        if datatype.kind in ("array", "string"):
            array = as_array(raw, datatype, shape)
            return array.copy() if array.shape else array[()]
        return self._decode_vlen(raw, datatype, shape)

    def _decode_vlen(self, raw: bytes, datatype: Datatype, shape: tuple[int, ...]) -> Any:
        pieces = read_references(raw, datatype, self._heap, self._image.size)
        out = np.empty(len(pieces), object)
        for i, piece in enumerate(pieces):
            if datatype.kind == "vlen_string":
                out[i] = bytes(piece).rstrip(b"\0").decode("utf-8", "surrogateescape")
            else:
                out[i] = as_array(piece, datatype, (-1,)).copy()
        return out.reshape(shape) if shape else out[0]


def read_dense_attributes(image: Image, info: bytes) -> Iterator[bytes]:
    """Attribute messages that the attribute info message `info` keeps in a fractal heap."""
    heap_address, index = struct.unpack_from("<QQ", info, 4 if info[1] & 1 else 2)
    if heap_address == UNDEFINED:
        return
    heap = FractalHeap(image, heap_address)
    for record in read_records(image, index, DENSE_ATTRIBUTES):
        if record[8] & 2:
            raise FormatError("attributes shared between objects are not supported")
        yield heap.get(record[:8])


def attribute_name(body: bytes) -> str:
    (length,) = struct.unpack_from("<H", body, 2)
    offset = 9 if body[0] == 3 else 8
    raw = body[offset : offset + length]
    if body[0] not in (1, 2, 3) or len(raw) != length:
        raise FormatError(f"attribute message of version {body[0]} is malformed")
    return raw.rstrip(b"\0").decode()


def _split_attribute(image: Image, body: bytes) -> tuple[Datatype, tuple[int, ...] | None, bytes]:
    version, flags = body[0], body[1]
    lengths = struct.unpack_from("<HHH", body, 2)
    offset = 9 if version == 3 else 8
    parts: list[bytes] = []
    for length in lengths:
        parts.append(body[offset : offset + length])
        offset += (length + 7) // 8 * 8 if version == 1 else length
    _, datatype, space = parts
    if version > 1 and flags & 1:
        datatype = resolve_shared(image, DATATYPE, datatype)
    if version > 1 and flags & 2:
        space = resolve_shared(image, DATASPACE, space)
    return parse_datatype(datatype), parse_dataspace(space).shape, body[offset:]


class _Head(NamedTuple):
    version: int
    bits: int
    size: int
    depth: int


@dataclass(frozen=True, slots=True)
class Datatype:
    """Type of one element.

    `kind`; `dtype`, of the element, or of the items of a variable-length one; `inner`, shape of an array
    element; `size`, bytes of an element in the file; `boolean`, an enumeration {FALSE, TRUE} as h5py writes.
    """

    kind: Kind
    dtype: DType
    size: int
    inner: tuple[int, ...] = ()
    boolean: bool = False


@lru_cache(maxsize=4096)
def parse_datatype(body: bytes) -> Datatype:
    """Type that a datatype message describes."""
    return _parse(body, 0, 0)[0]


def _parse(body: bytes, position: int, depth: int) -> tuple[Datatype, int]:
    if depth > DEPTH:
        raise FormatError(f"datatypes are nested more than {DEPTH} deep")
    head, bits, size = _HEAD.unpack_from(body, position)
    version, number = head >> 4, head & 15
    if not 1 <= version <= 5:
        raise FormatError(f"datatype version {version} is unknown")
    parse = _PARSERS.get(number)
    if parse is None:
        name = CLASSES[int(number)] if number < len(CLASSES) else f"number {number}"
        raise UnsupportedDtypeError(f"datatype class {name} is not supported; store it as numbers or text")
    if size == 0:
        raise FormatError(f"datatype of class {CLASSES[number]} claims 0 bytes")
    return parse(body, position + 8, _Head(version, int.from_bytes(bits, "little"), size, depth))


def _integer(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    offset, precision = struct.unpack_from("<HH", body, position)
    if head.size not in (1, 2, 4, 8) or offset or precision != 8 * head.size:
        raise UnsupportedDtypeError(
            f"integer of {precision} bits at bit {offset} in {head.size} bytes is not supported"
        )
    letter = "i" if head.bits & 8 else "u"
    return Datatype("array", np.dtype(f"{'>' if head.bits & 1 else '<'}{letter}{head.size}"), head.size), position + 4


def _bits(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    """Bit fields, as PyTables stores booleans, are numbers without sign, as h5py reads them."""
    offset, precision = struct.unpack_from("<HH", body, position)
    if head.size not in (1, 2, 4, 8) or offset or precision != 8 * head.size:
        raise UnsupportedDtypeError(
            f"bit field of {precision} bits at bit {offset} in {head.size} bytes is not supported"
        )
    return Datatype("array", np.dtype(f"{'>' if head.bits & 1 else '<'}u{head.size}"), head.size), position + 4


def _float(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    offset, precision, *layout, _ = struct.unpack_from("<HHBBBBI", body, position)
    if IEEE.get(head.size) != tuple(layout) or offset or precision != 8 * head.size or head.bits & 0x40:
        name = OTHER_FLOATS.get((precision, *layout), "another layout")
        message = f"expected IEEE floats of 16, 32 or 64 bits, got {name} of {precision} bits in {head.size} bytes"
        raise UnsupportedDtypeError(f"{message}; store it as float32 or float64")
    return Datatype("array", np.dtype(f"{'>' if head.bits & 1 else '<'}f{head.size}"), head.size), position + 12


def _string(_: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    return Datatype("string", np.dtype(f"S{_bounded(head.size)}"), head.size), position


def _enum(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    base, position = _parse(body, position, head.depth + 1)
    if base.dtype.kind not in "iu" or base.inner or base.size != head.size:
        raise FormatError("enumeration is not based on an integer of the same size")
    names: list[bytes] = []
    for _ in range(head.bits & 0xFFFF):
        name, position = _name(body, position, padded=head.version < 3)
        names.append(name)
    end = position + len(names) * head.size
    if end > len(body):
        raise FormatError("values of an enumeration run over its message")
    if head.size == 1 and names == [b"FALSE", b"TRUE"] and body[position:end] == b"\0\1":
        return Datatype("array", np.dtype(np.bool_), 1, boolean=True), end
    return Datatype("array", base.dtype, head.size), end


def _vlen(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    if head.size != 16 or head.depth:
        raise UnsupportedDtypeError("variable-length data inside another datatype is not supported")
    base, position = _parse(body, position, head.depth + 1)
    if head.bits & 15 == 1:
        return Datatype("vlen_string", np.dtype(np.uint8), head.size), position
    if head.bits & 15 or base.kind != "array" or base.inner:
        raise UnsupportedDtypeError("variable-length sequences are supported for plain numbers only")
    return Datatype("vlen", base.dtype, head.size, boolean=base.boolean), position


def _array(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    rank = body[position]
    position += 4 if head.version < 3 else 1
    shape = _shape(struct.unpack_from(f"<{rank}I", body, position))
    base, position = _parse(body, position + 4 * rank * (2 if head.version < 3 else 1), head.depth + 1)
    if math.prod(shape) * base.size != head.size:
        raise FormatError(f"array datatype of shape {shape} does not fill its {head.size} bytes")
    return Datatype(base.kind, base.dtype, head.size, shape + base.inner, base.boolean), position


def _compound(body: bytes, position: int, head: _Head) -> tuple[Datatype, int]:
    names: list[str] = []
    formats: list[Any] = []
    offsets: list[int] = []
    width = max(1, (head.size.bit_length() + 7) // 8) if head.version >= 3 else 4
    for _ in range(head.bits & 0xFFFF):
        name, position = _name(body, position, padded=head.version < 3)
        offset = int.from_bytes(body[position : position + width], "little")
        position += width
        dims: tuple[int, ...] = ()
        if head.version == 1:
            dims = _shape(struct.unpack_from(f"<{min(body[position], 4)}I", body, position + 12))
            position += 28
        member, position = _parse(body, position, head.depth + 1)
        if offset + math.prod(dims) * member.size > head.size:
            raise FormatError(f"member {name!r} runs over its compound of {head.size} bytes")
        names.append(name.decode())
        formats.append((member.dtype, dims + member.inner))
        offsets.append(offset)
    if names == ["r", "i"] and formats[0] == formats[1] and offsets == [0, head.size // 2] and head.size in (8, 16):
        return Datatype("array", np.dtype(f"{formats[0][0].str[0]}c{head.size}"), head.size), position
    spec: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": _bounded(head.size)}
    return Datatype("array", np.dtype(spec), head.size), position


def _name(body: bytes, position: int, *, padded: bool) -> tuple[bytes, int]:
    end = body.index(b"\0", position)
    return body[position:end], (position + (end - position + 8) // 8 * 8 if padded else end + 1)


def _shape(dims: tuple[int, ...]) -> tuple[int, ...]:
    if len(dims) > RANK or 0 in dims:
        raise FormatError(f"array datatype with dimensions {dims} is malformed")
    return tuple(dims)


def _bounded(size: int) -> int:
    if size > 0x7FFFFFFF:
        raise FormatError(f"an element of {size} bytes is not supported")
    return size


_PARSERS = {0: _integer, 1: _float, 3: _string, 4: _bits, 6: _compound, 8: _enum, 9: _vlen, 10: _array}
