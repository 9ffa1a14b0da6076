"""`OpenSource`: an open source of chunks, with the check of its file, its users and its parts.

An inlet makes it, an intake counts its users and closes it after the last, and the entries of catalogs refer to it. No
object wraps it again: the users are a number, and the chunks of a part are an index array.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock_live.account import SourceGone
from penstock_live.chunk_source import ChunkSource, FrameTable, Wanted, WantedOfEach
from penstock_live.journal import Arrival

Int = npt.NDArray[np.int64]
Check = Callable[[os.stat_result], None]


class Splitter(Protocol):
    """Assigns the chunks of each source to parts, as `ChunkSourceSplitter` does."""

    def parts_of(self, source: ChunkSource) -> Int:
        """Return `[n]` the part of each chunk."""
        ...

    def lost_of(self, source: ChunkSource) -> Int:
        """Return `[n]` the part that counts each lost chunk."""
        ...


class OwnedPart(Protocol):
    """A part of the chunks of all sources, such as a `SplitPart`."""

    @property
    def splitter(self) -> Splitter:
        """What assigns chunks to the part."""
        ...

    @property
    def index(self) -> int: ...


class OpenSource:
    """Open `source` of chunks that `arrival` describes. Reads may be called from any thread.

    With a `path` and a `check`, each read checks that the file is still the one that was taken, because a rewritten
    file would give other chunks. `users` is set by the intake.
    """

    def __init__(
        self, arrival: Arrival, source: ChunkSource, path: Path | None = None, check: Check | None = None
    ) -> None:
        self.arrival = arrival
        self.source = source
        self.users = 0
        self._path = path
        self._check = check
        self._seen: tuple[int, int] | None = None  # size and time at the last check
        self._parts: dict[Splitter, Int] = {}  # the part of each chunk

    def __len__(self) -> int:
        return len(self.source)

    @property
    def table(self) -> tuple[FrameTable, int] | None:
        """The table of its frames, as `ChunkSource.table`."""
        return self.source.table

    def load(self, i: int, wanted: Wanted | None = None) -> npt.NDArray[np.uint8]:
        """Return frames of a chunk, as `ChunkSource.load`."""
        if self._path is not None and not modes.S_ISREG(os.stat(self._path).st_mode):
            # Opening a pipe would wait for its writer.
            raise SourceGone("expected a file as it was before, got something else", path=self._path)
        try:
            return self.source.load(i, wanted)
        finally:
            self._check_file()

    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[npt.NDArray[np.uint8] | None]:
        """Return a few frames of each of several chunks, as `ChunkSource.load_some`. Raises as `load`."""
        frames = self.source.load_some(chunks, wanted)
        self._check_file()  # once, after the last read: if the file has changed, no chunk is returned
        return frames

    def _check_file(self) -> None:
        if self._path is None or self._check is None:
            return
        stat = os.stat(self._path)
        seen = (stat.st_size, stat.st_mtime_ns)
        if seen != self._seen:
            self._check(stat)
            self._seen = seen

    def chunks(self, part: OwnedPart | None) -> Int | None:
        """Return the index of each chunk that belongs to a part; None for all chunks. Hashes are cached."""
        if part is None:
            return None
        if part.splitter not in self._parts:
            self._parts[part.splitter] = part.splitter.parts_of(self.source)
        return np.flatnonzero(self._parts[part.splitter] == part.index)

    def count(self, part: OwnedPart | None) -> int:
        """Return the number of chunks of a part."""
        chunks = self.chunks(part)
        return len(self) if chunks is None else len(chunks)

    def lost(self, part: OwnedPart | None) -> int:
        """Return how many chunks damage took from the source, or from the part of it."""
        if part is None:
            return self.source.expected - len(self)
        return int(np.count_nonzero(part.splitter.lost_of(self.source) == part.index))
