"""Indexes of tar shards that are built ahead of time, also from headers that several processes read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.containers.tar import Members
from penstock.core.arrays import ByteArray
from penstock.files.remote import file_state
from penstock.formats.webdataset import index
from penstock.formats.webdataset.cache import plain
from penstock.formats.webdataset.reading import Options
from penstock.formats.webdataset.source import OpenedArchives, ShardSource, read, read_members

_FIELDS = ("header", "payload", "size", "end", "torn")


class IndexedShards(ShardSource):
    """Shards whose index is saved even for few members.

    Args:
        paths: The archives.
        members: Members of each archive, which are not read again. The default is None.
    """

    def __init__(self, paths: Sequence[Path], members: Sequence[Members] | None = None) -> None:
        self._members = members
        super().__init__(paths)

    @override
    def _open(self, buffers: list[ByteArray]) -> OpenedArchives:
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


def members_of(path: Path) -> dict[str, Any]:
    """Read the headers of an archive; return its members as plain values and arrays.

    Args:
        path: The archive. A compressed one is unpacked into the user's cache.
    """
    members = read_members(plain(path, None), path, Options())
    return {"names": members.matrix, **{name: getattr(members, name) for name in _FIELDS}}


def members_from(values: Mapping[str, Any]) -> Members:
    """Return the members that `members_of` made plain."""
    names = values["names"]
    width = names.shape[1]
    texts = names.reshape(-1).view(f"S{width}") if width else names.reshape(0).view("S1")
    return Members(texts, **{name: values[name] for name in _FIELDS})


def state_of_archives(paths: Sequence[Path]) -> str:
    """Return a digest of the names, sizes and times of archives."""
    states = [(str(path), (state := file_state(path)).size, state.mtime_ns) for path in paths]
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()


def is_indexed(paths: Sequence[Path]) -> bool:
    """Return whether the cache has an index of archives as they are now."""
    if not index_file(paths).exists():
        return False
    with IndexedShards(paths) as source:
        return source.is_kept


def index_shards(
    paths: Sequence[Path], members: Sequence[Members] | None = None, *, force: bool = False
) -> dict[str, Any]:
    """Build the index of archives, unless the cache has it.

    Args:
        paths: A folder, or archives.
        members: Members of each archive, which are not read again; then the index is built. The default is None.
        force: Build the index also if it is up to date. The default is False.

    Returns:
        Counts of episodes, steps, samples and shards; the layout; the file of the index, its size, whether it is new.
    """
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
