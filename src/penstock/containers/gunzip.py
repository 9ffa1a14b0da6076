"""Decompress gzip data whole, with a word for each kind of damage; or only its start."""

from __future__ import annotations

import zlib
from typing import Literal

from penstock.containers.tar.compress import inflating
from penstock.errors import FormatError

GzipReason = Literal["not_gzip", "crc", "truncated", "damaged", "too_large"]

MAGIC = b"\x1f\x8b"
MEMBER = b"\x1f\x8b\x08"  # how a member begins: magic and method
GAIN = 1032  # deflate makes at most so many bytes out of one
LOOSE = 4  # times the limit that may be used for a moment: unpacking at once is quicker than by the piece
MEMBERS = 1 << 16
PIECE = 1 << 16
_CHECKS = ("incorrect data check", "incorrect length check")


class GzipError(FormatError):
    """Bytes that are no sound gzip. `reason` is one word for what is wrong."""

    def __init__(self, message: str, reason: GzipReason) -> None:
        super().__init__(message)
        self.reason: GzipReason = reason


def gunzip(data: bytes, limit: int) -> bytes:
    """The unpacked bytes of all members of `data`, checksums compared. Other bytes are passed over, as in gzip."""
    if single(data) and (unpacked := one_member(data, limit)) is not None:
        return unpacked
    return _by_members(data, limit)[0]


def bytes_behind(data: bytes, limit: int) -> int:
    """How many bytes are behind the last member of sound `data`, which `gunzip` passes over; zeros are padding."""
    return len(data[_by_members(data, limit)[1] :].rstrip(b"\0"))


def one_member(data: bytes, limit: int) -> bytes | None:
    """As `gunzip` of data that are `single`; None where something is wrong with it, which `gunzip` says."""
    module = inflating()
    try:
        if GAIN * len(data) <= LOOSE * limit:
            # One byte more than there is, so that a decoder sees the end without asking for more room.
            unpacked: bytes = module.decompress(data, 31, min(told_size(data), GAIN * len(data), limit) + 1)
            return unpacked if len(unpacked) <= limit else None
        inflate = module.decompressobj(31)
        unpacked = inflate.decompress(data, limit + 1)
    except module.error:
        return None
    return unpacked if inflate.eof and len(unpacked) <= limit else None


def single(data: bytes) -> bool:
    """Whether there can be no second member: nothing behind the beginning looks like one."""
    return data.find(MEMBER, 1) < 0


def told_size(data: bytes) -> int:
    """The size of a member, modulo 2**32, as its end says. A hint: nothing has checked it."""
    return int.from_bytes(data[-4:], "little")


def begins(data: bytes, n: int) -> bytes:
    """The first unpacked bytes, at most `n`, fewer where they cannot be had. Never raises."""
    try:
        return zlib.decompressobj(31).decompress(data[:PIECE], n)
    except zlib.error:
        return b""


def gunzip_start(data: bytes, n: int) -> bytes | None:
    """The first `n` unpacked bytes of the first member, without its checksum; None if it has fewer, or is damaged."""
    module = inflating()
    try:
        start: bytes = module.decompressobj(31).decompress(data, n)
    except module.error:
        return None
    return start if len(start) == n else None


def _by_members(data: bytes, limit: int) -> tuple[bytes, int]:
    """The unpacked bytes, and where the last member ends."""
    if not data.startswith(MAGIC):
        raise GzipError(f"expected gzip, which begins with {MAGIC!r}, got {data[:8]!r}", "not_gzip")
    parts: list[bytes] = []
    offset, room = 0, limit
    for _ in range(MEMBERS):
        part, offset = _member(data, offset, room)
        parts.append(part)
        room -= len(part)
        if data[offset : offset + 2] != MAGIC:
            return b"".join(parts), offset
    raise GzipError(f"expected at most {MEMBERS} gzip members", "too_large")


def _member(data: bytes, offset: int, room: int) -> tuple[bytes, int]:
    """One member of at most `room` bytes, and where the next would begin. Pieces bound what is copied behind it."""
    inflate = zlib.decompressobj(31)
    parts = list[bytes]()
    total = 0
    begun = offset
    try:
        while not inflate.eof and offset < len(data):
            piece = data[offset : offset + PIECE]
            part = inflate.decompress(piece, room - total + 1)
            parts.append(part)
            total += len(part)
            if total > room:
                message = "expected fewer bytes unpacked, got more than the limit; raise it if this is no bomb"
                raise GzipError(message, "too_large")
            offset += len(piece) - len(inflate.unused_data)
    except zlib.error as error:
        reason: GzipReason = "crc" if any(check in str(error) for check in _CHECKS) else "damaged"
        raise GzipError(f"damaged gzip member at byte {begun}: {error}", reason) from error
    if not inflate.eof:
        raise GzipError(f"the gzip member at byte {begun} ends early, after {total} bytes unpacked", "truncated")
    return b"".join(parts), offset
