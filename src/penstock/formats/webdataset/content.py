"""Result of reading a layout: the columns of a dataset and the places of their values, and its file, the index.

An index is kept in the user's cache folder and nowhere else. It has the positions of values, so the author of an index
can make any bytes of the archives appear as any value. One that comes with the data is therefore never read: only what
this user's processes wrote is, and only for archives that are what they were, by path, size, times, inode and a sample
of their bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.containers.on_demand import FilesOnDemand
from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.spec import Field, Spec
from penstock.errors import PenstockError
from penstock.files.arrays import read_arrays, write_arrays
from penstock.files.remote import file_state, remote_file
from penstock.files.user_cache import make_room, user_cache
from penstock.formats.base.account import Account
from penstock.formats.webdataset.places import Places
from penstock.formats.webdataset.samples import Samples

Arrays = dict[str, AnyArray]
_PLACES = ("rows", "buffer", "offset", "held", "cuts")
_SAMPLES = ("keys", "shard", "archive", "payload", "size")
MAGIC = b"penstock shards 3\n"
BYTES = 8 << 30  # that all indexes together may have
_SUFFIX = ".penstock-index"
_SAMPLE = 512  # bytes of a block, of which three an archive are looked at


@dataclass(frozen=True, eq=False)
class Content:
    """A dataset in archives: `layout` that it was read by, spec, offsets of the episodes, the place of each column, and
    the samples it was read from."""

    layout: str
    spec: Spec
    offsets: IntArray
    columns: Mapping[str, Places]
    samples: Samples
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    episodes: tuple[Mapping[str, Any], ...] = ()  # metadata of each; () where there is none
    described: int = 0  # how often our own layout was described again
    account: Account = field(default_factory=Account)
    torn_tails: Mapping[str, int] = field(default_factory=dict[str, int])  # by archive: byte where an append stopped

    def packed(self) -> tuple[dict[str, Any], Arrays]:
        """As a header that JSON can hold once its arrays are lists, and arrays; `unpacked` is the inverse."""
        arrays: Arrays = {"offsets": self.offsets}
        arrays |= {f"samples/{name}": getattr(self.samples, name) for name in _SAMPLES}
        for i, places in enumerate(self.columns.values()):
            arrays |= {f"{i}/{name}": a for name in _PLACES if (a := getattr(places, name)) is not None}
        header = {
            "layout": self.layout,
            "spec": self.spec.to_json(),
            "columns": {path: places.field.to_json() for path, places in self.columns.items()},
            "extensions": self.samples.extensions,
            "metadata": self.metadata,
            "episodes": self.episodes,
            "described": self.described,
            "account": self.account.to_json(),
            "torn_tails": self.torn_tails,
        }
        return header, arrays

    @classmethod
    def unpacked(cls, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> Content:
        """What `packed` took apart. Places are checked against the archives when they are read."""
        columns: dict[str, Places] = {}
        for i, (path, described) in enumerate(header["columns"].items()):
            columns[path] = Places(Field.from_json(described), *(arrays.get(f"{i}/{name}") for name in _PLACES))  # pyright: ignore[reportArgumentType]
        keys, shard, archive, payload, size = (arrays[f"samples/{name}"] for name in _SAMPLES)
        samples = Samples(keys, shard, archive, tuple(header["extensions"]), payload, size)
        spec, episodes = Spec.from_json(header["spec"]), tuple(header["episodes"])
        account = Account.from_json(header["account"])
        entries = (header["metadata"], episodes, header["described"], account, header["torn_tails"])
        return cls(header["layout"], spec, arrays["offsets"], columns, samples, *entries)


def index_place(path: Path | Sequence[Path]) -> Path:
    """The index of the dataset at `path`, or of several archives. Raises `OSError` where there is no folder
    for caches.
    """
    paths = [path] if isinstance(path, Path) else path
    name = hashlib.sha256(b"\0".join(os.fsencode(each.absolute()) for each in paths)).hexdigest()[:32]
    return user_cache("shard-indexes") / f"{name}{_SUFFIX}"


def index_state(key: str, shards: Sequence[Path], buffers: Sequence[ByteArray]) -> str:
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


def save_index(path: Path, state: str, content: Content) -> None:
    """Keep content for a state of archives. Raises `OSError` where it cannot be written."""
    write_arrays(path, MAGIC, state, *content.packed())
    make_room(path.parent, f"*{_SUFFIX}", BYTES)


def load_index(path: Path, state: str) -> Content | None:
    """The content kept for this state of archives; None if there is none, or anything is wrong with it."""
    cached = read_arrays(path, MAGIC, state)
    if cached is None:
        return None
    with suppress(PenstockError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Content.unpacked(*cached)
    return None  # by another version
