"""Object headers, versions 1 and 2, and parsers of their smaller messages: dataspaces, fill values, layouts, links.

A header is a block of messages that may continue in other blocks, each read at most once, so a circular or damaged
header raises a `FormatError`. Each parser is a function of the bytes of one message, and the results of common ones are
cached by these, because episodes of equal shape and type have equal messages. Errors of truncated bytes become
`FormatError` in the caller (`image.located`).

Source: HDF5 File Format Specification 3.0, IV.A.1 (headers), IV.A.2.b (dataspace), e and f (fill value), g (link), i
(layout), l (filters).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from penstock.containers.hdf5.image import UNDEFINED, Image, verify
from penstock.errors import FormatError

SINGLE = 1
IMPLICIT = 2
FIXED = 3
EXTENSIBLE = 4
BTREE_V2 = 5
RANK = 32
FILTERED = 2  # layout flag: the single chunk went through the filters
DATASPACE = 1
LINK_INFO = 2
DATATYPE = 3
OLD_FILL = 4
FILL = 5
LINK = 6
EXTERNAL_FILES = 7
LAYOUT = 8
FILTERS = 0x0B
ATTRIBUTE = 0x0C
CONTINUATION = 0x10
SYMBOL_TABLE = 0x11
ATTRIBUTE_INFO = 0x15
GROUP_INFO, BTREE_K = 0x0A, 0x13
SHARED = 2  # message flag: the body is a reference to where the message really is

_V1 = struct.Struct("<BxHII")
_V1_MESSAGE = struct.Struct("<HHB")
_V2_MESSAGE = struct.Struct("<BHB")
_RANGE = struct.Struct("<QQ")


class Dataspace(NamedTuple):
    """`shape`, None for an empty (null) space; `maxshape`, with None for an unlimited dimension."""

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...] | None


class Filter(NamedTuple):
    """One filter of a pipeline: its registered number, name and parameters."""

    number: int
    name: str
    values: tuple[int, ...]


class Link(NamedTuple):
    """Where a name of a group leads: `address` if hard, `path` if soft, `file` and `path` if external."""

    kind: Literal["hard", "soft", "external"]
    address: int = UNDEFINED
    path: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class DataLayout:
    """Position of the values of a dataset.  `address` of the data, or of the chunk index."""

    kind: Literal["compact", "contiguous", "chunked"]
    address: int = UNDEFINED
    nbytes: int = 0
    data: bytes = b""
    chunk: tuple[int, ...] = ()
    element: int = 0
    index: int = 0  # 0: version 1 B-tree
    filter_mask: int = 0
    size_bytes: int = 0  # width of a chunk's size in the indexes of version 4 and 5
    filter_edges: bool = True  # False: chunks that stick out of the array are not filtered


@lru_cache(maxsize=4096)
def parse_dataspace(body: bytes) -> Dataspace:
    version, rank, flags, kind = body[:4]
    if version not in (1, 2) or rank > RANK:
        raise FormatError(f"dataspace of version {version} and rank {rank} is malformed")
    if version == 2 and kind == 2:
        return Dataspace(None, None)
    offset = 8 if version == 1 else 4
    shape: tuple[int, ...] = struct.unpack_from(f"<{rank}Q", body, offset)
    if not flags & 1:
        return Dataspace(shape, shape)
    limits: tuple[int, ...] = struct.unpack_from(f"<{rank}Q", body, offset + 8 * rank)
    return Dataspace(shape, tuple(None if limit == UNDEFINED else limit for limit in limits))


@lru_cache(maxsize=4096)
def parse_fill(body: bytes) -> bytes:
    """Bytes of the fill value, empty where it is not defined."""
    version = body[0]
    if version == 3:
        defined, offset = bool(body[1] & 0x20), 2
    elif version in (1, 2):
        defined, offset = bool(body[3]), 4
    else:
        raise FormatError(f"fill value of version {version} is unknown")
    return parse_old_fill(body[offset:]) if defined else b""


def parse_old_fill(body: bytes) -> bytes:
    """Bytes of the fill value of the oldest kind."""
    (size,) = struct.unpack_from("<I", body)
    if size == 0xFFFFFFFF:
        return b""
    if size > len(body) - 4:
        raise FormatError(f"fill value of {size} bytes runs over its message")
    return body[4 : 4 + size]


def parse_layout(body: bytes) -> DataLayout:
    """Layout of version 3, 4 or 5."""
    version, kind = body[0], body[1]
    if version not in (3, 4, 5):
        raise FormatError(f"data layout of version {version} is not supported; expected 3, 4 or 5")
    if kind == 0:
        (size,) = struct.unpack_from("<H", body, 2)
        if size > len(body) - 4:
            raise FormatError(f"compact data of {size} bytes runs over its message")
        return DataLayout("compact", nbytes=size, data=body[4 : 4 + size])
    if kind == 1:
        return DataLayout("contiguous", *struct.unpack_from("<QQ", body, 2))
    if kind == 3:
        message = "a virtual dataset, whose values are in other datasets, is not read; copy its values into this file"
        raise FormatError(message)
    if kind != 2:
        raise FormatError(f"data layout class {kind} is not supported")
    if version > 3:
        return _parse_chunked_v4(body)
    dims = struct.unpack_from(f"<{body[2]}I", body, 11)
    return _chunked(dims, struct.unpack_from("<Q", body, 3)[0])


def _parse_chunked_v4(body: bytes) -> DataLayout:
    version = body[0]
    flags = body[2]
    rank = body[3]
    width = body[4]
    if rank > RANK + 1 or not 1 <= width <= 8:
        raise FormatError(f"chunked layout of rank {rank} with {width} bytes a dimension is malformed")
    dims = tuple(int.from_bytes(body[5 + width * i : 5 + width * (i + 1)], "little") for i in range(rank))
    offset = 5 + width * rank
    index = body[offset]
    offset += 1 + {SINGLE: 12 if flags & FILTERED else 0, FIXED: 1, EXTENSIBLE: 5, BTREE_V2: 6}.get(index, 0)
    nbytes = mask = 0
    if index == SINGLE and flags & FILTERED:
        nbytes, mask = struct.unpack_from("<QI", body, offset - 12)
    (address,) = struct.unpack_from("<Q", body, offset)
    size_bytes = 8 if version == 5 else min(8, 1 + (max(math.prod(dims), 1).bit_length() - 1 + 8) // 8)
    return _chunked(dims, address, nbytes, index, mask, size_bytes, filter_edges=not flags & 1)


def _chunked(
    dims: tuple[int, ...], address: int, nbytes: int = 0, index: int = 0, mask: int = 0, size_bytes: int = 4,
    *, filter_edges: bool = True,
) -> DataLayout:  # fmt: skip
    if len(dims) < 2 or 0 in dims:
        raise FormatError(f"chunk dimensions {dims} are malformed")
    return DataLayout(
        "chunked", address, nbytes, chunk=dims[:-1], element=dims[-1], index=index, filter_mask=mask,
        size_bytes=size_bytes, filter_edges=filter_edges,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def parse_filters(body: bytes) -> tuple[Filter, ...]:
    """Filters in the order in which they were applied when writing."""
    version, count = body[0], body[1]
    if version not in (1, 2) or count > 32:
        raise FormatError(f"filter pipeline of version {version} with {count} filters is malformed")
    out: list[Filter] = []
    offset = 8 if version == 1 else 2
    for _ in range(count):
        (number,) = struct.unpack_from("<H", body, offset)
        length = 0
        if version == 1 or number >= 256:
            (length,) = struct.unpack_from("<H", body, offset + 2)
            offset += 2
        (values,) = struct.unpack_from("<H", body, offset + 4)
        offset += 6
        name = body[offset : offset + length].split(b"\0")[0].decode()
        offset += length
        out.append(Filter(number, name, struct.unpack_from(f"<{values}I", body, offset)))
        offset += 4 * (values + (values & 1 if version == 1 else 0))
    return tuple(out)


def parse_link(body: bytes) -> tuple[str, int, Link]:
    """Name, creation order (-1 if not kept) and target of a link message."""
    version, flags = body[0], body[1]
    if version != 1:
        raise FormatError(f"link message of version {version} is unknown")
    offset = 2
    kind = 0
    order = -1
    if flags & 8:
        kind, offset = body[offset], offset + 1
    if flags & 4:
        order, offset = struct.unpack_from("<q", body, offset)[0], offset + 8
    offset += 1 if flags & 16 else 0
    width = 1 << (flags & 3)
    length = int.from_bytes(body[offset : offset + width], "little")
    offset += width
    raw = body[offset : offset + length]
    if len(raw) != length or not raw:
        raise FormatError("name of a link runs over its message")
    return raw.decode(), order, _target(kind, body, offset + length)


def _target(kind: int, body: bytes, offset: int) -> Link:
    if kind == 0:
        return Link("hard", struct.unpack_from("<Q", body, offset)[0])
    (length,) = struct.unpack_from("<H", body, offset)
    value = body[offset + 2 : offset + 2 + length]
    if len(value) != length:
        raise FormatError("target of a link runs over its message")
    if kind == 1:
        return Link("soft", path=value.rstrip(b"\0").decode())
    if kind != 64:
        raise FormatError(f"link of type {kind} is not supported")
    file, path = value[1:].split(b"\0")[:2]
    return Link("external", path=path.decode(), file=file.decode())


class Message(NamedTuple):
    """One message of an object header."""

    kind: int
    flags: int
    body: bytes


def read_messages(image: Image, address: int) -> list[Message]:
    """All messages of the object header at `address`, continuation blocks included."""
    prefix = image.take(address, 16, "object header")
    if prefix[:4] == b"OHDR":
        return _read_v2(image, address, prefix)
    version, count, _, nbytes = _V1.unpack_from(prefix)
    if version != 1:
        raise FormatError(f"expected object header version 1 or 2 at byte {address}, got {version}")
    out: list[Message] = []
    blocks = [(address + 16, nbytes)]
    seen = {address + 16}
    for start, length in blocks:  # grows while continuations are found
        raw = image.take(start, length, "object header block")
        offset, end = 0, length - 8
        while offset <= end and count:
            kind, size, flags = _V1_MESSAGE.unpack_from(raw, offset)
            offset += 8 + size
            if offset > length:
                raise FormatError(f"message of type {kind} runs over its block at byte {start}")
            count -= 1
            if kind == CONTINUATION:
                blocks.append(_continuation(raw, offset - size, seen))
            elif kind:
                out.append(Message(kind, flags, raw[offset - size : offset]))
    return out


def _continuation(raw: bytes, offset: int, seen: set[int]) -> tuple[int, int]:
    start, length = _RANGE.unpack_from(raw, offset)
    if start in seen:
        raise FormatError(f"object header continues in a circle through byte {start}")
    seen.add(start)
    return start, length


def _read_v2(image: Image, address: int, prefix: bytes) -> list[Message]:
    version, flags = prefix[4], prefix[5]
    if version != 2:
        raise FormatError(f"expected object header version 2 at byte {address}, got {version}")
    width = 1 << (flags & 3)
    offset = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    nbytes = int.from_bytes(image.take(address + offset, width, "object header"), "little")
    start = offset + width
    raw = image.checked(address, start + nbytes + 4, b"OHDR", "object header")
    out: list[Message] = []
    blocks: list[tuple[int, int]] = []
    seen = {address}
    _split_v2(raw[start:-4], flags, out, blocks, seen)
    for block, length in blocks:
        raw = image.signed(block, length, b"OCHK", "object header block")
        verify(raw, "object header block", block)
        _split_v2(raw[4:-4], flags, out, blocks, seen)
    return out


def _split_v2(raw: bytes, flags: int, out: list[Message], blocks: list[tuple[int, int]], seen: set[int]) -> None:
    extra = 6 if flags & 4 else 4
    offset = 0
    while offset + extra <= len(raw):
        kind, size, message_flags = _V2_MESSAGE.unpack_from(raw, offset)
        offset += extra + size
        if offset > len(raw):
            raise FormatError(f"message of type {kind} runs over its block")
        if kind == CONTINUATION:
            blocks.append(_continuation(raw, offset - size, seen))
        elif kind:
            out.append(Message(kind, message_flags, raw[offset - size : offset]))


def resolve_shared(image: Image, kind: int, body: bytes, depth: int = 0) -> bytes:
    """The message of type `kind` that the shared reference `body` stands for."""
    version, where = body[0], body[1]
    if not 1 <= version <= 3 or (version == 3 and where != 2):
        raise FormatError(f"shared message (version {version}, type {where}) in a heap is not supported")
    address = int.from_bytes(body[8:16] if version == 1 else body[2:10], "little")
    for message in read_messages(image, address):
        if message.kind == kind:
            if message.flags & SHARED:
                if depth > 4:
                    raise FormatError("shared messages refer to each other in a circle")
                return resolve_shared(image, kind, message.body, depth + 1)
            return message.body
    raise FormatError(f"object header at byte {address} has no message of type {kind} to share")
