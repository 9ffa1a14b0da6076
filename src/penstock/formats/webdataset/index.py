"""Indexes of tar shards, kept in the user's cache folder and nowhere else.

An index has the positions of values, so the author of an index can make any bytes of the archives appear as any value.
One that comes with the data is therefore never read: only what this user's processes wrote is, and only for archives
that are what they were, by path, size, times, inode and a sample of their bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.containers.on_demand import FilesOnDemand
from penstock.core.arrays import ByteArray
from penstock.errors import PenstockError
from penstock.files.arrays import read_arrays, write_arrays
from penstock.files.remote import file_state, remote_file
from penstock.files.user_cache import make_room, user_cache
from penstock.formats.webdataset.content import Content

MAGIC = b"penstock shards 3\n"
BYTES = 8 << 30  # that all indexes together may have
_SUFFIX = ".penstock-index"
_SAMPLE = 512  # bytes of a block, of which three an archive are looked at


def place(path: Path | Sequence[Path]) -> Path:
    """The index of the dataset at `path`, or of several archives. Raises `OSError` where there is no folder
    for caches.
    """
    paths = [path] if isinstance(path, Path) else path
    name = hashlib.sha256(b"\0".join(os.fsencode(each.absolute()) for each in paths)).hexdigest()[:32]
    return user_cache("shard-indexes") / f"{name}{_SUFFIX}"


def state_of(key: str, shards: Sequence[Path], buffers: Sequence[ByteArray]) -> str:
    """State that an index belongs to: the options and archives that `key` names, and the very files that these are."""
    parts: list[object] = [key]
    if isinstance(buffers, FilesOnDemand):  # opening each archive takes longer than reading their index
        states = zip(shards, buffers.states, strict=True)
        parts += [[str(shard.absolute()), state.size, state.mtime_ns, state.inode] for shard, state in states]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    for shard, data in zip(shards, buffers, strict=True):
        if remote_file(shard) is not None:
            parts.append([str(shard.absolute()), file_state(shard).mtime_ns, len(data)])
            continue
        state, middle = shard.stat(), len(data) // 2
        sample = b"".join(bytes(data[i : i + _SAMPLE]) for i in (0, middle, max(len(data) - _SAMPLE, 0)))
        place = str(shard.absolute())
        parts.append([place, state.st_ino, state.st_ctime_ns, len(data), hashlib.sha256(sample).hexdigest()])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def save(path: Path, state: str, content: Content) -> None:
    """Keep content for a state of archives. Raises `OSError` where it cannot be written."""
    write_arrays(path, MAGIC, state, *content.packed())
    make_room(path.parent, f"*{_SUFFIX}", BYTES)


def load(path: Path, state: str) -> Content | None:
    """The content kept for this state of archives; None if there is none, or anything is wrong with it."""
    cached = read_arrays(path, MAGIC, state)
    if cached is None:
        return None
    with suppress(PenstockError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Content.unpacked(*cached)
    return None  # by another version
