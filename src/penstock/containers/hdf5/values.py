"""Stored bytes -> numpy values, and attributes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.containers.hdf5.btree import read_records
from penstock.containers.hdf5.datatype import Datatype, parse_datatype
from penstock.containers.hdf5.header import ATTRIBUTE, ATTRIBUTE_INFO, DATASPACE, DATATYPE, Message, resolve_shared
from penstock.containers.hdf5.heap import FractalHeap, GlobalHeap
from penstock.containers.hdf5.image import UNDEFINED, Image, located
from penstock.containers.hdf5.messages import parse_dataspace
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError

_REFERENCE = struct.Struct("<IQI")  # items, address of the collection, index in it
DENSE_ATTRIBUTES = 8  # type of the B-tree that finds them by name


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
    """Attributes of an object, decoded when they are asked for.

    A value is a numpy scalar or array, a `str` (or an array of them) for variable-length strings, or None
    for an empty one.
    """

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
        count = 1
        for dim in shape:
            count *= dim
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
    """Name in an attribute message."""
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
