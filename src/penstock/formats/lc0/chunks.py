"""Files of chunks, opened: what live data take in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.containers.gunzip import GAIN, MAGIC, GzipError, begins, gunzip, single, told_size
from penstock.formats.base.chunks import ChunkSource
from penstock.formats.lc0.descriptors import DESCRIPTORS
from penstock.formats.lc0.errors import ChunkError, Reason
from penstock.formats.lc0.index import Index, indexed
from penstock.formats.lc0.upgrade import Bytes, Missing, check_missing, frames_in, plausible, upgraded, version_of

LIMIT = 64 << 20  # bytes of a chunk, unpacked: 8000 frames


@dataclass(frozen=True, slots=True)
class Counted:
    """What can be told of a chunk without unpacking it: how many frames, and the version of its records."""

    frames: int
    version: int


class ChunkFile(ChunkSource):
    """The chunks of one file, as `open_chunks` finds them. `key` is the file's name without its path; where keys are
    equal, paths decide. `torn` says what is not read of a damaged archive, None for a whole one.

    Reads are by position, and from any thread. All files together hold at most 64 descriptors, those read last.
    """

    def __init__(self, path: Path, index: Index, missing: Missing, limit: int) -> None:
        self.path, self.key, self.torn = path, path.name, index.torn
        self._index, self._limit = index, limit
        self._missing: Missing = missing
        self._closed = False

    def __len__(self) -> int:
        return len(self._index.payload)

    def load(self, i: int) -> Bytes:
        """`[n, 8396]` uint8 frames of chunk `i`, brought to version 7, in memory of their own.

        Raises `ChunkError`, and `IndexError` for a number that there is not. Cost: one read, one inflation, one copy.
        """
        raw = self.unpacked(i)
        try:
            return upgraded(raw, self._missing)
        except ChunkError as error:
            raise self._named(error, error.reason, i) from None

    def unpacked(self, i: int) -> bytes:
        """The records of chunk `i` as they are stored, not yet looked at. Raises as `load`."""
        stored = self.stored(i)
        if not stored.startswith(MAGIC):
            return self._plain(stored, i)
        try:
            return gunzip(stored, self._limit)
        except GzipError as error:
            raise self._named(error, Reason(error.reason), i) from error

    def count(self, i: int) -> Counted:
        """Frames and version of chunk `i`, by what its gzip says at its ends. Raises as `load`.

        Only what is odd is unpacked: several members, something behind the last one, sizes that cannot be. Damage
        inside is not seen. Cost: a read of the compressed bytes.
        """
        stored = self.stored(i)
        version, size = version_of(stored), len(stored)
        if stored.startswith(MAGIC):
            version, size = version_of(begins(stored, 4)), told_size(stored)
        try:
            if stored.startswith(MAGIC) and (not single(stored) or not size <= min(GAIN * len(stored), self._limit)):
                raise ChunkError("unpacking tells", Reason.SIZE)
            return Counted(frames_in(version, size), version)
        except ChunkError:
            raw = self.unpacked(i)
        try:
            return Counted(frames_in(version_of(raw), len(raw)), version_of(raw))
        except ChunkError as error:
            raise self._named(error, error.reason, i) from None

    def stored(self, i: int) -> bytes:
        """The bytes of chunk `i` in the file. Raises `ChunkError`: `io`, `truncated`, `too_large`, `empty`."""
        if not 0 <= i < len(self):
            raise IndexError(f"expected a chunk within 0:{len(self)}, got {i}")
        if self._closed:
            raise self._named("expected an open file, got one that was closed", Reason.IO, i)
        at, size = int(self._index.payload[i]), int(self._index.size[i])
        if size == 0:
            raise self._named("expected a chunk, got no bytes", Reason.EMPTY, i)
        if size > self._limit:
            raise self._named(f"expected at most {self._limit} bytes, got {size}", Reason.TOO_LARGE, i)
        try:
            with DESCRIPTORS.borrow(self.path, self._index.identity) as fd:
                found = os.pread(fd, size, at)
        except OSError as error:
            raise self._named(f"cannot read: {error.strerror}", Reason.IO, i) from error
        if len(found) < size:
            raise self._named(f"expected {size} bytes, got {len(found)}: the file was cut", Reason.TRUNCATED, i)
        return found

    def name(self, i: int) -> str | None:
        """The member that chunk `i` is, or None where the file is one chunk."""
        names = self._index.names
        return bytes(names[i]).decode("utf-8", "backslashreplace") if len(names) else None

    def close(self) -> None:
        """Let go of the descriptor. Reading afterwards is a `ChunkError`."""
        self._closed = True
        DESCRIPTORS.drop(self.path, self._index.identity)

    def _plain(self, stored: bytes, i: int) -> bytes:
        """Records that are not compressed, or an error that says what else it is."""
        if plausible(stored) or version_of(stored) < 256:
            return stored
        raise self._named(f"expected gzip or records, got {stored[:8]!r}", Reason.NOT_GZIP, i)

    def _named(self, error: object, reason: Reason, i: int) -> ChunkError:
        name = self.name(i)
        return ChunkError(str(error), reason, path=self.path, where=None if name is None else f"member {name!r}")


def open_chunks(path: Path, *, missing_st: Missing = "zero", limit: int = LIMIT) -> ChunkFile | None:
    """The chunks of the file at `path`, told by its content: gzip (one chunk), records that are not compressed (one
    chunk), or a tar of either (a chunk a member, but folders and LICENSE). None for any other file.

    `missing_st` says what short-term values become that records before version 7 do not have: `"zero"`, or `"nan"`.
    `limit` is the most bytes of a chunk, unpacked. Of a tar that is cut or damaged, the members before that are used,
    and `torn` names the first that is not.

    Raises `ChunkError` for an empty file called `.gz` or `.tar` (`empty`) and for one that is something else
    (`not_gzip`, `archive`); `DataError` for another `missing_st`; `OSError`. Cost: a read of the first bytes; of a
    tar, one small read a member.

    >>> import tempfile
    >>> from penstock.formats.lc0.records import RECORDS
    >>> path = Path(tempfile.mkdtemp()) / "training.1.gz"
    >>> _ = path.write_bytes(bytes([7, 0, 0, 0, 1, 0, 0, 0]).ljust(RECORDS[7].itemsize, bytes(1)))
    >>> chunks = open_chunks(path)
    >>> len(chunks), chunks.load(0).shape
    (1, (1, 8396))
    """
    check_missing(missing_st)
    index = indexed(path)
    return None if index is None else ChunkFile(path, index, missing_st, limit)
