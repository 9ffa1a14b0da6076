"""Datatype messages -> numpy dtypes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from penstock.errors import FormatError, UnsupportedDtypeError

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
RANK = 32

_HEAD = struct.Struct("<B3sI")


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
    """Type that a datatype message describes.  Raises `FormatError` naming what is not supported."""
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
    if int(np.prod(shape, dtype=object)) * base.size != head.size:
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
        if offset + int(np.prod(dims, dtype=object)) * member.size > head.size:
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
