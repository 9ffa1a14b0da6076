"""`ReplayFolder`: the column store of a replay, which collectors append to and a replay follows.

With `keep_steps`, old episodes leave the folder: see `penstock.formats.columns.retention`. Reading can fall behind so
far that the next episodes have left. They would also have left the memory of the replay, because a folder keeps at
least what fits in memory, so the replay begins again behind them (`ReplayFolder.begin`), with the numbers that it would
have reached by reading them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import StateError
from penstock.formats.columns.layout import SPEC
from penstock.formats.columns.retention import Retention
from penstock.formats.columns.source import EpisodeTail
from penstock.formats.columns.writer import ColumnsWriter
from penstock.kernels.replay import EPISODE
from penstock.replay.contents import ReplayContents
from penstock.replay.segments import SegmentStore


def live_range(lengths: IntArray, capacity: int) -> int:
    """Return the number of the oldest episode that has a sample in memory after so many whole episodes."""
    ends = np.cumsum(lengths)
    return int(np.searchsorted(ends, max(0, int(ends[-1]) - capacity), side="right")) if len(ends) else 0


class ReplayFolder:
    """Reader and writer of the folder of a replay."""

    def __init__(self, path: Path, keep_steps: int | None) -> None:
        self.path = path
        self.keep_steps = keep_steps
        self.loaded = False  # whether the episodes of the folder were read
        self._tail: EpisodeTail | None = None
        self._writer: ColumnsWriter | None = None
        self._retention: Retention | None = None
        self._since_trim: int | None = None  # steps; None before the first removal
        self.open()

    @property
    def written(self) -> int:
        """Episodes in the folder, 0 if it is missing."""
        return 0 if self._tail is None else self._tail.written()

    def open(self) -> EpisodeTail | None:
        """Return the reader, or None while the folder is missing."""
        if self._tail is None and (self.path / SPEC).exists():
            self._tail = EpisodeTail(self.path)
            if self.keep_steps is not None:
                self._retention = Retention.begin(self.path, self.keep_steps)
        return self._tail

    def has_news(self) -> bool:
        """Return whether there are episodes that were not read. Cost: one `stat`."""
        tail = self.open()
        return tail is not None and (not self.loaded or tail.written() > tail.done)

    def begin(self, contents: ReplayContents, episodes: int | None) -> None:
        """Prepare an empty store for the first episodes of the folder, without episodes that would have left."""
        tail = self._tail
        if tail is None:
            return
        if contents.stepped and contents.store is not None:  # its steps stay, and episodes of others come after them
            lost = tail.first_kept() if self.loaded else 0
            contents.store.arrived = max(contents.store.arrived, lost)
            tail.skip(contents.store.arrived)
            self.loaded = True
            return
        share = contents.share
        lengths = tail.lengths()[:episodes][share.index :: share.count]
        first = live_range(lengths, contents.capacity)
        kept = -(-max(tail.first_kept() - share.index, 0) // share.count)
        if first < kept and episodes is not None:
            raise StateError(
                f"expected all episodes from number {first * share.count} on in {self.path}, got a folder that keeps "
                f"episodes from number {tail.first_kept()} on; raise keep_steps, or save states more often"
            )
        first = max(first, kept)
        contents.begin(tail.spec, first * share.count, lengths[:first])
        tail.skip(first * share.count)
        self.loaded = True

    def begin_again(self, contents: ReplayContents, episodes: int) -> Iterator[Episode]:
        """Prepare an empty store, and yield the episodes that were in memory after so many."""
        self._tail = None
        tail = self.open()
        if tail is None:
            raise StateError(f"expected the store of the saved run, with {episodes} episodes, got none at {self.path}")
        contents.restart()
        self.begin(contents, episodes)
        yield from tail.read(episodes)

    def fill(self, store: SegmentStore, pieces: IntArray, episodes: int) -> None:
        """Read the rows of pieces of episodes of the folder, of which so many had arrived."""
        self._tail = None
        tail = self.open()
        if tail is None:
            raise StateError(f"expected the store of the saved run, with {episodes} episodes, got none at {self.path}")
        numbers = store.table[pieces, EPISODE]
        first = int(numbers.min(initial=episodes))
        last = max(int(numbers.max(initial=-1)) + 1, episodes)
        if first < tail.first_kept() or tail.written() < last:
            raise StateError(
                f"expected the episodes {first}:{last} in {self.path}, got a folder with those from "
                f"{tail.first_kept()} to {tail.written()}; raise keep_steps, or save states more often"
            )
        tail.skip(first)
        for number, episode in enumerate(tail.read(last), first):
            store.fill_from(pieces[numbers == number], episode)
        tail.skip(episodes)
        self.loaded = True

    def read(self, end: int | None = None) -> Iterator[Episode]:
        """Yield the episodes that were not read."""
        if self._tail is not None:
            yield from self._tail.read(end)

    def trim(self, steps: int) -> None:
        """Count steps that arrived, and remove files of old episodes when enough have come since the last time."""
        if self._retention is None:
            return
        if self._since_trim is None or self._since_trim + steps >= self._retention.segment_steps:
            self._retention.trim()
            self._since_trim = 0
            return
        self._since_trim += steps

    def lengths(self) -> IntArray:
        """Return the steps of all episodes that the folder ever had, `[n]` int64."""
        return np.zeros(0, np.int64) if self._tail is None else self._tail.lengths()

    def writer(self, spec: Spec) -> ColumnsWriter:
        """Return the writer of the folder, which is made if it is missing."""
        if self._writer is None:
            exists = (self.path / SPEC).exists()
            if not exists:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = ColumnsWriter(self.path) if exists else ColumnsWriter.create(self.path, spec)
            self.open()
        return self._writer

    def close(self) -> None:
        """Flush and close the files of the writer."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
