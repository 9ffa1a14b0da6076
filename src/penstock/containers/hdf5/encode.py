"""Values and messages -> bytes, as the oldest versions that every HDF5 library reads, and the growing end of a file.

New bytes go to the end (`Tail`), and nothing refers to them before the commit. Addresses are multiples of 8, as libhdf5
aligns them. Variable-length values are collected in global heap collections of at least `MIN_COLLECTION` bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.containers.hdf5.filters import DEFLATE, FLETCHER32, SHUFFLE
from penstock.containers.hdf5.image import UNDEFINED
from penstock.containers.hdf5.messages import (
    DATASPACE,
    DATATYPE,
    FILL,
    FILTERS,
    GROUP_INFO,
    LAYOUT,
    LINK,
    LINK_INFO,
    SYMBOL_TABLE,
    Message,
)
from penstock.core.arrays import AnyArray
from penstock.errors import DataError

_UINT8 = struct.pack("<B3xIHH", 0x10, 1, 0, 8)
_INT8 = struct.pack("<BB2xIHH", 0x10, 8, 1, 0, 8)
BOOL = struct.pack("<BH1xI", 0x18, 2, 1) + _INT8 + b"FALSE\0\0\0TRUE\0\0\0\0\0\1"
VLEN_STRING = struct.pack("<BBB1xI", 0x19, 1, 1, 16) + _UINT8  # of UTF-8
VLEN_BYTES = struct.pack("<B3xI", 0x19, 16) + _UINT8
FLOATS = {2: (15, 10, 5, 10, 15), 4: (31, 23, 8, 23, 127), 8: (63, 52, 11, 52, 1023)}
MAX_MESSAGE = 0xFFFF - 7
INCREMENTAL, LATE = 3, 2  # when space is allocated
ALIGNMENT = 8
PENDING = 8 << 20  # bytes kept before they are written
DIRECT = 1 << 16  # bytes from which a piece is written at once instead of copied
MIN_COLLECTION = 4096  # smallest global heap collection that libhdf5 accepts
COLLECTION = 1 << 16
MAX_OBJECTS = 0xFFFF
_REFERENCE, _MESSAGE = struct.Struct("<IQI"), struct.Struct("<HHB3x")
_SYMBOL_TABLE = struct.Struct("<HHB3xQQ")
KEPT = 4096  # structures that are encoded once, for the episodes of a dataset are much alike

Block = tuple[bytes, int]  # encoded messages, and their number


def pad(raw: bytes) -> bytes:
    """`raw` with zeros up to a multiple of 8 bytes."""
    return raw + bytes(-len(raw) % 8)


@lru_cache(KEPT)
def datatype(dtype: np.dtype[Any]) -> bytes:
    size = dtype.itemsize
    if dtype.kind == "b":
        return BOOL
    if dtype.kind in "iu":
        return struct.pack("<BB2xIHH", 0x10, 8 if dtype.kind == "i" else 0, size, 0, 8 * size)
    if dtype.kind == "f" and size in FLOATS:
        sign, *layout, bias = FLOATS[size]
        exponent_at, exponent, mantissa = layout
        head = struct.pack("<BBB1xIHH", 0x11, 0x20, sign, size, 0, 8 * size)
        return head + struct.pack("<BBBBI", exponent_at, exponent, 0, mantissa, bias)
    if dtype.kind == "S" and size:
        return struct.pack("<BB2xI", 0x13, 1, size)
    raise DataError(f"arrays of dtype {dtype} cannot be stored; expected bool, integers, floats or strings")


def dataspace(shape: tuple[int, ...], *, growing: bool = False) -> bytes:
    """Dataspace message; `growing`: without limit along the first axis."""
    head = struct.pack("<BBB5x", 1, len(shape), int(growing))
    dims = struct.pack(f"<{len(shape)}Q", *shape)
    return head + dims + (struct.pack(f"<{len(shape)}Q", UNDEFINED, *shape[1:]) if growing else b"")


@lru_cache(KEPT)
def dataset_block(kind: bytes, shape: tuple[int, ...], *, growing: bool = False) -> Block:
    """Messages of a dataset with datatype message `kind`, up to its layout."""
    fill = struct.pack("<BBBBI", 2, INCREMENTAL if growing else LATE, 2, 1, 0)
    space = Message(DATASPACE, 0, dataspace(shape, growing=growing))
    return message_block([space, Message(DATATYPE, 1, kind), Message(FILL, 1, fill)])


def contiguous_layout(address: int, nbytes: int) -> Message:
    """Layout of values in one piece."""
    return Message(LAYOUT, 0, struct.pack("<BBQQ", 3, 1, address, nbytes))


def chunked_layout(tree: int, chunk: tuple[int, ...], element: int) -> Message:
    """Layout of chunks that the B-tree at `tree` finds."""
    rank = len(chunk) + 1
    return Message(LAYOUT, 0, struct.pack(f"<BBBQ{rank}I", 3, 2, rank, tree, *chunk, element))


def filter_pipeline(element: int, level: int | None, *, checksum: bool) -> list[Message]:
    """Filters: shuffle and deflate where there is a `level`, then Fletcher-32; empty for neither."""
    filters: list[tuple[int, bytes, tuple[int, ...]]] = []
    if level is not None:
        filters += [(SHUFFLE, b"shuffle", (element,)), (DEFLATE, b"deflate", (level,))]
    if checksum:
        filters.append((FLETCHER32, b"fletcher32", ()))
    if not filters:
        return []
    packed = [_filter(number, name, values) for number, name, values in filters]
    return [Message(FILTERS, 1, struct.pack("<BB6x", 1, len(packed)) + b"".join(packed))]


def _filter(number: int, name: bytes, values: tuple[int, ...]) -> bytes:
    """One filter of a message of version 1, with the flags of libhdf5: a checksum is mandatory, others are optional."""
    raw = name.ljust(-(-(len(name) + 1) // 8) * 8, b"\0")
    flags = 0 if number == FLETCHER32 else 1
    head = struct.pack("<HHHH", number, len(raw), flags, len(values))
    return head + raw + struct.pack(f"<{len(values)}I", *values) + bytes(4 * (len(values) & 1))


def symbol_table(tree: int, heap: int) -> Block:
    """The message that makes an object a group of the old style."""
    return _SYMBOL_TABLE.pack(SYMBOL_TABLE, 16, 0, tree, heap), 1


def link_info() -> list[Message]:
    """Messages that make an object a group whose links are messages."""
    return [
        Message(LINK_INFO, 0, struct.pack("<BBQQ", 0, 0, UNDEFINED, UNDEFINED)),
        Message(GROUP_INFO, 1, bytes(2)),
    ]


def hard_link(name: str, address: int) -> Message:
    """Link to the object at `address`."""
    return Message(LINK, 0, _link(name, None) + struct.pack("<Q", address))


def soft_link(name: str, path: str) -> Message:
    value = path.encode()
    return Message(LINK, 0, _link(name, 1) + struct.pack("<H", len(value)) + value)


def external_link(name: str, file: str, path: str) -> Message:
    value = b"\0" + file.encode() + b"\0" + path.encode() + b"\0"
    return Message(LINK, 0, _link(name, 64) + struct.pack("<H", len(value)) + value)


def _link(name: str, kind: int | None) -> bytes:
    raw = name.encode()
    flags = 0x11 if kind is None else 0x19  # character set given, length of the name in 2 bytes
    return bytes([1, flags]) + (b"" if kind is None else bytes([kind])) + b"\1" + struct.pack("<H", len(raw)) + raw


def attribute(name: str, kind: bytes, shape: tuple[int, ...], data: bytes) -> bytes:
    body = _attribute_head(name, kind, shape) + data
    if len(body) > MAX_MESSAGE:
        raise DataError(f"attribute {name!r} of {len(data)} bytes is too large; expected less than 64 kB")
    return body


@lru_cache(KEPT)
def _attribute_head(name: str, kind: bytes, shape: tuple[int, ...]) -> bytes:
    raw, space = name.encode() + b"\0", dataspace(shape)
    return struct.pack("<BBHHHB", 3, 0, len(raw), len(kind), len(space), 1) + raw + kind + space


def object_header(
    messages: Iterable[Message], continuation: tuple[int, int, int] | None = None, first: Block = (b"", 0)
) -> bytes:
    body, count = message_block(messages, first)
    if continuation is not None:
        address, nbytes, more = continuation
        body += struct.pack("<HHB3xQQ", 0x10, 16, 0, address, nbytes)
        count += 1 + more
    if count > 0xFFFF:
        raise DataError(f"an object header cannot hold {count} messages; expected at most 65535")
    return struct.pack("<BxHII4x", 1, count, 1, len(body)) + body


def message_block(messages: Iterable[Message], first: Block = (b"", 0)) -> Block:
    """Messages in order, each padded, behind the messages of `first`."""
    parts = [first[0]]
    for kind, flags, body in messages:
        padded = pad(body)
        parts += (_MESSAGE.pack(kind, len(padded), flags), padded)
    return b"".join(parts), first[1] + len(parts) // 2


def little(array: AnyArray) -> AnyArray:
    """`array` in C order and little-endian, as it is stored."""
    contiguous = np.asarray(array, order="C")
    return contiguous.astype(contiguous.dtype.newbyteorder("<"), copy=False)


def write_all(fd: int, raw: bytes | memoryview, offset: int) -> None:
    """Write all of `raw` at byte `offset`."""
    done = os.pwrite(fd, raw, offset)
    while done < len(raw):
        done += os.pwrite(fd, memoryview(raw)[done:], offset + done)


class Tail:
    """Appends pieces to an open file from byte `offset` on, small ones collected and written together."""

    def __init__(self, fd: int, offset: int) -> None:
        self._fd = fd
        self._flushed = offset
        self._parts: list[bytes | bytearray] = []
        self.offset = offset
        self._open: Collection | None = None

    @property
    def next(self) -> int:
        """Address of what is put next, a multiple of 8."""
        return self.offset + -self.offset % ALIGNMENT

    def put(self, raw: bytes | bytearray | memoryview) -> int:
        """Address at which `raw` will be."""
        if gap := -self.offset % ALIGNMENT:
            self._add(bytes(gap))
        address = self.offset
        if len(raw) >= DIRECT:
            self.flush()
            write_all(self._fd, memoryview(raw), address)
            self.offset = self._flushed = address + len(raw)
            return address
        self._add(bytes(raw) if isinstance(raw, memoryview) else raw)
        if self.offset - self._flushed > PENDING:
            self.flush()
        return address

    def _add(self, raw: bytes | bytearray) -> None:
        self._parts.append(raw)
        self.offset += len(raw)

    def take(self) -> bytes:
        """All that was not written."""
        raw, self._parts = b"".join(self._parts), []
        return raw

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._open = None  # written bytes do not change any more
        if self._parts:
            write_all(self._fd, self.take(), self._flushed)
        self._flushed = self.offset

    def put_values(self, values: list[bytes]) -> bytes:
        """References, 16 bytes each, to `values` in the global heap."""
        room = sum(_footprint(value) for value in values)
        out: list[bytes] = []
        for value in values:
            need = _footprint(value)
            if not value:
                out.append(bytes(16))
                continue
            if self._open is None or not self._open.fits(need):
                self._open = self._new_collection(max(MIN_COLLECTION, min(room + 16, COLLECTION), need + 16))
            out.append(_REFERENCE.pack(len(value), *self._open.add(value)))
            room -= need
        return b"".join(out)

    def _new_collection(self, size: int) -> Collection:
        if size >= DIRECT or self.offset + size - self._flushed > PENDING:
            self.flush()
        block = Collection(size)
        gap = -self.offset % ALIGNMENT
        self._add(bytes(gap))
        block.address = self.offset
        self._add(block.raw)
        return block


class Collection:
    """A global heap collection that is being filled in memory."""

    def __init__(self, size: int) -> None:
        size += -size % 8
        self.raw = bytearray(size)
        self.address = 0
        self._at, self._count = 16, 0
        struct.pack_into("<4sB3xQ", self.raw, 0, b"GCOL", 1, size)
        self._mark_free()

    def fits(self, need: int) -> bool:
        """Whether an object that takes `need` bytes has room."""
        return self._at + need <= len(self.raw) and self._count < MAX_OBJECTS

    def add(self, value: bytes) -> tuple[int, int]:
        """Address of the collection and index of the new object."""
        self._count += 1
        struct.pack_into("<HH4xQ", self.raw, self._at, self._count, 1, len(value))
        self.raw[self._at + 16 : self._at + 16 + len(value)] = value
        self._at += _footprint(value)
        self._mark_free()
        return self.address, self._count

    def _mark_free(self) -> None:
        free = len(self.raw) - self._at
        if free >= 16:
            struct.pack_into("<HH4xQ", self.raw, self._at, 0, 0, free)


def _footprint(value: bytes) -> int:
    return 16 + len(value) + -len(value) % 8
