"""Walk from member to member of an archive: the names, and the place of each payload.

A file may have several archives, one behind the other. A walk goes on if a header follows the zeros that end an
archive, as `tar --ignore-zeros`, DALI and libarchive do. It stops before any other bytes, and returns where these
begin.

Archives of training data repeat a pattern of sizes, so `repeats` checks many headers at once. A leap accepts only what
a careful step would accept. A payload that does not fit the archive is torn, never cut silently. Nothing but regular
files is taken: links, devices, sparse files and names with `..` are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from penstock.containers.tar import header as tar
from penstock.containers.tar.header import BLOCK, PERIOD, MemberTable, Place, joined, padded, repeats
from penstock.core.arrays import ByteArray, IntArray
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.mapping import map_file

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


class NoArchiveError(FormatError):
    """A file that does not begin like an archive: it is empty, or has another kind of content."""


@dataclass(frozen=True, slots=True)
class TarMember:
    """One regular file: name, places of its first header and payload, size, and number of its archive."""

    name: bytes
    header: int
    payload: int
    size: int
    archive: int = 0


@dataclass(frozen=True)
class ArchiveEnd:
    """The place where the members of a file end, and the bytes that follow."""

    position: int
    torn: str | None = None
    behind: int | None = None

    @property
    def unfinished(self) -> bool:
        """Whether an append of `TarAppender` was not finished: its bytes follow one block of zeros, others two."""
        return self.behind == self.position + BLOCK


@dataclass(frozen=True, eq=False)
class Members:
    """The regular files of a file in order, as columns: `names` `[n]` bytes, `header` and `payload` `[n]` byte
    positions, `size` `[n]`. `archives` are the numbers of the members that archives begin with. `tail` describes the
    end of the last archive."""

    names: npt.NDArray[np.bytes_]
    header: IntArray
    payload: IntArray
    size: IntArray
    tail: ArchiveEnd
    archives: tuple[int, ...] = (0,)

    @property
    def end(self) -> int:
        """Where the next member would be written."""
        return self.tail.position

    @property
    def torn(self) -> str | None:
        """Message about a part that is cut off at the end."""
        return self.tail.torn

    @cached_property
    def ends(self) -> IntArray:
        """`[n]` the byte behind each member and everything before the next one, without the ends of archives."""
        ends = np.append(self.header[1:], self.end)[: len(self)]
        last = np.array(self.archives[1:], np.int64) - 1
        ends[last] = self.payload[last] - (-self.size[last] // BLOCK) * BLOCK
        return ends

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
    """Index the archives of a file in memory or in a memory map `[bytes]`."""
    view = data.data
    return _TarWalk(data, lambda offset, n: bytes(view[offset : offset + n]), path, limit).run(drop=torn == "drop")


def stream(
    file: ForwardStream,
    path: object = None,
    *,
    limit: int = 1 << 32,
    torn: Literal["refuse", "drop"] = "refuse",
) -> Generator[tuple[TarMember, bytes], None, ArchiveEnd]:
    """The members of archives that can only be read forward, each with its payload of at most `limit` bytes."""
    forward = Forward(file)
    position = archive = 0
    last = b""
    begin: int | None = 0
    end = ArchiveEnd(0)
    try:
        while begin is not None:
            position = begin
            while (header := entry(forward.read, position, path)) is not None:
                member, after = header
                if member is not None:
                    payload = _payload(forward, member, limit, path)
                    yield replace(member, archive=archive) if archive else member, payload
                    last = member.name
                position = after
            begin, end = after_end(forward.read, position, path)
            archive += 1
    except TornError as error:
        whole = _last_whole(last)
        if torn == "refuse":
            raise with_advice(error, whole) from error
        return ArchiveEnd(position, f"{error}{whole}")
    return end


def after_end(read: Read, position: int, path: object) -> tuple[int | None, ArchiveEnd]:
    """The byte at which another archive begins, behind the place where `entry` found no further member; None if none
    does. And the end of this archive.

    tar's writers end every archive with blocks of zeros, so an archive without one was cut off, perhaps between
    members.
    """
    if not (block := read(position, BLOCK)):
        if position == 0:
            raise NoArchiveError("expected an archive, got no bytes", path=path)
        message = "expected the end-of-archive marker, got the end of the file"
        return None, ArchiveEnd(position, f"{message} - at byte {position}: members behind it may be lost")
    behind = position
    while block == tar.ZERO:
        behind += BLOCK
        block = read(behind, BLOCK)
    if not block.strip(b"\0"):
        return None, ArchiveEnd(position)
    try:
        tar.parse(block.ljust(BLOCK, b"\0"), path, behind)
    except FormatError:
        return None, ArchiveEnd(position, behind=behind)
    return behind, ArchiveEnd(position)


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
            error = NoArchiveError if position == 0 else TornError
            raise error(f"expected a header of {BLOCK} bytes, got {len(block)}", path=path, where=f"byte {position}")
        head = _first_header(block, path) if position == 0 else tar.parse(block, path, position)
        if head.kind not in tar.EXTENDED:
            break
        body = _extended(read, position, head, path)
        if head.kind == tar.LONG_NAME:
            long_name = tar.cut(body)
        elif head.kind in (tar.PAX, tar.GLOBAL):
            pax |= _records(body, head.kind, path, position)
        position += BLOCK + padded(head.size)
    return _member(head, begin, position, long_name, pax, path)


def _first_header(block: bytes, path: object) -> tar.TarHeader:
    try:
        return tar.parse(block, path, 0)
    except FormatError as error:
        if isinstance(error, UnsafeDataError) or block[257:262] == b"ustar":
            raise
        message = f"expected an archive, got a file that begins {block[:16]!r}"
        raise NoArchiveError(message, path=path, where="byte 0") from error


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
        begin: int | None = 0
        position, archives = 0, list[int]()
        tail = ArchiveEnd(0)
        try:
            while begin is not None:
                archives.append(self._count)
                position = begin
                while (header := entry(self._read, position, self._path)) is not None:
                    member, after = header
                    if member is None:
                        position, self._places = after, []
                        continue
                    self._check(member)
                    position = self._leap(after)
                begin, tail = after_end(self._read, position, self._path)
                self._places = []
        except TornError as error:
            tail = ArchiveEnd(position, self._tear(error, drop=drop))
        self._flush()
        table = joined(self._parts)
        starts = (0, *(first for first in dict.fromkeys(archives[1:]) if 0 < first < self._count))
        return Members(table.names, table.header, table.payload, table.size, tail, starts)

    def _tear(self, error: TornError, *, drop: bool) -> str:
        self._flush()
        parts = self._parts
        last = _last_whole(bytes(parts[-1].names[-1]) if parts and len(parts[-1].names) else b"")
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
    """Reading at rising positions from what has no positions. The last read can be repeated."""

    def __init__(self, file: ForwardStream) -> None:
        self._file, self._at = file, 0
        self._ahead, self._used = b"", 0  # small reads of unpacked bytes cost more than reading ahead
        self._latest = b""  # what the last read returned: it cannot be read again from the file

    def read(self, position: int, n: int) -> bytes:
        """The bytes there; those in between are read and forgotten."""
        if position < self._at:
            return self._latest[:n]
        while self._at < position:
            skipped = self._take(min(position - self._at, AHEAD))
            if not skipped:
                self._latest = b""
                return b""
        self._latest = self._take(n)
        return self._latest

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


def _last_whole(last: bytes) -> str:
    return f"; the last whole member is {_text(last)!r}" if last else "; no member is whole"


def with_advice(error: TornError, advice: str) -> TornError:
    """The same error, with what is whole before it, or what to do, at its end."""
    advised = TornError(f"{error}{advice}")
    advised.path, advised.where = error.path, error.where
    return advised


def _text(name: Any) -> str:
    return bytes(name).decode("utf-8", "backslashreplace")


def torn_end(path: Path) -> tuple[Members, int, bool]:
    """The whole members of an archive, its size, and whether a torn end is behind them; what may be data is none."""
    data = map_file(path)
    members = walk(data, path, torn="drop")
    return members, len(data), members.torn is not None or members.tail.unfinished
