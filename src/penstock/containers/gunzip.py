"""What was compressed by gzip: all of it in one go, with a word for what is wrong with it; or some of its rows."""

from __future__ import annotations

import zlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.containers.tar.compress import inflating
from penstock.errors import FormatError

GzipReason = Literal["not_gzip", "crc", "truncated", "damaged", "too_large"]

MAGIC = b"\x1f\x8b"
MEMBER = b"\x1f\x8b\x08"  # how a member begins: magic and method
GAIN = 1032  # deflate makes at most so many bytes out of one
MEMBERS = 1 << 16
PIECE = 1 << 16  # what is unpacked at a time: memory that stays in the cache, and that is not asked for anew
_CHECKS = ("incorrect data check", "incorrect length check")


class GzipError(FormatError):
    """Bytes that are no sound gzip. `reason` is one word for what is wrong."""

    def __init__(self, message: str, reason: GzipReason) -> None:
        super().__init__(message)
        self.reason: GzipReason = reason


def gunzip(data: bytes, limit: int) -> bytes:
    """The unpacked bytes of all members of `data`, checksums and lengths compared. What follows the last member and is
    no member is passed over, as gzip itself does.

    Raises `GzipError`: `not_gzip` for what does not begin like a member, `truncated` where the end is missing, be it
    of the checksum alone, `crc` for bytes that differ from their checksum or length, `damaged` for what is no deflate
    stream, `too_large` for more than `limit` bytes or 65 536 members. Cost: one member, the common case, is one call
    of the quickest library that is there, which lets other threads run; several are read by zlib.

    >>> import gzip
    >>> gunzip(gzip.compress(b"ab") + gzip.compress(b"c"), limit=3)
    b'abc'
    """
    if single(data) and (found := _at_once(data, limit)) is not None:
        return found
    return _by_members(data, limit)


def _at_once(data: bytes, limit: int) -> bytes | None:
    """One member by the quickest library. None where something is wrong, which is told in the words of one library."""
    module = inflating()
    try:
        if GAIN * len(data) <= limit:
            # One byte more than there is, so that a decoder sees the end without asking for more room.
            return module.decompress(data, 31, min(told_size(data), GAIN * len(data)) + 1)
        inflate = module.decompressobj(31)
        found = inflate.decompress(data, limit + 1)
    except module.error:
        return None
    return found if inflate.eof and len(found) <= limit else None


def single(data: bytes) -> bool:
    """Whether there can be no second member: nothing behind the beginning looks like one."""
    return data.find(MEMBER, 1) < 0


def told_size(data: bytes) -> int:
    """What the end of a member says of its size, modulo 2**32. A hint: nothing has checked it.

    >>> import gzip
    >>> told_size(gzip.compress(b"abc"))
    3
    """
    return int.from_bytes(data[-4:], "little")


def begins(data: bytes, n: int) -> bytes:
    """The first unpacked bytes, at most `n`, fewer where they cannot be had. Never raises.

    >>> import gzip
    >>> begins(gzip.compress(b"abcdef")[:-2], 3), begins(b"no gzip", 3)
    (b'abc', b'')
    """
    try:
        return zlib.decompressobj(31).decompress(data[:PIECE], n)
    except zlib.error:
        return b""


def gunzip_rows(
    data: bytes, out: npt.NDArray[np.uint8], width: int, places: npt.NDArray[np.int64] | None = None
) -> bool:
    """Unpack rows of `width` bytes from the first member of `data` into `out[:, :width]`, `out` being `[k, at least
    width]` uint8: all rows of the member, which are `k`, or those at `places` `[k]`, at least one, ascending.

    Without `places`, checksum and length are compared. With them, nothing behind the last of them is unpacked, so
    nothing is compared. False, and anything in `out`, where the member is damaged or has other rows: `gunzip` says what
    is wrong. Cost: half of what `gunzip` and a copy take; other threads run meanwhile.

    >>> import gzip
    >>> out = np.zeros((2, 3), np.uint8)
    >>> gunzip_rows(gzip.compress(b"aabbccdd"), out, 2, np.array([0, 2])), out.tobytes()
    (True, b'aa\\x00cc\\x00')
    """
    module = inflating()
    stream = _Forward(data, module)
    end, step = len(out) if places is None else int(places[-1]) + 1, max(1, PIECE // width)
    cuts = None if places is None else np.searchsorted(places, np.arange(0, end + step, step)).tolist()
    try:
        for i, at in enumerate(range(0, end, step)):
            wanted = min(step, end - at)
            part = stream.read(wanted * width)
            if len(part) < wanted * width:
                return False
            rows = np.frombuffer(part, np.uint8).reshape(wanted, width)
            if places is None or cuts is None:
                out[at : at + wanted, :width] = rows
            elif cuts[i] < cuts[i + 1]:
                out[cuts[i] : cuts[i + 1], :width] = rows[places[cuts[i] : cuts[i + 1]] - at]
        return places is not None or stream.at_end()
    except module.error:
        return False


class _Forward:
    """The unpacked bytes of one member, from the beginning on."""

    def __init__(self, data: bytes, module: Any) -> None:
        self._inflate, self._left = module.decompressobj(31), data

    def read(self, n: int) -> bytes:
        """`n` bytes, fewer only at the end."""
        part = self._more(n)
        while len(part) < n and (more := self._more(n - len(part))):
            part += more
        return part

    def at_end(self) -> bool:
        """Whether nothing is left but a checksum and a length that are right."""
        return not self._more(1) and self._inflate.eof

    def _more(self, n: int) -> bytes:
        if self._inflate.eof:
            return b""
        part = self._inflate.decompress(self._left, n)
        self._left = self._inflate.unconsumed_tail
        return part


def _by_members(data: bytes, limit: int) -> bytes:
    if not data.startswith(MAGIC):
        raise GzipError(f"expected gzip, which begins with {MAGIC!r}, got {data[:8]!r}", "not_gzip")
    parts: list[bytes] = []
    at, room = 0, limit
    for _ in range(MEMBERS):
        part, at = _member(data, at, room)
        parts.append(part)
        room -= len(part)
        if data[at : at + 2] != MAGIC:
            return b"".join(parts)
    raise GzipError(f"expected at most {MEMBERS} gzip members", "too_large")


def _member(data: bytes, at: int, room: int) -> tuple[bytes, int]:
    """One member of at most `room` bytes, and where the next would begin. Pieces bound what is copied behind it."""
    inflate, parts, total, begun = zlib.decompressobj(31), list[bytes](), 0, at
    try:
        while not inflate.eof and at < len(data):
            piece = data[at : at + PIECE]
            part = inflate.decompress(piece, room - total + 1)
            parts.append(part)
            total += len(part)
            if total > room:
                message = "expected fewer bytes unpacked, got more than the limit; raise it if this is no bomb"
                raise GzipError(message, "too_large")
            at += len(piece) - len(inflate.unused_data)
    except zlib.error as error:
        reason: GzipReason = "crc" if any(check in str(error) for check in _CHECKS) else "damaged"
        raise GzipError(f"damaged gzip member at byte {begun}: {error}", reason) from error
    if not inflate.eof:
        raise GzipError(f"the gzip member at byte {begun} ends early, after {total} bytes unpacked", "truncated")
    return b"".join(parts), at
