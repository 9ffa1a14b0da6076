"""Indexes of tar shards that are built ahead of time, also from headers that several processes read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.tar import ArchiveEnd, Members
from penstock.core.arrays import ByteArray, IntArray
from penstock.formats.base.file_facts import FileFacts, FileSurvey
from penstock.formats.webdataset import index
from penstock.formats.webdataset.cache import plain
from penstock.formats.webdataset.reading import Options
from penstock.formats.webdataset.shards import shards_of
from penstock.formats.webdataset.source import OpenedArchives, ShardSource, read, read_members

_FIELDS = ("header", "payload", "size")


class IndexedShards(ShardSource):
    """Shards whose index is saved even for few members."""

    def __init__(self, paths: Sequence[Path], members: Sequence[Members] | None = None) -> None:
        self._members = members
        super().__init__(paths)

    @override
    def _open(self, buffers: Sequence[ByteArray]) -> OpenedArchives:
        if self._members is None:
            return super()._open(buffers)
        return self._on(read(self._shards, buffers, self._options, self._members), buffers)

    def keep(self) -> None:
        """Write the index. Raises `OSError` where the cache folder cannot be written."""
        index.save(self.index_file, self._state_key(), self.state.content)

    @property
    def is_kept(self) -> bool:
        """Return whether the cache has an index of this state."""
        return index.load(self.index_file, self._state_key()) is not None

    def _state_key(self) -> str:
        return index.state_of(self._key, self.shards, self.state.archives.buffers)


def index_file(paths: Sequence[Path]) -> Path:
    """Return the file of the index of some archives in the user's cache."""
    return index.place(paths[0] if len(paths) == 1 else paths)


def members_of(path: Path) -> FileFacts:
    """Read the headers of an archive; return its members."""
    members = read_members(plain(path, None), path, Options())
    arrays = {name: getattr(members, name) for name in _FIELDS}
    names = members.matrix
    values = {"width": names.shape[1], "torn": members.torn, "behind": members.tail.behind}
    values["archives"] = members.archives
    return FileFacts(values, {"names": names.reshape(-1), "end": np.array([members.end]), **arrays})


def members_from(facts: FileFacts) -> Members:
    """Return the members that `members_of` read."""
    width, names = facts.values["width"], facts.arrays["names"]
    texts = np.ascontiguousarray(names).view(f"S{width}") if width else names.reshape(0).view("S1")
    arrays = {name: facts.arrays[name] for name in _FIELDS}
    tail = ArchiveEnd(int(facts.arrays["end"][0]), facts.values["torn"], facts.values["behind"])
    return Members(texts, **arrays, tail=tail, archives=tuple(facts.values["archives"]))


@dataclass(frozen=True, eq=False)
class ArchiveSurvey(FileSurvey):
    """The archives of a dataset, whose index has more than their members: so it is made of all of them, or of none."""

    paths: Sequence[Path]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> ArchiveSurvey:
        """Return the survey of a folder, or of archives."""
        one = len(paths) == 1
        files = shards_of(paths[0]) if one else [shard for path in paths for shard in shards_of(path)]
        return cls("webdataset 2", files, members_of, paths)

    @override
    def unknown(self, *, force: bool = False) -> IntArray:
        return np.arange(0 if not force and is_indexed(self.paths) else len(self.files))


def is_indexed(paths: Sequence[Path]) -> bool:
    """Return whether the cache has an index of archives as they are now."""
    if not index_file(paths).exists():
        return False
    with IndexedShards(paths) as source:
        return source.is_kept


def index_shards(
    paths: Sequence[Path], members: Sequence[Members] | None = None, *, force: bool = False
) -> dict[str, Any]:
    """Build the index of archives, unless the cache has it."""
    if force:
        index_file(paths).unlink(missing_ok=True)
    with IndexedShards(paths, members) as source:
        place = source.index_file
        is_new = force or members is not None or not source.is_kept
        if is_new:
            source.keep()
        counts = {"episodes": len(source), "steps": source.steps, "samples": len(source.samples)}
        shards = {"shards": len(source.shards), "layout": source.layout}
    return {**counts, **shards, "index": str(place), "index_size": place.stat().st_size, "made": is_new}
