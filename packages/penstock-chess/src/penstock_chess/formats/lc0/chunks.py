"""Files of chunks, opened: what live data take in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from penstock.containers.gunzip import (
    GAIN,
    MAGIC,
    GzipError,
    begins,
    bytes_behind,
    gunzip,
    gunzip_start,
    one_member,
    single,
    told_size,
)
from penstock.core.arrays import ByteArray, IntArray
from penstock.errors import RemoteError
from penstock.files.remote import RemoteFile, filled, read_at, remote_file
from penstock_chess.formats.lc0.descriptors import DESCRIPTORS
from penstock_chess.formats.lc0.errors import ChunkError, Reason
from penstock_chess.formats.lc0.index import indexed, is_tar, packed_error
from penstock_chess.formats.lc0.remote_index import ChunkTable, save
from penstock_chess.formats.lc0.upgrade import (
    WIDTH,
    Missing,
    check_missing,
    frames_in,
    plausible,
    records,
    several_versions,
    upgraded_records,
    version_of,
    versions,
)
from penstock_live.chunk_source import TOGETHER, ChunkSource, Wanted, WantedOfEach, chosen

LIMIT = 64 << 20  # bytes of a chunk, unpacked: 8000 frames
_HEAD = 64  # bytes of a chunk by which records are recognised


@dataclass(frozen=True, slots=True)
class Counted:
    """Properties of a chunk that need no unpacking: how many frames, and the version of its records."""

    frames: int
    version: int


class ChunkFile(ChunkSource):
    """The chunks of one file, as `open_chunks` finds them. `key` is the file's name without its path; where keys are
    equal, paths decide. `torn` says what cannot be read of a damaged archive, None for a whole one; `expected` counts
    such chunks too. `passed` names members of the archive that are no chunks, and `behind` is where other bytes begin
    behind its end, or None.

    Reads are by position, and from any thread. All files together hold at most 64 descriptors, those read last.
    """

    def __init__(
        self, path: Path, index: ChunkTable, missing: Missing, limit: int, verify: bool = False, as_stored: bool = False
    ) -> None:
        self.path = path
        self.key = path.name
        self.torn = index.torn
        self.passed, self.behind = index.passed, index.behind
        self._index = index
        self._limit = limit
        self._verify = verify
        self._as_stored = as_stored
        self._missing: Missing = missing
        self._lost = index.lost
        self.unread: dict[int, int] = {}  # bytes behind the last gzip member, by chunk, where `count` looked
        self._kept: IntArray | None = index.counted
        self._closed = False

    def __len__(self) -> int:
        return len(self._index.payload)

    @property
    def expected(self) -> int:
        """How many chunks the file should have had, at least."""
        return len(self) + self._lost

    def load(self, i: int, wanted: Wanted | None = None) -> ByteArray:
        """`[n, 8396]` uint8 frames of chunk `i`, converted to version 7, in new memory. With `as_stored`,
        records of version 7 as they are, and records of 6, `[n, 8356]`; read-only.

        With `wanted`, the frames at the places that it gives for `n`, which the end of the gzip tells. Nothing behind
        the last of these is unpacked then, and no checksum compared, unless all are wanted, the file was opened with
        `verify`, or what tells `n` is odd. Damage before it is found by most means but not all: deflate itself, and the
        version that each frame begins with. A chunk that turns out to have other than `n` frames is bad (`size`).

        Cost: one read, one inflation up to the last frame that is wanted, and a copy unless `as_stored`; memory of
        unreferenced frames is used again.
        """
        stored = self.stored(i)
        counted = self._counted(stored, i)
        if counted is None or wanted is None or self._verify:
            return chosen(self._whole(stored, counted, i), wanted)
        places = wanted(counted.frames)
        if len(places) < counted.frames:
            return self._some(stored, counted, places, i)
        frames = self._whole(stored, counted, i)
        if len(frames) != counted.frames:
            message = f"expected {counted.frames} frames, as the end of the gzip says, got {len(frames)}"
            raise self._named(message, Reason.SIZE, i)
        return frames

    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[ByteArray | None]:
        """As `ChunkSource.load_some`: parts of chunks, up to a megabyte of them; none with `verify`.

        A file is looked at once, and the same is done for all chunks before the next: of a chunk that was unpacked
        nothing is left in the processor's cache but its last bytes, so that each call behind it costs thrice as much.
        """
        plan = [] if self._verify or self._closed else self._planned(chunks, wanted)
        pieces: list[bytes | None] = []
        if plan:
            try:
                with DESCRIPTORS.borrow(self.path, self._index.identity) as fd:
                    pieces = [self._piece(fd, i, WIDTH[counted.version], places) for _, i, counted, places in plan]
            except (ChunkError, OSError):
                pieces = [None] * len(plan)
        frames: list[ByteArray | None] = [None] * len(chunks)
        for (number, _, counted, _), piece in zip(plan, pieces, strict=True):
            if piece is not None:
                frames[number] = self._of_version(piece, counted.version)
        return frames

    def _planned(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[tuple[int, int, Counted, list[int]]]:
        """Place among `chunks`, number, `Counted`, and the places of some frames, of each chunk to be read."""
        plan: list[tuple[int, int, Counted, list[int]]] = []
        nbytes = 0
        for number, i in enumerate(chunks):
            try:
                counted = self._known(i) or self._counted(self.stored(i), i)
            except ChunkError:
                continue
            if counted is None or nbytes >= TOGETHER:
                continue
            places = wanted(number, counted.frames).tolist()
            if 0 < len(places) < counted.frames:
                plan.append((number, i, counted, places))
                nbytes += len(places) * WIDTH[counted.version]
        return plan

    def _piece(self, fd: int, i: int, width: int, places: list[int]) -> bytes | None:
        """Records of a chunk end to end."""
        size = int(self._index.size[i])
        stored = read_at(self.path, fd, size, int(self._index.payload[i]))
        if len(stored) < size:
            return None
        raw = gunzip_start(stored, (places[-1] + 1) * width) if stored.startswith(MAGIC) else stored
        if raw is None:
            return None
        # A copy: an array of the few that are wanted would keep all of it.
        return b"".join([raw[place * width : (place + 1) * width] for place in places])

    def _of_version(self, piece: bytes, version: int) -> ByteArray | None:
        """Records as `load` gives them, None where one of them is of another version."""
        width, head = WIDTH[version], version.to_bytes(4, "little")
        if any(not piece.startswith(head, start) for start in range(0, len(piece), width)):
            return None
        return self._given(np.frombuffer(piece, np.uint8).reshape(-1, width), version)

    def _whole(self, stored: bytes, counted: Counted | None, i: int) -> ByteArray:
        raw = one_member(stored, self._limit) if counted is not None and stored.startswith(MAGIC) else None
        whole = self._unpacked(stored, i) if raw is None else raw
        try:
            return self._given(*records(whole))
        except ChunkError as error:
            raise self._misread(error, whole, i) from None

    def _some(self, stored: bytes, counted: Counted, places: IntArray, i: int) -> ByteArray:
        """The frames at some places, fewer than all."""
        width = WIDTH[counted.version]
        if len(places) == 0:
            return self._given(np.empty((0, width), np.uint8), counted.version)
        raw = stored
        if stored.startswith(MAGIC):
            raw = gunzip_start(stored, (int(places[-1]) + 1) * width)
        if raw is None:
            self._unpacked(stored, i)  # says what is wrong, in most cases
            raise self._named(
                f"expected {counted.frames} frames, as the end of the gzip says, got fewer", Reason.SIZE, i
            )
        if np.any(versions(raw, width)[places] != counted.version):
            raise self._named(several_versions(), Reason.MIXED, i)
        return self._given(np.frombuffer(raw, np.uint8).reshape(-1, width)[places], counted.version)

    def _given(self, rows: ByteArray, version: int) -> ByteArray:
        """What `load` gives for records `[n, width]`."""
        return rows if self._as_stored and version >= 6 else upgraded_records(rows, version, self._missing)

    def unpacked(self, i: int) -> bytes:
        """The records of chunk `i` as they are stored, not yet looked at. Raises as `load`."""
        return self._unpacked(self.stored(i), i)

    def _unpacked(self, stored: bytes, i: int) -> bytes:
        if not stored.startswith(MAGIC):
            return self._plain(stored, i)
        try:
            return gunzip(stored, self._limit)
        except GzipError as error:
            raise self._named(error, Reason(error.reason), i) from error

    def count(self, i: int) -> Counted:
        """Frames and version of chunk `i`, by what its gzip says at its ends. Raises as `load`.

        Only what is odd is unpacked: several members, something behind the last one, sizes that cannot be. Damage
        inside is not seen. Cost: a read of the compressed bytes, once; of records behind a URL, of the first ones.
        """
        if (known := self._known(i)) is not None:
            return known
        if self.remote is not None and (plain := self._plain_count(i)) is not None:
            return plain
        stored = self.stored(i)
        counted = self._counted(stored, i)
        if counted is not None:
            return counted
        raw = self._unpacked(stored, i)
        try:
            counted = Counted(frames_in(version_of(raw), len(raw)), version_of(raw))
        except ChunkError as error:
            raise self._misread(error, raw, i) from None
        if (behind := bytes_behind(stored, self._limit) if stored.startswith(MAGIC) else 0) > 0:
            self.unread[i] = behind
        return counted

    def _misread(self, error: ChunkError, raw: bytes, i: int) -> ChunkError:
        """The error of unpacked bytes that are no records, which may belong to an archive."""
        if error.reason == Reason.VERSION and is_tar(raw):
            return packed_error(self.path)
        return self._named(error, error.reason, i)

    def _counted(self, stored: bytes, i: int) -> Counted | None:
        """Properties of chunk `i` from its ends; None where only unpacking shows them. Kept, 8 bytes a chunk: the file
        is unchanged since it was indexed."""
        counted = self._known(i)
        if counted is None and (counted := self._looked_at(stored)) is not None:
            self._note(i, counted, plain=not stored.startswith(MAGIC))
        return counted

    def _note(self, i: int, counted: Counted, *, plain: bool) -> None:
        if self._kept is None:
            self._kept = np.zeros(len(self), np.int64)
        self._kept[i] = counted.frames << 5 | plain << 4 | counted.version

    def _known(self, i: int) -> Counted | None:
        """Properties of chunk `i` from an earlier read of its ends."""
        known = 0 if self._kept is None or i < 0 else int(self._kept[i])
        return Counted(known >> 5, known & 15) if known else None

    @cached_property
    def remote(self) -> RemoteFile | None:
        """The file behind a URL, None for a file on this machine."""
        return remote_file(self.path)

    @property
    def has_counts(self) -> bool:
        """Whether counting needs few bytes: a table was kept, or the file is one chunk of plain records, or local."""
        if self.remote is None or self._index.counted is not None:
            return True
        return not len(self._index.names) and self._plain_count(0) is not None

    @property
    def noted(self) -> int:
        """What `count` noted of the only chunk of the file, for `ChunkTable.counted`; 0 where it noted nothing."""
        return 0 if self._kept is None or len(self._index.names) else int(self._kept[0])

    def keep_table(self) -> None:
        """Keep the places and counts of an archive behind a URL, so that it need not be fetched whole again."""
        if self.remote is not None and len(self._index.names) and self._index.counted is None:
            kept = np.zeros(len(self), np.int64) if self._kept is None else self._kept
            save(self.path, self._index, kept)

    def _plain_count(self, i: int) -> Counted | None:
        """Properties of a chunk of records that are not compressed, from its first bytes; None for others."""
        size = int(self._index.size[i])
        with DESCRIPTORS.borrow(self.path, self._index.identity) as fd:
            head = read_at(self.path, fd, min(size, _HEAD), int(self._index.payload[i]))
        if size > self._limit or not plausible(head):
            return None
        try:
            counted = Counted(frames_in(version_of(head), size), version_of(head))
        except ChunkError:
            return None
        self._note(i, counted, plain=True)
        return counted

    def is_plain(self, i: int) -> bool:
        """Whether chunk `i` was counted, and has records that are not compressed."""
        return self._kept is not None and bool(int(self._kept[i]) & 16)

    def byte_ranges(self, i: int, places: IntArray) -> tuple[IntArray, IntArray]:
        """Where the bytes begin and end that the frames at rising places of chunk `i` need: all of them, compressed."""
        begin, size = int(self._index.payload[i]), int(self._index.size[i])
        if not self.is_plain(i):
            return np.array([begin]), np.array([begin + size])
        width = WIDTH[self.count(i).version]
        cuts = np.flatnonzero(np.diff(places) > 1)
        first, last = places[np.append(0, cuts + 1)], places[np.append(cuts, len(places) - 1)]
        return begin + first * width, begin + (last + 1) * width

    def plain_frames(self, i: int, places: IntArray) -> ByteArray:
        """`[n, 8396]` frames of a plain chunk, at rising places, of which no others are read. Raises as `load`."""
        version = self.count(i).version
        width = WIDTH[version]
        begin, end = self.byte_ranges(i, places)
        with (
            filled([] if self.remote is None else [(self.remote, begin, end)]),
            DESCRIPTORS.borrow(self.path, self._index.identity) as fd,
        ):
            raw = b"".join(os.pread(fd, b - a, a) for a, b in zip(begin.tolist(), end.tolist(), strict=True))
        rows = np.frombuffer(raw, np.uint8).reshape(-1, width)
        if len(rows) != len(places) or np.any(versions(raw, width) != version):
            raise self._named(several_versions(), Reason.MIXED, i)
        return self._given(rows, version)

    def _looked_at(self, stored: bytes) -> Counted | None:
        version, size = version_of(stored), len(stored)
        if stored.startswith(MAGIC):
            version, size = version_of(begins(stored, 4)), told_size(stored)
            if not single(stored) or not size <= min(GAIN * len(stored), self._limit):
                return None
        try:
            return Counted(frames_in(version, size), version)
        except ChunkError:
            return None

    def stored(self, i: int) -> bytes:
        if not 0 <= i < len(self):
            raise IndexError(f"expected a chunk within 0:{len(self)}, got {i}")
        if self._closed:
            raise self._named("expected an open file, got one that was closed", Reason.IO, i)
        offset, size = int(self._index.payload[i]), int(self._index.size[i])
        if size == 0:
            raise self._named("expected a chunk, got no bytes", Reason.EMPTY, i)
        if size > self._limit:
            raise self._named(f"expected at most {self._limit} bytes, got {size}", Reason.TOO_LARGE, i)
        try:
            with DESCRIPTORS.borrow(self.path, self._index.identity) as fd:
                raw = read_at(self.path, fd, size, offset)
        except RemoteError:
            raise
        except OSError as error:
            raise self._named(f"cannot read: {error.strerror}", Reason.IO, i) from error
        if len(raw) < size:
            raise self._named(f"expected {size} bytes, got {len(raw)}: the file was cut", Reason.TRUNCATED, i)
        return raw

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


def open_chunks(
    path: str | os.PathLike[str],
    *,
    missing_st: Missing = "zero",
    limit: int = LIMIT,
    verify: bool = False,
    as_stored: bool = False,
) -> ChunkFile | None:
    """The chunks of the file at `path`, recognised by its content: gzip (one chunk), records that are not compressed
    (one chunk), or a tar of either (a chunk a member, but folders and LICENSE). None for any other file.

    `missing_st` says what short-term values become that records before version 7 do not have: `"zero"`, or `"nan"`.
    `limit` is the most bytes of a chunk, unpacked. With `verify`, a chunk is unpacked whole and its checksum compared
    also where only some of its frames are wanted. With `as_stored`, records of versions 6 and 7 are given as they are,
    for callers that convert them later. Of a tar that is cut or damaged, members whose headers can be read are
    used; `torn` describes the first damage, and `expected` counts the members that are lost, as far as known.

    Cost: a read of the first bytes; of a tar, one small read a member.
    """
    check_missing(missing_st)
    place = Path(path)
    index = indexed(place)
    return None if index is None else ChunkFile(place, index, missing_st, limit, verify, as_stored)
