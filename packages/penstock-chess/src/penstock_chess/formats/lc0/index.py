"""Index of a file of chunks: the place of each chunk. By content: one gzip, plain records, or a tar of either.

Everything is read by position; nothing is mapped, for a map of a file that somebody cuts short ends the process.
"""

from __future__ import annotations

import bz2
import lzma
import os
import stat
from pathlib import Path
from typing import cast

import numpy as np

from penstock.containers.gunzip import MAGIC, begins
from penstock.containers.tar.header import BLOCK, EXTENDED, FOLDER, REGULAR, ZERO, parse
from penstock.containers.tar.walk import Read, TornError, entry
from penstock.core.arrays import ByteArray, IntArray
from penstock.errors import FormatError
from penstock.files.descriptors import open_descriptor
from penstock.files.remote import read_at, whole_for_block
from penstock_chess.formats.lc0 import remote_index
from penstock_chess.formats.lc0.descriptors import Identity
from penstock_chess.formats.lc0.errors import ChunkError, Reason
from penstock_chess.formats.lc0.remote_index import ChunkTable
from penstock_chess.formats.lc0.upgrade import plausible
from penstock_chess.kernels.members import plain_members

HEAD = 4096
MEMBERS = 1 << 24
TOGETHER = 4096  # members whose headers are read by one call
NO_CHUNK = b"LICENSE"
BZIP2, XZ = b"BZh", b"\xfd7zXZ\0"  # how such files begin
PACKED = 1 << 20  # bytes of a packed archive that are looked at: bzip2 has blocks of 900 kB
PIECE = 1 << 22  # bytes of a damaged part that are searched at a time
_PLAIN = tuple(REGULAR[i : i + 1] for i in range(len(REGULAR)))


def indexed(path: Path) -> ChunkTable | None:
    """Index the file at `path`; None for what is no file of chunks.

    A file whose name ends with `.gz` or `.tar` and that is neither gzip, records nor tar is damaged. Cost: one small
    read, and one a member, 1 µs.
    """
    fd = open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK, fetch=False)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        identity = Identity.of(fd, path)
        if (cached := remote_index.load(path, identity)) is not None:
            return cached
        head = read_at(path, fd, HEAD, 0)
        if head.startswith(MAGIC) or plausible(head):
            return ChunkTable(identity, (0,), (identity.size,))
        if is_tar(head):
            return _archive(fd, path, identity)
        if head and path.name.endswith(".tar"):
            index = _archive(fd, path, identity)  # the first header may be damaged alone
            if len(index.payload) or head.startswith(ZERO):
                return index
    finally:
        os.close(fd)
    return _no_chunks(path, head)


def begins_with_record(path: Path) -> bool:
    """Whether the first chunk of the file at `path` begins like a record. Never raises. Cost: a few small reads."""
    return glance(path) is True


def glance(path: Path) -> bool | None:
    """Whether the first chunk of the file at `path` begins like a record; None where it does not tell: the file is
    empty, cut, or unreadable, an archive of no chunks, or of a version that is not known. Never raises.

    Cost: a few small reads; of an archive that is compressed as a whole, one of up to a megabyte.
    """
    try:
        fd = open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK, fetch=False)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        head = read_at(path, fd, HEAD, 0)
        if is_tar(head):
            return _first_member(lambda offset, n: read_at(path, fd, n, offset))
        if is_packed_tar(head):
            head = unpacked_start(read_at(path, fd, PACKED, 0))
            return _first_member(lambda offset, n: head[offset : offset + n]) if is_tar(head) else None
        return plausible(begins(head, 8) if head.startswith(MAGIC) else head) or None
    except (OSError, FormatError):
        return None
    finally:
        os.close(fd)


def _first_member(read: Read) -> bool | None:
    """As `glance`, for an archive; None where there is no chunk."""
    position = 0
    while (parsed := entry(read, position, None)) is not None:
        member, position = parsed
        if member is not None and _is_chunk(member.name):
            head = read(member.payload, min(HEAD, member.size))
            return plausible(begins(head, 8) if head.startswith(MAGIC) else head) if head else None
    return None


def is_packed_tar(head: bytes) -> bool:
    """Whether a file that begins with `head` may be an archive that is compressed as a whole."""
    if head.startswith(MAGIC):
        return is_tar(begins(head, BLOCK))
    return head.startswith((BZIP2, XZ))


def unpacked_start(data: bytes) -> bytes:
    """The first unpacked bytes of gzip, bzip2 or xz data."""
    try:
        if data.startswith(BZIP2):
            return bz2.BZ2Decompressor().decompress(data, PACKED)
        if data.startswith(XZ):
            return lzma.LZMADecompressor().decompress(data, PACKED)
    except (OSError, lzma.LZMAError) as error:
        raise FormatError(f"expected bzip2 or xz, got damaged data: {error}") from error
    return begins(data, PACKED)


def is_tar(head: bytes) -> bool:
    """Whether a file that begins with `head` is a tar of at least one member."""
    if len(head) < BLOCK or head.startswith(ZERO):
        return False
    try:
        parse(head[:BLOCK], None, 0)
    except FormatError:
        return False
    return True


def _archive(fd: int, path: Path, identity: Identity) -> ChunkTable:
    """Every member that can be read, and how many could not."""
    walk = _Salvage(fd, path, identity.size)
    with whole_for_block(path):  # its headers are everywhere
        walk.run()
    payload, size = np.concatenate(walk.places, axis=1)
    torn = None if walk.damage is None else f"{walk.damage}; at least {walk.lost} members cannot be read"
    about = {"passed": tuple(map(_text, walk.passed)), "behind": walk.behind}
    return ChunkTable(identity, payload, size, walk.names, torn, walk.lost, **about)  # pyright: ignore[reportArgumentType]  arrays of integers


class _Salvage:
    """One pass over the headers of an archive that goes on behind damage.

    Invariant: `position` is where the next header should be, and all members before it are in `names` and `places`, or
    counted in `lost`. Where no header can be read, the blocks behind are searched for the next one with a sound
    checksum, so that a flipped bit costs one member and not all members behind it. The number in a gap follows from the
    payloads that begin there: each begins a block, with the two bytes of gzip or with a record. A gap without any has
    lost at least one member. Cost: as the careful walk, and one sequential read of each gap.
    """

    def __init__(self, fd: int, path: Path, end: int) -> None:
        self._fd = fd
        self._path = path
        self._end = end
        self._position = self._count = 0
        self.names: list[bytes] = []
        self.passed: list[bytes] = []
        self.behind: int | None = None
        self.places = [np.zeros((2, 0), np.int64)]
        self.lost, self.damage = 0, cast("str | None", None)

    def run(self) -> None:
        while True:
            try:
                self._whole_members()
            except TornError as error:  # the file ends within a member: nothing is behind it
                self._lose(str(error), 1)
                return
            except FormatError as error:
                why: str | None = str(error)
            else:
                why = None  # a block of zeros: the end, if nothing else follows
            if why is None and self._position >= self._end:
                # Every writer of tar ends an archive with blocks of zeros. Without them it was cut between two
                # members, and how many are missing cannot be known.
                self._lose("expected the end-of-archive marker, got the end of the file", 1)
                return
            after, payloads = self._gap()
            if why is not None:
                self._lose(why, max(payloads, 0 if self._is_extended() else 1))
            elif payloads:
                self._lose(f"expected a header, got zeros at byte {self._position}", payloads)
            if after is None:
                if why is None and not payloads:
                    self.behind = self._first_byte()
                return
            self._position = after  # with zeros alone in between: archives that were put one behind the other

    def _first_byte(self) -> int | None:
        """Where the first byte is behind the end that is not zero, None for zeros alone."""
        start = self._position
        while data := self._read(start, PIECE):
            if rest := data.lstrip(b"\0"):
                return start + len(data) - len(rest)
            start += len(data)
        return None

    def _lose(self, why: str, members: int) -> None:
        self.lost += members
        if self.damage is None:
            self.damage = why

    def _read(self, position: int, n: int) -> bytes:
        return os.pread(self._fd, n, position)

    def _whole_members(self) -> None:
        """Members up to a block of zeros or the end; members with plain headers many at a time."""
        place, name = np.empty((2, TOGETHER), np.int64), np.empty((TOGETHER, 100), np.uint8)
        while True:
            n, self._position = plain_members(self._fd, self._position, self._end, place[0], place[1], name)
            names: list[bytes] = name[:n].view("S100")[:, 0].tolist()
            chunks = [i for i, each in enumerate(names) if _is_chunk(each)]
            if len(chunks) < n:
                self.passed += [each for each in names if not _is_chunk(each)]
            if chunks:
                self._keep([names[i] for i in chunks], place[:, chunks])
            if n == TOGETHER:
                continue
            if (step := entry(self._read, self._position, self._path)) is None:
                return
            member, after = step
            if member is not None and not _is_chunk(member.name):
                self.passed.append(member.name)
            elif member is not None:
                if member.payload + member.size > self._end:
                    raise TornError(f"the archive ends within the member {_text(member.name)!r}", path=self._path)
                self._keep([member.name], np.array([[member.payload], [member.size]]))
            self._position = after

    def _keep(self, names: list[bytes], places: IntArray) -> None:
        if len(self.names) + len(names) > MEMBERS:
            raise TornError(f"expected at most {MEMBERS} members, got more", path=self._path)
        self.names += names
        self.places.append(places)

    def _gap(self) -> tuple[int | None, int]:
        """Where the next sound header is behind `position`, None where there is none; and how many payloads begin
        before it, or before the end."""
        block_start, payloads = self._position + BLOCK, 0
        while blocks := len(data := self._read(block_start, PIECE)) // BLOCK:
            rows = np.frombuffer(data, np.uint8, blocks * BLOCK).reshape(-1, BLOCK)
            header = _first_header(rows)
            before = rows[: blocks if header is None else header]
            gzips = (before[:, 0] == MAGIC[0]) & (before[:, 1] == MAGIC[1])
            numbers = (before[:, 0] > 0) & ~before[:, 1:4].any(axis=1)  # as a record's version
            payloads += int(gzips.sum()) + sum(plausible(row.tobytes()) for row in before[numbers][:, :8])
            if header is not None:
                return block_start + header * BLOCK, payloads
            block_start += blocks * BLOCK
        return None, payloads

    def _is_extended(self) -> bool:
        """Whether what cannot be read is a long name, say, whose member comes behind it and is read without it."""
        try:
            return parse(self._read(self._position, BLOCK), None, 0).kind in EXTENDED
        except FormatError:
            return False


def _first_header(rows: ByteArray) -> int | None:
    """The first of some blocks `[n, 512]` that is a header with a sound checksum.

    Blocks whose field of the checksum is no octal number are passed over at once; of random bytes, one in 10^8 is left
    to be summed.
    """
    field = rows[:, 148:154]
    octal = ((field >= ord("0")) & (field <= ord("7"))) | (field == ord(" ")) | (field == 0)
    for i in np.flatnonzero(octal.all(axis=1) & (rows[:, 0] > 0)).tolist():
        try:
            if parse(rows[i].tobytes(), None, 0).kind in (*EXTENDED, FOLDER, *_PLAIN):
                return int(i)
        except FormatError:
            continue
    return None


def _is_chunk(name: bytes) -> bool:
    """Whether a member may be a chunk: not the license, and no hidden file, such as those that macOS adds."""
    last = name.rpartition(b"/")[2]
    return last != NO_CHUNK and not last.startswith(b".")


def _no_chunks(path: Path, head: bytes) -> None:
    if head.startswith((BZIP2, XZ)) and glance(path):
        raise packed_error(path)
    if path.name.endswith((".gz", ".tar")):
        if not head:
            raise ChunkError("expected a file of chunks, got no bytes", Reason.EMPTY, path=path)
        reason = Reason.ARCHIVE if path.name.endswith(".tar") else Reason.NOT_GZIP
        raise ChunkError(f"expected gzip, records or a tar of them, got {head[:8]!r}", reason, path=path)


def packed_error(path: Path) -> ChunkError:
    """The error of an archive of games that is compressed as a whole, whose games cannot be read by position."""
    message = "expected a tar of games, got one that is compressed as a whole; decompress it first, to a .tar"
    return ChunkError(message, Reason.ARCHIVE, path=path)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
