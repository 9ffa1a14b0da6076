"""Object headers, versions 1 and 2: the list of messages that makes a group, a dataset or a datatype.

A header is a block of messages that may continue in other blocks. Blocks are read in order, each at most once, and
their sizes are checked against the file, so a circular or damaged header raises a `FormatError`. Version 2 has
checksums, which are verified.

Source: "HDF5 File Format Specification", version 3.0, The HDF Group, on data object headers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.containers.hdf5.image import Image, verify
from penstock.errors import FormatError

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


class Message(NamedTuple):
    """One message of an object header."""

    kind: int
    flags: int
    body: bytes


def read_messages(image: Image, address: int) -> list[Message]:
    """All messages of the object header at `address`, continuation blocks included.

    Raises `FormatError` for anything malformed.  Cost: proportional to the bytes of the header.
    """
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
