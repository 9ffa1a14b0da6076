"""How many frames each packed file of a folder has, kept in the user's cache.

The end of a gzip says how many bytes were packed, and all of its bytes have to be looked at to know that it is one
gzip. So the first opening reads all files of a folder. What it counted is kept under the name and state of each file,
and later openings read new and changed files alone. A file that changed a moment before is not kept: its next change
may have the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.core.ragged import Ragged
from penstock.errors import PenstockError
from penstock.files.remote import FileState, lasting_name
from penstock.files.user_cache import IndexFile
from penstock_chess.formats.lc0.chunks import ChunkFile
from penstock_chess.formats.lc0.descriptors import Identity
from penstock_chess.formats.lc0.remote_index import ChunkTable
from penstock_chess.formats.lc0.upgrade import Missing

LEAST = 1 << 20
"""Bytes that were read to count frames, from which on the counts are kept."""

_MAGIC = b"penstock frame counts 1\n"
_BYTES = 1 << 30  # that all tables together may have


class _Entry(NamedTuple):
    """State of a file, and what `ChunkFile` noted of its one chunk."""

    size: int
    time: int
    inode: int
    noted: int


class FrameCounts:
    """The kept counts of the files of a dataset."""

    def __init__(self, files: Iterable[Path], limit: int) -> None:
        self._parent = next((lasting_name(file.parent) for file in files), "")
        self._file = IndexFile.of("frame-counts", self._parent, _MAGIC, _BYTES)
        self._key = f"{limit}"
        self._entries = self._load()
        self._used: dict[bytes, _Entry] = {}
        self._counted = 0

    def open(self, file: Path, state: FileState, missing: Missing, limit: int) -> ChunkFile | None:
        """Return a file whose frames were counted in this state, without reading it, or None for another one."""
        name = self._name(file)
        entry = self._entries.get(name)
        if entry is None or entry[:3] != (state.size, state.mtime_ns, state.inode):
            return None
        self._used[name] = entry
        table = ChunkTable(Identity.at(file, state), (0,), (state.size,), counted=np.array([entry.noted]))
        return ChunkFile(file, table, missing, limit)

    def note(self, file: Path, state: FileState, noted: int) -> None:
        """Note a file that was read. `noted` is 0 where its frames have to be counted again."""
        if noted and state.is_settled:
            self._used[self._name(file)] = _Entry(state.size, state.mtime_ns, state.inode, noted)
            self._counted += state.size

    def save(self, *, every_file: bool) -> None:
        """Keep the counts, if enough was read. Where there is no room, frames are counted again."""
        if self._counted < LEAST:
            return
        kept = self._used if every_file else {**self._entries, **self._used}
        names = Ragged.from_bytes(tuple(kept))
        arrays = {
            "entries": np.array(list(kept.values()), np.int64).reshape(-1, len(_Entry._fields)),
            "names": names.values,
            "ends": names.offsets,
        }
        if self._file is not None:
            self._file.write(self._key, {}, arrays, settled=True)

    def _load(self) -> dict[bytes, _Entry]:
        with suppress(PenstockError, KeyError, TypeError, ValueError):
            if self._file is not None and (kept := self._file.read(self._key)) is not None:
                arrays = kept[1]
                names = Ragged(arrays["names"], arrays["ends"]).blobs()
                rows: list[list[int]] = arrays["entries"].tolist()
                return {bytes(name): _Entry(*row) for name, row in zip(names, rows, strict=True)}
        return {}

    def _name(self, file: Path) -> bytes:
        return os.fsencode(lasting_name(file).removeprefix(f"{self._parent}/"))
