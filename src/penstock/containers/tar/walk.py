"""Walk from member to member of an archive: the names, and the place of each payload.

Computes: a table of the regular files of an archive (`walk`), or its members in order with their bytes (`stream`).

Method: `entry` reads the headers of one member, with the extended headers before it (GNU long names, PAX records), and
checks them. Archives of training data repeat a pattern of sizes, so after members that repeat the ones before,
`repeats` checks many headers at once with NumPy: 1 us a member instead of 5. An attempt that leads nowhere doubles the
number of careful steps before the next one, so archives without a pattern lose little.

Invariants: a leap accepts only members whose headers, checksums and sizes a careful step would accept, and leaves the
rest to it. A payload that does not fit the archive is torn, never cut silently. Nothing but regular files is taken:
links, devices, sparse files and names with `..` are refused.

Memory: `walk` keeps positions and names, never payloads; they stay in the caller's memory map. `stream` keeps one
member. Source: POSIX.1-2001 (USTAR and PAX), and the GNU tar manual for its extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from penstock.containers.tar import header as tar
from penstock.containers.tar.header import BLOCK, padded
from penstock.containers.tar.strides import PERIOD, MemberTable, Place, joined, repeats
from penstock.core.arrays import ByteArray, IntArray
from penstock.errors import FormatError, UnsafeDataError

Read = Callable[[int, int], bytes]  # position and length to bytes, fewer where the archive ends

NAME = 4096  # bytes of a member's name
HEADER = 1 << 20  # bytes of an extended header
MEMBERS = 1 << 27  # members of an archive
LEAP = 16  # members that a leap must pass to cost less than steps
AHEAD = 1 << 18  # bytes that are read ahead where there are no positions
_FATEFUL = (b"GNU.sparse", b"SCHILY.realsize")


class ForwardStream(Protocol):
    """What can only be read forward: a pipe, or what `compress.opened` gives."""

    def read(self, n: int, /) -> bytes:
        """At most `n` bytes, none at the end."""
        ...


class TornError(FormatError):
    """An archive that ends within a member."""


@dataclass(frozen=True, slots=True)
class TarMember:
    """One regular file: its name, where its first header and its payload begin, and its size."""

    name: bytes
    header: int
    payload: int
    size: int


@dataclass(frozen=True, eq=False)
class Members:
    """The regular files of an archive in order, as columns: `names` `[n]` bytes, `header` and `payload` `[n]` byte
    positions, `size` `[n]`. `end` is where the next member would be written. `torn` says what is cut off there: a
    member, or the end-of-archive marker, without which further members may be lost. None for a whole archive."""

    names: npt.NDArray[np.bytes_]
    header: IntArray
    payload: IntArray
    size: IntArray
    end: int
    torn: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    def name(self, i: int) -> str:
        """The name of member `i` as text."""
        return bytes(self.names[i]).decode("utf-8", "backslashreplace")

    def where(self, i: int) -> str:
        """The place of member `i` for a message."""
        return f"member {self.name(i)!r} at byte {self.payload[i]}"

    @cached_property
    def matrix(self) -> ByteArray:
        """`[n, width]` the bytes of the names, padded by NUL."""
        names = np.ascontiguousarray(self.names)
        return names.view(np.uint8).reshape(len(names), names.dtype.itemsize)


def walk(
    data: ByteArray, path: object = None, *, torn: Literal["refuse", "drop"] = "refuse", limit: int = MEMBERS
) -> Members:
    """Index an archive in memory or in a memory map `[bytes]`.

    All of USTAR, GNU and PAX that says what regular files there are: names and sizes of any length, base-256. Folders
    are passed over. `torn="drop"` takes an archive that was cut off as far as its members are whole. `limit` is the
    largest number of members. An archive that ends between two members is read; `Members.torn` says so.

    Raises `FormatError` for a wrong checksum, size or number, `TornError` for an archive that ends within a member
    (naming the last whole one), `UnsafeDataError` for links, devices, sparse files and names with `..`. Cost: 1 µs a
    member where sizes repeat, 5 µs elsewhere.
    """
    view = data.data
    return _TarWalk(data, lambda offset, n: bytes(view[offset : offset + n]), path, limit).run(drop=torn == "drop")


def stream(
    file: ForwardStream,
    path: object = None,
    *,
    limit: int = 1 << 32,
    torn: Literal["refuse", "drop"] = "refuse",
) -> Generator[tuple[TarMember, bytes], None, str | None]:
    """The members of an archive that can only be read forward, each with its payload of at most `limit` bytes.

    The generator's return value is what `Members.torn` says. Raises what `walk` raises; with `torn="drop"`, members
    end where the archive, or its compression, is cut off. Memory: one member.

    >>> list(stream(__import__("io").BytesIO(bytes(1024))))
    []
    """
    forward = Forward(file)
    position, last = 0, b""
    try:
        while (header := entry(forward.read, position, path)) is not None:
            member, after = header
            if member is not None:
                yield member, _payload(forward, member, limit, path)
                last = member.name
            position = after
    except TornError as error:
        whole = _whole(last)
        if torn == "refuse":
            raise with_advice(error, whole) from error
        return f"{error}{whole}"
    return missing_end(lambda _position, _length: forward.latest, position)


def missing_end(read: Read, position: int) -> str | None:
    """Damage where `entry` found no further member: None where an end-of-archive marker is, at least a block of
    zeros. tar's writers end every archive with one, so an archive without it was cut off, perhaps between members.

    >>> missing_end(lambda at, n: b"", 1536)
    'expected the end-of-archive marker, got the end of the file - at byte 1536: members behind it may be lost'
    """
    if read(position, BLOCK) == tar.ZERO:
        return None
    message = "expected the end-of-archive marker, got the end of the file"
    return f"{message} - at byte {position}: members behind it may be lost"


def _payload(forward: Forward, member: TarMember, limit: int, path: object) -> bytes:
    if member.size > limit:
        message = f"expected members of at most {limit} bytes, got {member.size}; raise the limit of members"
        raise UnsafeDataError(message, path=path, where=f"member {_text(member.name)!r}")
    payload = forward.read(member.payload, member.size)
    if len(payload) < member.size:
        raise _short(member, member.payload + len(payload), path)
    return payload


def entry(read: Read, position: int, path: object) -> tuple[TarMember | None, int] | None:
    """The member at `position` (None if it is passed over), and where the next begins; None at the end."""
    begin = position
    long_name = b""
    pax = dict[bytes, bytes]()
    while True:
        block = read(position, BLOCK)
        if position == begin and block in (b"", tar.ZERO):
            return None
        if len(block) < BLOCK:
            raise TornError(
                f"expected a header of {BLOCK} bytes, got {len(block)}", path=path, where=f"byte {position}"
            )
        head = tar.parse(block, path, position)
        if head.kind not in tar.EXTENDED:
            break
        body = _extended(read, position, head, path)
        if head.kind == tar.LONG_NAME:
            long_name = tar.cut(body)
        elif head.kind in (tar.PAX, tar.GLOBAL):
            pax |= _records(body, head.kind, path, position)
        position += BLOCK + padded(head.size)
    return _member(head, begin, position, long_name, pax, path)


def _extended(read: Read, position: int, head: tar.TarHeader, path: object) -> bytes:
    if head.size > HEADER:
        message = f"expected an extended header of at most {HEADER} bytes, got {head.size}"
        raise UnsafeDataError(message, path=path, where=f"byte {position}")
    body = read(position + BLOCK, head.size)
    if len(body) < head.size:
        message = f"expected an extended header of {head.size} bytes, got {len(body)}"
        raise TornError(message, path=path, where=f"byte {position}")
    return body


def _records(body: bytes, kind: bytes, path: object, position: int) -> dict[bytes, bytes]:
    values = tar.records(body, path, position)
    fateful = [key for key in values if key.startswith(_FATEFUL)]
    if kind == tar.GLOBAL:
        fateful += [key for key in (b"path", b"size", b"linkpath") if key in values]
    if fateful:
        message = f"expected plain files, got a PAX header with {_text(fateful[0])}; write the archive anew"
        raise UnsafeDataError(message, path=path, where=f"byte {position}")
    return {} if kind == tar.GLOBAL else values


def _member(
    head: tar.TarHeader, begin: int, position: int, long_name: bytes, pax: dict[bytes, bytes], path: object
) -> tuple[TarMember | None, int]:
    size = head.size
    if b"size" in pax:
        if not pax[b"size"].isdigit() or len(pax[b"size"]) > 18:
            message = f"expected the PAX size to be a number, got {pax[b'size'][:40]!r}"
            raise FormatError(message, path=path, where=f"byte {position}")
        size = int(pax[b"size"])
    name = pax.get(b"path") or long_name or head.name
    if head.kind in (tar.FOLDER, tar.LABEL) or (head.kind in tar.REGULAR and name.endswith(b"/") and size == 0):
        return None, position + BLOCK
    if len(name) > NAME:
        message = f"expected a name of at most {NAME} bytes, got {len(name)}"
        raise UnsafeDataError(message, path=path, where=f"byte {position}")
    name = tar.safe_name(name, path, position)
    if head.kind not in tar.REGULAR or b"linkpath" in pax:
        kind = tar.KINDS.get(head.kind, f"type {head.kind!r}")
        message = f"expected regular files, got {kind}; write the archive anew with what it stands for"
        raise UnsafeDataError(message, path=path, where=f"member {_text(name)!r} at byte {position}")
    return TarMember(name, begin, position + BLOCK, size), position + BLOCK + padded(size)


class _TarWalk:
    """One walk: careful steps, and leaps where the last members repeat those before them."""

    def __init__(self, data: ByteArray, read: Read, path: object, limit: int) -> None:
        self._data = data
        self._read = read
        self._path = path
        self._limit = limit
        self._parts: list[MemberTable] = []
        self._stepped: list[TarMember] = []
        self._places: list[Place] = []  # of the last members, each as if the pattern began with it
        self._count = 0
        self._patience, self._waited = 1, 0  # steps between attempts to leap, more after each one that was short

    def run(self, *, drop: bool) -> Members:
        """Walk to the end. With `drop`, a torn end is left out."""
        position = 0
        try:
            while (header := entry(self._read, position, self._path)) is not None:
                member, after = header
                if member is None:
                    position, self._places = after, []
                    continue
                self._check(member)
                position = self._leap(after)
            torn = missing_end(self._read, position)
        except TornError as error:
            torn = self._tear(error, drop=drop)
        self._flush()
        found_all = joined(self._parts)
        return Members(found_all.names, found_all.header, found_all.payload, found_all.size, position, torn)

    def _tear(self, error: TornError, *, drop: bool) -> str:
        self._flush()
        parts = self._parts
        last = _whole(bytes(parts[-1].names[-1]) if parts and len(parts[-1].names) else b"")
        if not drop:
            raise with_advice(error, last) from None
        return f"{error}{last}"

    def _check(self, member: TarMember) -> None:
        if member.payload + member.size > len(self._data):
            raise _short(member, len(self._data), self._path)
        self._stepped.append(member)
        self._count += 1
        if self._count > self._limit:
            message = f"expected at most {self._limit} members; raise the limit of members"
            raise UnsafeDataError(message, path=self._path)
        extra = (member.payload - member.header) // BLOCK
        if extra in (1, 3):
            self._places.append(Place(0, padded(member.size) // BLOCK, extra == 3))
        else:
            self._places = []
        del self._places[: -2 * PERIOD]

    def _leap(self, position: int) -> int:
        """Where to go on: behind everything that repeats the last members, if they repeated themselves."""
        self._waited += 1
        if self._waited < self._patience or (pattern := _pattern(self._places)) is None:
            return position
        members, end = repeats(self._data, position, pattern)
        self._waited, self._patience = 0, 1 if len(members.names) >= LEAP else min(2 * self._patience, 4096)
        if len(members.names):
            self._flush()
            self._parts.append(members)
            self._count += len(members.names)
        return end

    def _flush(self) -> None:
        if self._stepped:
            names = np.array([member.name for member in self._stepped])
            numbers = np.array([(m.header, m.payload, m.size) for m in self._stepped], np.int64)
            self._parts.append(MemberTable(names, *numbers.T.copy()))
            self._stepped = []


def _pattern(places: list[Place]) -> list[Place] | None:
    """The shortest pattern that the last members show twice in a row."""
    for period in range(1, len(places) // 2 + 1):
        if places[-period:] == places[-2 * period : -period]:
            laid: list[Place] = []
            offset = 0
            for place in places[-period:]:
                laid.append(Place(offset, place.blocks, place.timed))
                offset = laid[-1].end
            return laid
    return None


class Forward:
    """Reading at rising positions from what has no positions."""

    def __init__(self, file: ForwardStream) -> None:
        self._file, self._at = file, 0
        self._ahead, self._used = b"", 0  # small reads of unpacked bytes cost more than reading ahead
        self.latest = b""  # what the last read returned: it cannot be read again

    def read(self, position: int, n: int) -> bytes:
        """The bytes there; those in between are read and forgotten."""
        while self._at < position:
            skipped = self._take(min(position - self._at, AHEAD))
            if not skipped:
                self.latest = b""
                return b""
        self.latest = self._take(n)
        return self.latest

    def _take(self, n: int) -> bytes:
        parts: list[bytes] = []
        while n:
            if self._used == len(self._ahead):
                self._ahead, self._used = self._file.read(AHEAD), 0
                if not self._ahead:
                    break
            parts.append(self._ahead[self._used : self._used + n])
            n -= len(parts[-1])
            self._used += len(parts[-1])
            self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _short(member: TarMember, end: int, path: object) -> TornError:
    message = f"expected {member.size} bytes, got {max(end - member.payload, 0)}: the archive ends within this member"
    return TornError(message, path=path, where=f"member {_text(member.name)!r} at byte {member.payload}")


def _whole(last: bytes) -> str:
    return f"; the last whole member is {_text(last)!r}" if last else "; no member is whole"


def with_advice(error: TornError, advice: str) -> TornError:
    """The same error, with what is whole before it, or what to do, at its end."""
    advised = TornError(f"{error}{advice}")
    advised.path, advised.where = error.path, error.where
    return advised


def _text(name: Any) -> str:
    return bytes(name).decode("utf-8", "backslashreplace")
