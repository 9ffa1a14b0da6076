"""Writing datasets of archives: an episode is in its archive, whole, when `write` returns."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.npy import header_bytes
from penstock.containers.tar import TarAppender, member, walk
from penstock.containers.tar.compress import Compression, check_packer, pack
from penstock.containers.tar.writer import Piece, replace_archive
from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError
from penstock.files import move, open_locked, sync
from penstock.files.mapping import map_file
from penstock.formats.base.metadata import plain_metadata
from penstock.formats.base.writer import LockedWriter, PartStart, check_columns
from penstock.formats.webdataset import own
from penstock.formats.webdataset.shards import (
    LOCK,
    PACKED,
    SUFFIXES,
    current,
    recording,
    shards_of,
    stem_of,
    unpacked_beside,
)
from penstock.formats.webdataset.source import ShardSource

SHARD_BYTES = 1 << 30
SHARD_EPISODES = 100_000
PACKED_END = {"gzip": ".tgz", "zstd": ".tar.zst"}
_FIRST = "shard-"
_HIDDEN = ".part-"


class ShardWriter(LockedWriter):
    """Writes episodes into one archive, if the name of `path` ends as archives' do, otherwise into a folder of
    archives.

    An archive of a folder is full where the next episode would make it longer than `shard_bytes` or `shard_episodes`.
    One packed archive is recorded plain and hidden next to its name, and is packed when the writer is closed. The same
    episodes give the same bytes. Subclasses say what the members are.
    """

    layout: ClassVar[str]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shard_bytes: int = SHARD_BYTES,
        shard_episodes: int = SHARD_EPISODES,
        compression: Compression = None,
    ) -> None:
        self.path = Path(path)
        self._single, kind = packing(self.path, compression)
        self._compression: Compression = kind
        if shard_bytes < 1 or shard_episodes < 1:
            raise DataError(f"expected shards of at least 1 byte and episode, got {shard_bytes} and {shard_episodes}")
        self._limits = (shard_bytes, shard_episodes)
        self._archive: TarAppender | None = None
        self._is_part = False
        super().__init__(_locked(self.path))

    @override
    def _resume(self) -> None:
        self._prepare()
        with ShardSource(self.path, index=False) as source:
            if source.layout != self.layout:
                message = f"expected archives of the layout {self.layout!r} to append to, got {source.layout!r}"
                raise FormatError(message, path=self.path)
            self._continue(source)
            last = source.shards[-1]
            self._shards, self._episodes = len(source.shards), len(source)
            self._inside = int(np.count_nonzero(source.samples.shard[self._begins(source)] == self._shards - 1))
        if last.suffix == ".tar":
            self._archive = TarAppender(last)

    @abstractmethod
    def _continue(self, source: ShardSource) -> None:
        """Take in what there is: spec, metadata, and how much was written."""

    @abstractmethod
    def _head(self) -> bytes:
        """The member that a new archive begins with."""

    @abstractmethod
    def _members(self, episode: Episode, number: int) -> Iterator[Piece]:
        """The members of an episode as stored in an archive, in pieces that begin with a header."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The columns that episodes must have."""

    def _begins(self, source: ShardSource) -> IntArray:
        """`[episodes]` the sample that each begins with: of layouts with a sample an episode, that one."""
        return np.arange(len(source))

    @override
    def begin_at(self, start: PartStart) -> None:
        self._episodes = start.episode
        self._is_part = True

    def _written(self, episode: Episode) -> None:
        """An episode is in its archive."""

    def write(self, episode: Episode) -> int:
        self._check_open()
        check_columns(episode, self.spec)
        members = list(self._members(episode, self._episodes))
        archive = self._room_for(sum(map(len, members)))
        archive.append(members)
        self._written(episode)
        self._inside += 1
        self._episodes += 1
        return self._episodes - 1

    def _prepare(self) -> None:
        """Remove what a killed writer left behind, and unpack one packed archive to be appended to."""
        counted = shards_of(self.path)
        if not self._single:
            for path in counted:
                if path.suffix != ".tar":
                    path.with_name(f"{stem_of(path)}.tar").unlink(missing_ok=True)
        elif self._compression is not None and counted == [self.path]:
            unpacked_beside(self.path, recording(self.path))

    def _room_for(self, size: int) -> TarAppender:
        """The archive that an episode of so many bytes goes to."""
        nbytes, episodes = self._limits
        archive = self._archive
        full = archive is not None and (archive.end + size > nbytes or self._inside >= episodes)
        if full and self._inside and not self._single:
            self._finish()
            archive = None
        if archive is None:
            archive = self._archive = TarAppender.create(self.path / shard_name(self._shards), self._head())
            self._shards += 1
            self._inside = 0
        return archive

    @override
    def _finish(self) -> None:
        """Flush the archive, and compress it if that was asked for."""
        archive, self._archive = self._archive, None
        if archive is None:
            return
        archive.close()
        if self._compression is None or (self._single and self._is_part):
            return  # one archive of several parts is compressed when they are joined
        name = f"{archive.path.stem}{PACKED_END[self._compression]}"
        pack(archive.path, self.path if self._single else archive.path.with_name(name), self._compression)
        archive.path.unlink()


class NpyShardWriter(ShardWriter):
    """Our own layout (`penstock.formats.webdataset.own`): any columns, `.npy` members and JSON."""

    layout: ClassVar[str] = own.NAME
    _description: own.Description

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> NpyShardWriter:
        own.extensions(spec)
        described = own.Description(0, spec, plain_metadata(metadata or {}))
        start(Path(path), member(described.name, described.encode()), options.get("compression"))
        return cls(path, **options)

    def _continue(self, source: ShardSource) -> None:
        self._description = own.Description(source.described, source.spec, source.metadata)
        self._extensions = own.extensions(source.spec)

    @property
    @override
    def spec(self) -> Spec:
        return self._description.spec

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries: a new description at the end of the last archive."""
        merged = {**self._description.metadata, **plain_metadata(metadata)}
        described = own.Description(self._description.number + 1, self.spec, merged)
        self._room_for(0).append([member(described.name, described.encode())])
        self._description = described

    def _head(self) -> bytes:
        return member(self._description.name, self._description.encode())

    def _members(self, episode: Episode, number: int) -> Iterator[Piece]:
        key = own.key(number)
        yield member(f"{key}.json", own.episode_json(len(episode), plain_metadata(episode.metadata)))
        for path, array in episode.columns.items():
            if isinstance(array, Ragged):
                yield _npy(f"{key}.{self._extensions[path]}", array.values)
                yield _npy(f"{key}.{self._extensions[f'{path}:offsets']}", array.offsets.astype("<i8"))
            else:
                yield _npy(f"{key}.{self._extensions[path]}", array)


def packing(path: Path, compression: Compression) -> tuple[bool, Compression]:
    """Whether one archive is written rather than a folder, and how it is compressed, by the name."""
    if path.is_dir() or not path.name.endswith(SUFFIXES):
        check_packer(compression)
        return False, compression
    kind: Compression = next((kind for kind, ends in PACKED.items() if path.name.endswith(ends)), None)
    if compression not in (None, kind):
        message = f"expected a name that ends with {' or '.join(PACKED[compression])} for compression={compression!r}"
        raise DataError(f"{message}, or a folder, got {path.name!r}")
    check_packer(kind)
    return True, kind


def start(path: Path, head: bytes, compression: Compression) -> None:
    """Put the first archive of a new dataset at `path`."""
    single, kind = packing(path, compression)
    plain = path if kind is None or not single else recording(path)
    if any(p.exists() or p.is_symlink() for p in (path, plain)):
        raise FileExistsError(f"expected nothing at {path}; open it for appending, or remove it")
    if not single:
        path.mkdir()
    TarAppender.create(plain if single else path / shard_name(0), head).close()


def shard_name(number: int) -> str:
    return f"shard-{number:06d}.tar"


def _npy(name: str, array: Any) -> bytes:
    return member(name, header_bytes(array.dtype.str, array.shape) + np.ascontiguousarray(array).tobytes())


def _locked(path: Path) -> int:
    """The descriptor that holds the writers' lock until it is closed."""
    shards_of(path)
    return open_locked(lock_path(path), os.O_RDWR | os.O_CREAT, name=path)


def lock_path(path: Path) -> Path:
    """Return the file that a writer locks: in the folder of archives, or next to a single one."""
    return path / LOCK if path.is_dir() else path.with_name(f".{path.name}.lock")


def join_shards(parts: Sequence[Path], out: Path) -> None:
    """Move the archives of folders into one: first under hidden names that sort by part, so a second call continues."""
    out.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        for archive in _archives(part, _FIRST):
            move(archive, out / f"{_HIDDEN}{number:08d}-{archive.name}")
    for archive in _archives(out, _HIDDEN):
        number = len(_archives(out, _FIRST))
        stem = shard_name(number).partition(".")[0]
        move(archive, out / (stem + archive.name[archive.name.index(".", len(_HIDDEN)) :]))
    sync(out)


def join_archives(parts: Sequence[Path], out: Path, kind: Compression) -> None:
    """Copy the members of archives into one archive, after one description. It appears when it is complete."""
    cuts = [cut_description(current(part, recording(part))) for part in parts]
    plain = out if kind is None else recording(out)
    replace_archive(plain, [cuts[0][0], *(members for _, members in cuts)])
    if kind is not None:
        pack(plain, out, kind)
        plain.unlink()


def cut_description(path: Path) -> tuple[Piece, Piece]:
    """The first member of a plain archive, which describes it, and all others."""
    data = map_file(path)
    members = walk(data, path)
    begin = int(members.header[1]) if len(members) > 1 else members.end
    return data[:begin].data, data[begin : members.end].data


def _archives(folder: Path, first: str) -> list[Path]:
    """The archives whose names begin so, in order."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(first) and path.name.endswith(SUFFIXES))
