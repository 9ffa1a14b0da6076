"""What a file of chunks holds: where each chunk lies. By content: one gzip, plain records, or a tar of either.

Everything is read by position; nothing is mapped, for a map of a file that somebody cuts short ends the process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.containers.gunzip import MAGIC, begins
from penstock.containers.tar.header import BLOCK, ZERO, parse
from penstock.containers.tar.walk import Member, entry
from penstock.errors import FormatError
from penstock.formats.lc0.descriptors import Identity
from penstock.formats.lc0.errors import ChunkError, Reason
from penstock.formats.lc0.upgrade import plausible
from penstock.kernels.dispatch import kernels

Int = npt.NDArray[np.int64]

HEAD = 4096
MEMBERS = 1 << 24
TOGETHER = 4096  # members whose headers are read by one call
NO_CHUNK = b"LICENSE"


@dataclass(frozen=True, slots=True)
class Index:
    """Where the chunks of a file lie: byte positions `payload` `[n]` and `size` `[n]`, and `names` of members, none
    where the file is one chunk. `torn` says what was left out behind the last one, and why."""

    identity: Identity
    payload: Sequence[int]
    size: Sequence[int]
    names: Sequence[bytes] = ()
    torn: str | None = None


def indexed(path: Path) -> Index | None:
    """Index the file at `path`; None for what is no file of chunks.

    A file whose name ends with `.gz` or `.tar` and that is neither gzip, records nor tar is damaged. Raises
    `ChunkError` for one (`empty`, `not_gzip`, `archive`), and `OSError`. Cost: one small read, and one a member, 1 µs.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        identity = Identity.of(fd)
        head = os.pread(fd, HEAD, 0)
        if head.startswith(MAGIC) or plausible(head):
            return Index(identity, (0,), (identity.size,))
        if is_tar(head) or (head.startswith(ZERO) and path.name.endswith(".tar")):
            return _archive(fd, path, identity)
    finally:
        os.close(fd)
    return _no_chunks(path, head)


def begins_with_record(path: Path) -> bool:
    """Whether the first chunk of the file at `path` begins like a record. Never raises. Cost: a few small reads."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        head = os.pread(fd, HEAD, 0)
        if is_tar(head):
            first = next(members(fd, path), None)
            head = os.pread(fd, min(HEAD, first.size), first.payload) if first is not None else b""
        return plausible(begins(head, 8) if head.startswith(MAGIC) else head)
    except (OSError, FormatError):
        return False
    finally:
        os.close(fd)


def is_tar(head: bytes) -> bool:
    """Whether a file that begins with `head` is a tar of at least one member.

    >>> is_tar(bytes(512)), is_tar(b"too short")
    (False, False)
    """
    if len(head) < BLOCK or head.startswith(ZERO):
        return False
    try:
        parse(head[:BLOCK], None, 0)
    except FormatError:
        return False
    return True


def members(fd: int, path: Path) -> Iterator[Member]:
    """The members that are chunks, in order: no folders, and not the one called LICENSE. Raises `FormatError`."""
    position = 0
    while (found := entry(lambda at, n: os.pread(fd, n, at), position, path)) is not None:
        member, position = found
        if member is not None and _is_chunk(member.name):
            yield member


def _archive(fd: int, path: Path, identity: Identity) -> Index:
    """Members up to the end, or to what is torn, damaged or no plain file."""
    names: list[bytes] = []
    places = [np.zeros((2, 0), np.int64)]
    torn: str | None = None
    try:
        for found, place in _runs(fd, path, identity.size):
            if place[:, -1].sum() > identity.size or len(names) + len(found) > MEMBERS:
                torn = f"the archive ends within the member {_text(found[0])!r}, or has more than {MEMBERS}"
                break
            names += found
            places.append(place)
    except FormatError as error:
        torn = str(error)
    payload, size = np.concatenate(places, axis=1)
    return Index(identity, payload, size, names, torn)  # pyright: ignore[reportArgumentType]  arrays of integers


def _runs(fd: int, path: Path, end: int) -> Iterator[tuple[list[bytes], Int]]:
    """As `members`, as names and `[2, n]` payload and size, at least one: those with plain headers many at a time."""

    def read(at: int, size: int) -> bytes:
        return os.pread(fd, size, at)

    place, name = np.empty((2, TOGETHER), np.int64), np.empty((TOGETHER, 100), np.uint8)
    position = 0
    while True:
        n, position = kernels().plain_members(fd, position, end, *place, name)
        found: list[bytes] = name[:n].view("S100")[:, 0].tolist()
        chunks = [i for i, each in enumerate(found) if _is_chunk(each)]
        if chunks:
            yield [found[i] for i in chunks], place[:, chunks]
        if n == TOGETHER:
            continue
        if (step := entry(read, position, path)) is None:
            return
        member, position = step
        if member is not None and _is_chunk(member.name):
            yield [member.name], np.array([[member.payload], [member.size]])


def _is_chunk(name: bytes) -> bool:
    return not name.endswith(NO_CHUNK) or name.rpartition(b"/")[2] != NO_CHUNK


def _no_chunks(path: Path, head: bytes) -> None:
    if path.name.endswith((".gz", ".tar")):
        if not head:
            raise ChunkError("expected a file of chunks, got no bytes", Reason.EMPTY, path=path)
        reason = Reason.ARCHIVE if path.name.endswith(".tar") else Reason.NOT_GZIP
        raise ChunkError(f"expected gzip, records or a tar of them, got {head[:8]!r}", reason, path=path)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
