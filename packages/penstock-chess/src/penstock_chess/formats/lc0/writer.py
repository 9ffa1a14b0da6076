"""Writing games: a tar of gzip chunks, or a folder of them; the same bytes for the same games."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.tar import TarAppender, member
from penstock.core.arrays import ByteArray
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError
from penstock.files import atomic_path, open_locked, sync, write_atomic
from penstock.formats.base.writer import LockedWriter, PartStart
from penstock_chess.formats.lc0.files import read_metadata, write_metadata
from penstock_chess.formats.lc0.records import FRAME, RECORDS, SPEC, check_spec, frames_of
from penstock_chess.formats.lc0.source import Lc0Source

Record = Literal["v6", "v7"]
LEVEL = 6
_OURS = re.compile(r"training\.(\d+)\.gz")
IN_A_TAR = "in a tar (write a folder, whose name does not end with .tar)"
_KNOWN = ("file", "member", "frames", "version")  # metadata that reading gives, and the place of a chunk says


def packed_chunk(frames: ByteArray, record: Record = "v7", level: int = LEVEL) -> bytes:
    """One gzip member of `[n, 8396]` frames, as records of version 6 or 7; no name and no time in it. Version 6 has no
    place for `d_st` and the two played indices of other positions.
    """
    if record not in ("v6", "v7"):
        raise DataError(f"expected record to be 'v6' or 'v7', got {record!r}")
    if frames.dtype != np.uint8 or frames.ndim != 2 or frames.shape[1] != FRAME.itemsize or not len(frames):
        message = f"expected [n, {FRAME.itemsize}] uint8 frames, at least one"
        raise DataError(f"{message}, got {list(frames.shape)} {frames.dtype}")
    version = int(record[1:])
    rows = frames[:, : RECORDS[version].itemsize].copy()
    rows.view(RECORDS[version])["version"] = version
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(rows.tobytes()) + packer.flush()


def write_chunk(frames: ByteArray, file: IO[bytes], record: Record = "v7", level: int = LEVEL) -> int:
    """Write `packed_chunk` to a file opened for bytes; how many there were."""
    packed = packed_chunk(frames, record, level)
    file.write(packed)
    return len(packed)


class Lc0Writer(LockedWriter):
    """Appends games to `path`: a tar if its name ends with `.tar`, otherwise a folder of files. A game is a gzip called
    `training.000000000.gz` and so on. One writer at a time. Killing the process loses no game that `write` returned
    from, and leaves no half of another.

    `record` is the version of the records, `"v7"` or `"v6"`, `level` zlib's. Metadata of a folder is in a hidden file;
    a tar has no place for it. Metadata of episodes is refused, but for what reading a game gives (`file`, `member`,
    `frames`, `version`).

    Cost of opening: as `Lc0Source`.
    """

    def __init__(self, path: str | os.PathLike[str], *, record: Record = "v7", level: int = LEVEL) -> None:
        if record not in ("v6", "v7") or level not in range(10):
            raise DataError(f"expected record 'v6' or 'v7' and level 0 to 9, got {record!r} and {level!r}")
        self.path, self._level = Path(path), level
        self._record: Record = record
        self._archive: TarAppender | None = None
        super().__init__(open_locked(*lock_of(self.path), name=self.path))

    @override
    def _resume(self) -> None:
        with Lc0Source(self.path) as source:
            self._games = len(source)
        self._next = 1 + max(self._numbers(), default=-1)
        if not self.path.is_dir():
            self._archive = TarAppender(self.path)

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> Lc0Writer:
        """Create an empty dataset."""
        check_spec(spec)
        place = Path(path)
        if place.exists() or place.is_symlink():
            raise FileExistsError(f"expected nothing at {place}; open it for appending, or remove it")
        if place.name.endswith(".tar"):
            _refuse(metadata or {}, IN_A_TAR)
            TarAppender.create(place).close()
        else:
            with atomic_path(place) as folder:
                folder.mkdir()
                write_metadata(folder, metadata or {})
        return cls(place, **options)

    @property
    def spec(self) -> Spec:
        """The columns that episodes must have."""
        return SPEC

    def write(self, episode: Episode) -> int:
        """Save one game; returns its number in the dataset."""
        self._check_open()
        frames = frames_of(episode)
        if not len(frames):
            raise DataError("expected a game of at least one position, got none: there is no chunk without frames")
        _refuse({name: value for name, value in episode.metadata.items() if name not in _KNOWN}, "of an episode")
        packed = packed_chunk(frames, self._record, self._level)
        name = f"training.{self._next:09d}.gz"
        if self._archive is None:
            write_atomic(self.path / name, packed, durable="file")
        else:
            self._archive.append([member(name, packed)])
        self._next += 1
        self._games += 1
        return self._games - 1

    @override
    def begin_at(self, start: PartStart) -> None:
        self._next = start.episode

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of a folder."""
        if self._archive is not None:
            _refuse(metadata, IN_A_TAR)
            return
        write_metadata(self.path, {**read_metadata(self.path), **metadata})

    @override
    def _finish(self) -> None:
        if self._archive is None:
            sync(self.path)
        else:
            self._archive.close()

    def _numbers(self) -> list[int]:
        """The numbers of the games in a folder, or that many as an archive has members."""
        if not self.path.is_dir():
            return [self._games - 1]
        names = [p.name for p in self.path.iterdir() if not p.name.startswith(".")]
        matches = [_OURS.fullmatch(name) for name in names]
        if None in matches:
            message = "expected only files called training.<number>.gz in a folder that is appended to"
            raise FormatError(f"{message}, got {names[matches.index(None)]!r}", path=self.path)
        return [int(match[1]) for match in matches if match is not None]


def _refuse(metadata: Mapping[str, Any], where: str) -> None:
    if metadata:
        raise DataError(f"expected no metadata {where}, got {sorted(metadata)}: files of games have no place for it")


def lock_of(path: Path) -> tuple[Path, int]:
    """Return the file that a writer locks, and how it is opened: a hidden one in a folder of games, or the tar."""
    return (path / ".lock", os.O_RDWR | os.O_CREAT) if path.is_dir() else (path, os.O_RDWR)
