"""Copy the members of archives into new archives with other limits, unchanged.

`ArchivePlan.of` decides which bytes go to which new archive, so any process can write any archive, with the same bytes.
Adjacent members are one *piece*, so a plan is small; only a member whose key another archive has too gets a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.tar import Members, TarAppender, member
from penstock.containers.tar.compress import Compression, pack
from penstock.containers.tar.header import padded
from penstock.containers.tar.writer import Piece, head
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.damage import warn_damage
from penstock.errors import FormatError
from penstock.files import move, scratch_folder
from penstock.formats.webdataset import own, seed
from penstock.formats.webdataset.content import META, keys_of
from penstock.formats.webdataset.reading import Options
from penstock.formats.webdataset.shards import plain
from penstock.formats.webdataset.source import ShardSource, read_members
from penstock.formats.webdataset.writer import PACKED_END, packing, shard_name

APPENDED = 16 << 20  # bytes of members that are put into an archive with one append


@dataclass(frozen=True, eq=False)
class ArchivePlan:
    """Which bytes of old archives go to which new archive."""

    head: bytes
    shard: IntArray
    begin: IntArray
    end: IntArray
    first: IntArray
    renamed: Mapping[int, str]

    @classmethod
    def of(cls, source: ShardSource, limits: tuple[int, int]) -> ArchivePlan:
        """Decide what goes where. Keys that samples of several archives have are numbered."""
        if (left_out := source.account.warning()) is not None:
            warn_damage(f"{source.path}: {left_out}", stacklevel=2)
        buffers = mapped(source.shards)
        members = [read_members(data, path, Options()) for data, path in zip(buffers, source.shards, strict=True)]
        begin, described = _first_member(source, buffers, members)
        pieces = _Pieces(len(begin), limits)
        for group in _groups(source, members, described):
            pieces.add(group)
        return pieces.plan(begin)

    def __len__(self) -> int:
        return len(self.first) - 1

    def name(self, number: int, kind: Compression = None) -> str:
        name = shard_name(number)
        return name if kind is None else name.removesuffix(".tar") + PACKED_END[kind]

    def sizes(self) -> IntArray:
        """Return `[A]` the bytes of members of each new archive, about."""
        ends = np.concatenate([[0], np.cumsum(self.end - self.begin)])
        return np.diff(ends[self.first]) + len(self.head)

    def to_plain(self) -> dict[str, Any]:
        return {**vars(self), "renamed": {str(i): name for i, name in self.renamed.items()}}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> ArchivePlan:
        """Return the plan that `to_plain` made plain."""
        renamed = {int(i): str(name) for i, name in values["renamed"].items()}
        return cls(values["head"], *(values[name] for name in ("shard", "begin", "end", "first")), renamed=renamed)

    def pieces(self, number: int, buffers: Sequence[ByteArray]) -> Iterator[list[Piece]]:
        """Yield the pieces of a new archive behind its head, in lists of about 16 MiB."""
        waiting: list[Piece] = []
        size = 0
        for i in range(int(self.first[number]), int(self.first[number + 1])):
            begin, end = int(self.begin[i]), int(self.end[i])
            data = buffers[int(self.shard[i])]
            step = end - begin if i in self.renamed else APPENDED
            for cut in range(begin, max(end, begin + 1), max(step, 1)):
                raw = data[cut : min(cut + step, end)].data
                waiting.append(member(self.renamed[i], raw) if i in self.renamed else raw)
                size += len(waiting[-1])
                if size >= APPENDED:
                    yield waiting
                    waiting, size = [], 0
        if waiting:
            yield waiting


def mapped(shards: Sequence[Path]) -> list[ByteArray]:
    """Return the archives, unpacked and mapped."""
    return [plain(shard, None) for shard in shards]


def write_archive(
    plan: ArchivePlan, number: int, buffers: Sequence[ByteArray], folder: Path, kind: Compression = None
) -> Path:
    """Write a new archive, which appears only when it is complete. Memory: 16 MiB, or one renamed member."""
    name, out = plan.name(number), folder / plan.name(number, kind)
    with scratch_folder(out) as scratch:
        with TarAppender.create(scratch / name, plan.head) as archive:
            for pieces in plan.pieces(number, buffers):
                archive.append(pieces)
        if kind is not None:
            pack(scratch / name, scratch / out.name, kind)
        move(scratch / out.name, out)
    return out


def is_archive(plan: ArchivePlan, number: int, buffers: Sequence[ByteArray], path: Path) -> bool:
    """Return whether a file has the bytes of a new archive, packed or not. Memory: as of `write_archive`."""
    try:
        data = plain(path, None)
    except (FormatError, OSError):
        return False
    place = 0
    for pieces in chain([[plan.head]], plan.pieces(number, buffers)):
        for piece in pieces:
            if data[place : place + len(piece)].tobytes() != bytes(piece):
                return False
            place += len(piece)
    return not data[place:].any()


def archive_limits(out: Path, limits: tuple[int, int], kind: Compression) -> tuple[tuple[int, int], bool, Compression]:
    """Return the limits of an archive at `out`, whether it is a single one, and its compression."""
    single, kind = packing(out, kind)
    return ((1 << 62, 1 << 62) if single else limits), single, kind


def copy(source: ShardSource, out: Path, limits: tuple[int, int], kind: Compression = None) -> None:
    """Copy every member into archives with other limits (bytes, episodes), and the description into each."""
    limits, single, kind = archive_limits(out, limits, kind)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"expected nothing at {out}; remove it, or write to another place")
    plan = ArchivePlan.of(source, limits)
    buffers = mapped(source.shards)
    out.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(out) as scratch:
        folder = scratch / "shards"
        folder.mkdir()
        paths = [write_archive(plan, number, buffers, folder, kind) for number in range(len(plan))]
        move(paths[0] if single else folder, out)


@dataclass(frozen=True)
class _CopiedMember:
    """Bytes of an old archive, and the new name if they are the payload of a member that is renamed."""

    shard: int
    begin: int
    end: int
    name: str | None = None

    @property
    def size(self) -> int:
        """Bytes in the new archive."""
        size = self.end - self.begin
        return size if self.name is None else len(head(self.name, size)) + padded(size)


class _Pieces:
    """Collects members, and begins a new archive where the next episode would exceed the limits."""

    def __init__(self, begin: int, limits: tuple[int, int]) -> None:
        self._begin, self._limits = begin, limits
        self._rows: list[list[int]] = []  # archive, begin, end
        self._renamed: dict[int, str] = {}
        self._first: list[int] = [0]
        self._size, self._inside = begin, 0

    def add(self, group: Sequence[_CopiedMember]) -> None:
        size = sum(each.size for each in group)
        if self._inside and (self._size + size > self._limits[0] or self._inside >= self._limits[1]):
            self._first.append(len(self._rows))
            self._size, self._inside = self._begin, 0
        for each in group:
            last = len(self._rows) - 1
            if each.name is not None:
                self._renamed[last + 1] = each.name
            elif last >= self._first[-1] and last not in self._renamed:
                row = self._rows[last]
                if row[0] == each.shard and row[2] == each.begin:
                    row[2] = each.end
                    continue
            self._rows.append([each.shard, each.begin, each.end])
        self._size += size
        self._inside += 1

    def plan(self, first_member: bytes) -> ArchivePlan:
        rows = np.array(self._rows, np.int64).reshape(-1, 3)
        first = np.array([*self._first, len(rows)], np.int64)
        shard, begin, end = (np.ascontiguousarray(column) for column in rows.T)
        return ArchivePlan(first_member, shard, begin, end, first, self._renamed)


def _first_member(
    source: ShardSource, buffers: Sequence[ByteArray], members: Sequence[Members]
) -> tuple[bytes, Callable[[str], bool]]:
    """Return the first bytes of every archive, and a test for the same members in the old archives."""
    if source.layout == own.NAME:
        newest = own.described(source.shards, buffers, members)
        if newest is None:
            raise FormatError("expected a description, got none", path=source.path)
        return member(newest.name, newest.encode()), lambda name: name.startswith(own.FOLDER)
    if source.layout != seed.NAME:
        return b"", lambda _: False
    wanted = f"{META}.{seed.META_EXTENSION}"
    payloads = {
        data[listed.payload[i] : listed.payload[i] + listed.size[i]].tobytes()
        for data, listed in zip(buffers, members, strict=True)
        for i in np.flatnonzero(listed.names == wanted.encode()).tolist()
    }
    if len(payloads) > 1:
        message = f"expected archives with equal descriptions, got {len(payloads)} descriptions; reshard each alone"
        raise FormatError(message, path=source.path)
    return b"".join(member(wanted, payload) for payload in payloads), lambda name: name == wanted


def _groups(
    source: ShardSource, members: Sequence[Members], described: Callable[[str], bool]
) -> Iterator[list[_CopiedMember]]:
    """Yield the members of every episode in stored order; a member without episode goes with the one before."""
    seen: dict[bytes, int] = {}
    lengths = iter(np.diff(source.offsets).tolist() if source.layout == seed.NAME else ())
    before = 0  # archives of the files before
    for shard, shard_members in enumerate(members):
        key = keys_of(shard_members)
        number = np.searchsorted(shard_members.archives, np.arange(len(shard_members)), side="right") - 1 + before
        for archive in range(before, before + len(shard_members.archives)):
            mine = np.flatnonzero(number == archive).tolist()
            keep = [i for i in mine if not described(shard_members.name(i))]
            for run in _runs(key, keep, lengths, steps=source.layout == seed.NAME):
                yield [_copied(shard_members, i, key[i], (shard, archive), seen) for i in run]
        before += len(shard_members.archives)


def _runs(key: Sequence[bytes], keep: Sequence[int], lengths: Iterator[int], *, steps: bool) -> Iterator[list[int]]:
    """Yield the members that must share an archive: the members of a sample, or of all samples of an episode."""
    run: list[int] = []
    current, left = b"", 0
    for i in keep:
        if key[i] and key[i] != current:
            current = key[i]
            if left == 0:
                if run:
                    yield run
                run, left = [], next(lengths) if steps else 1
            left -= 1
        run.append(i)
    if run:
        yield run


def _copied(members: Members, i: int, key: bytes, place: tuple[int, int], seen: dict[bytes, int]) -> _CopiedMember:
    """Return member `i` of a file and archive unchanged, or with a numbered key if another archive has its key."""
    shard, archive = place
    first = seen.setdefault(key, archive)
    if not key or first == archive:
        return _CopiedMember(shard, int(members.header[i]), int(members.ends[i]))
    begin = int(members.payload[i])
    text = key.decode("utf-8", "backslashreplace")
    name = f"{text}_{archive:06d}{members.name(i)[len(text) :]}"
    return _CopiedMember(shard, begin, begin + int(members.size[i]), name)
