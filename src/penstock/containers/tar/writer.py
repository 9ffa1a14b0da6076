"""Writing archives: the same bytes for the same members, and never half a member.

An archive ends with two blocks of zeros. To append, everything behind the first block of what is new goes behind the
first of them; then that first block takes the place of the zeros, with one write. Before it the archive is the old
one, and after it the new one, for every reader, and whenever the writer is killed.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from penstock.containers.tar.header import BLOCK, ZERO, padded
from penstock.containers.tar.walk import NAME, ArchiveEnd, Members, walk
from penstock.core.arrays import ByteArray
from penstock.errors import DataError, FormatError
from penstock.files import atomic_file
from penstock.files.descriptors import open_descriptor
from penstock.files.mapping import map_file

Piece = bytes | memoryview

END = ZERO * 2
SMALL = 8 << 30  # sizes from which on the octal field is too small
_PAX_NAME = b"@PaxHeader"


class Heads:
    """Headers of members whose names differ only in what stands before a common rest: checked once, then quick."""

    def __init__(self, example: str, rest: str) -> None:
        head(example + rest, 0)
        self._long = len((example + rest).encode()) > 100 or not (example + rest).isascii()
        self._rest = rest
        self._ready: dict[int, tuple[bytes, bytes, int]] = {}

    def head(self, before: str, size: int) -> bytes:
        """The header of the member `before` + the rest. `before` is ASCII, and as long as the example's."""
        if self._long or size >= SMALL:
            return head(before + self._rest, size)
        if (ready := self._ready.get(size)) is None:
            between, after, total = _tail(size, b"0")
            rest = self._rest.encode()
            filled = rest + bytes(100 - len(before) - len(rest)) + between
            ready = self._ready[size] = filled, b"\0 " + after, total + sum(rest)
        filled, after, total = ready
        raw = before.encode()
        return b"%s%s%06o%s" % (raw, filled, total + sum(raw), after)


def member(name: str, payload: bytes | bytearray | memoryview) -> bytes:
    """One regular file as stored in an archive: header, payload, padding. Owner 0, mode 0644, time 0."""
    size = len(payload)
    return b"".join((head(name, size), payload, bytes(padded(size) - size)))


def head(name: str, size: int) -> bytes:
    """The header blocks of a regular file of `size` bytes."""
    raw = name.encode()
    if not raw or len(raw) > NAME or b"\0" in raw or raw.startswith(b"./") or b".." in raw.split(b"/"):
        raise DataError(f"expected a name of 1 to {NAME} bytes that stays in its folder, got {name[:200]!r}")
    if len(raw) > 100 or not raw.isascii() or size >= SMALL:
        return _extended(raw, size)
    return _block(raw, size, b"0")


def _extended(raw: bytes, size: int) -> bytes:
    body = _record(b"path", raw) + (_record(b"size", b"%d" % size) if size >= SMALL else b"")
    stated_size = size if size < SMALL else 0
    return b"".join(
        (
            _block(_PAX_NAME, len(body), b"x"),
            body,
            bytes(padded(len(body)) - len(body)),
            _block(raw[:100], stated_size, b"0"),
        )
    )


def _record(key: bytes, value: bytes) -> bytes:
    """A PAX record, whose length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


@lru_cache(1024)
def _tail(size: int, kind: bytes) -> tuple[bytes, bytes, int]:
    """The bytes between name and checksum, the bytes after it, and the sum of all but the name."""
    before = b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"0" * 11 + b"\0"
    after = kind + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(167)
    return before, after, sum(before) + sum(after) + 8 * 32


def _block(name: bytes, size: int, kind: bytes) -> bytes:
    before, after, total = _tail(size, kind)
    return b"%s%s%06o\0 %s" % (name.ljust(100, b"\0"), before, total + sum(name), after)


class TarAppender:
    """An archive opened for appending, by one writer at a time. `append` commits with one small write.

    `TarAppender.create` makes a new one with its first members, which appears at its path only when whole. Leftovers of
    a killed writer behind the end are cut off.
    """

    def __init__(self, path: Path, end: int | None = None) -> None:
        self.path = path
        tail = appendable(map_file(path), path).tail if end is None else ArchiveEnd(end)
        self._end = tail.position
        self._fd = open_descriptor(path, os.O_RDWR | os.O_NOFOLLOW)
        if tail.unfinished:  # before anything is written, so that it never follows the two blocks of an end
            os.ftruncate(self._fd, self._end + BLOCK)

    @classmethod
    def create(cls, path: Path, first: bytes = b"") -> TarAppender:
        """A new archive of the given members."""
        if path.exists() or path.is_symlink():
            raise FileExistsError(f"expected nothing at {path}; open it for appending, or remove it")
        replace_archive(path, [first], overwrite=False)
        return cls(path, len(first))

    @property
    def end(self) -> int:
        """Bytes of all members, where the next one goes."""
        return self._end

    def append(self, members: list[Piece]) -> None:
        """Add whole members in pieces, the first of them at least a block: all or, if the process dies, none."""
        if not members:
            return
        first: list[Piece] = [members[0][:BLOCK]]
        behind: list[Piece] = [members[0][BLOCK:], *members[1:], END]
        write_all(self._fd, behind, self._end + BLOCK)
        write_all(self._fd, first, self._end)
        self._end += sum(map(len, members))

    def sync(self) -> None:
        """Flush to the disk itself."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Cut off what a killed writer left, and flush. Closing twice is fine."""
        if self._fd < 0:
            return
        os.ftruncate(self._fd, self._end + len(END))
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> TarAppender:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def replace_archive(path: Path, members: list[Piece], *, overwrite: bool = True) -> None:
    """Put an archive of these members at `path`, atomically: readers have the old one, or this one."""
    with atomic_file(path, durable="folder", overwrite=overwrite) as file:
        write_all(file.fileno(), [*members, END], 0)


def write_all(fd: int, parts: list[Piece], position: int) -> None:
    """Write all of the parts, in order, from a byte position on."""
    for first in range(0, len(parts), 512):  # fewer than the system takes in one call
        group = parts[first : first + 512]
        total = sum(map(len, group))
        done = os.pwritev(fd, group, position)
        if done < total:
            left = memoryview(b"".join(group))
            while done < total:
                done += os.pwrite(fd, left[done:], position + done)
        position += total


def appendable(data: ByteArray, path: Path) -> Members:
    """The members of an archive that can be changed."""
    members = walk(data, path)
    tail = members.tail
    if tail.position % BLOCK:
        raise FormatError(f"expected whole blocks, got {tail.position} bytes", path=path)
    if tail.behind is not None and not tail.unfinished:
        message = f"expected the end of the archive, got {len(data) - tail.behind} bytes behind it, which may be data"
        raise FormatError(f"{message}; move them to another file", path=path, where=f"byte {tail.behind}")
    return members
