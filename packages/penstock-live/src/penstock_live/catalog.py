"""`ChunkCatalog`: table of the sources of a stream by the numbers of their chunks, and which of them are open.

Entries are found by the first number of their source. An entry has at most one open source, which the intake counts and
closes after its last user; of a stream that reads a part of each source, it has the index of that part. A source that
cannot be read is dropped: the next read opens the file again, which may have been renamed, and the dropped source is
closed once no thread of this catalog reads it. The catalog reads no frames: `ChunkLoader` does.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock_live.account import SourceGone
from penstock_live.chunk_source import FrameTable
from penstock_live.events import EventLog, SourceOpened
from penstock_live.intake import Intake
from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource
from penstock_live.splitter import SplitPart

Int = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class CatalogEntry:
    """Source whose chunks have the numbers from `lo` on, open or not."""

    lo: int
    arrival: Arrival
    source: OpenSource | None = None
    chunks: Int | None = None  # of the source that the entry has; None for all
    users: int = 0  # threads that read
    dropped: list[OpenSource] = field(default_factory=list[OpenSource])  # to be closed once there are none
    left: bool = False
    lost: str = ""
    opening: threading.Lock = field(default_factory=threading.Lock)

    def index(self, number: int) -> int:
        return number - self.lo if self.chunks is None else int(self.chunks[number - self.lo])


class TableRun(NamedTuple):
    """Chunks `lo : hi` that have the numbers `lo + shift : hi + shift` in a table."""

    lo: int
    hi: int
    shift: int
    table: FrameTable


class ChunkCatalog:
    """Maps chunk numbers to sources, and opens sources when they are used, at most `limit` at a time.

    The `intake` opens sources; of each, the chunks of `part` have numbers. `events` gets a `SourceOpened` for each. A
    source that left the window stays known until `forget`, because its frames may have to be read again. Thread-safe.
    """

    def __init__(
        self,
        intake: Intake,
        limit: int = 1 << 16,
        *,
        part: SplitPart | None = None,
        events: EventLog | None = None,
    ) -> None:
        self.intake = intake
        self._limit = limit
        self._part = part
        self._events = events
        self._lock = threading.Lock()
        self._entries: dict[int, CatalogEntry] = {}
        self._los: list[int] = []
        self._ready: dict[str, OpenSource] = {}  # opened before they have numbers
        self._open: OrderedDict[int, CatalogEntry] = OrderedDict()
        self._leaving: dict[int, CatalogEntry] = {}  # open, and no longer in the window
        self._runs: list[TableRun] = []  # of chunks of whole sources, by their numbers

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def open_sources(self) -> int:
        return len(self._open)

    def offer(self, arrival: Arrival, source: OpenSource) -> None:
        """Register the open source of an arrival that is about to be placed."""
        with self._lock:
            self._ready[arrival.name] = source

    def place(self, lo: int, arrival: Arrival) -> None:
        """Register a source whose chunks have the numbers from `lo` on."""
        with self._lock:
            entry = CatalogEntry(lo, arrival)
            if lo not in self._entries:
                insort(self._los, lo)
            self._entries[lo] = entry
            source = self._ready.pop(arrival.name, None)
            if source is not None:
                entry.chunks = source.chunks(self._part)
                entry.source, self._open[lo] = source, entry
                self._add_run(entry, source)
        if source is not None:
            self._tell_opened(entry, source)
        self._shrink()

    def leave(self, lo: int) -> None:
        """Mark a source as outside of the window: it is not drawn any more."""
        with self._lock:
            entry = self._entries[lo]
            entry.left = True
            if lo in self._open:
                self._leaving[lo] = entry
        self._shrink()

    def lose(self, names: Collection[str], why: str) -> list[int]:
        """Make all chunks of the named sources fail from now on. Return the first number of each source."""
        with self._lock:
            lost = [entry for entry in self._entries.values() if entry.arrival.name in names]
            for entry in lost:
                entry.lost = why
            self._runs.clear()
            return [entry.lo for entry in lost]

    def forget(self, below: int) -> None:
        """Forget sources that left and whose numbers are all below `below`."""
        with self._lock:
            gone = [lo for lo in self._los if self._entries[lo].left and lo + self._entries[lo].arrival.count <= below]
            closing = [self._entries.pop(lo) for lo in gone]
            self._los = sorted(self._entries)
            for entry in closing:
                self._open.pop(entry.lo, None)
                self._leaving.pop(entry.lo, None)
        for entry in closing:
            if entry.source is not None:
                self.intake.close(entry.source)

    def sources_that_left(self) -> list[tuple[int, Arrival]]:
        """Return the first number and description of each source that left and is not forgotten."""
        with self._lock:
            return [(lo, self._entries[lo].arrival) for lo in self._los if self._entries[lo].left]

    def name(self, number: int) -> str:
        """Return the display name of a chunk: the name of its file, and its index there."""
        entry = self._find(number)
        return f"{entry.arrival.name}#{number - entry.lo}"

    def acquire(self, number: int) -> CatalogEntry:
        """Return the entry of a chunk, which has one reader more until `release`."""
        entry = self._find(number)
        with self._lock:
            entry.users += 1
        return entry

    def acquire_some(self, numbers: Sequence[int]) -> list[tuple[CatalogEntry, list[int]]]:
        """Return the entries of several chunks, as `acquire`, each with the indices of its numbers.

        Unknown numbers are left out.
        """
        groups: dict[int, tuple[CatalogEntry, list[int]]] = {}
        with self._lock:
            for place, number in enumerate(numbers):
                position = bisect_right(self._los, number) - 1
                entry = self._entries[self._los[position]] if position >= 0 else None
                if entry is not None and number < entry.lo + entry.arrival.count:
                    groups.setdefault(entry.lo, (entry, []))[1].append(place)
            for entry, _ in groups.values():
                entry.users += 1
        return list(groups.values())

    def in_table(self, number: Int) -> tuple[FrameTable, Int] | None:
        """Return the table of the frames of chunks, and their numbers there; None if no table has all of them.

        Cost: independent of the number of chunks, if they are in one `TableRun`.
        """
        first, last = int(number.min()), int(number.max())
        with self._lock:
            run = self._runs[bisect_right(self._runs, first, key=_lo_of) - 1] if self._runs else None
        if run is not None and run.lo <= first and last < run.hi:
            return run.table, number + run.shift
        groups = self.acquire_some(number.tolist())
        try:
            chunks, tables = np.full(len(number), -1), set[FrameTable]()
            for entry, places in groups:
                if (table := self.source(entry).table) is None:
                    return None
                tables.add(table[0])
                chunks[places] = [table[1] + entry.index(int(number[place])) for place in places]
            return (tables.pop(), chunks) if len(tables) == 1 and chunks.min() >= 0 else None
        finally:
            self.release([entry for entry, _ in groups])

    def release(self, entries: Iterable[CatalogEntry]) -> None:
        """Count one reader less of each entry, and close sources that nobody needs open."""
        closing: list[OpenSource] = []
        with self._lock:
            for entry in entries:
                entry.users -= 1
                if entry.users == 0 and entry.dropped:
                    closing += entry.dropped
                    entry.dropped = []
        for source in closing:
            self.intake.close(source)
        self._shrink()

    def source(self, entry: CatalogEntry) -> OpenSource:
        """Return the open source of an acquired entry, and open it if needed."""
        with entry.opening:
            if entry.lost:
                raise SourceGone(entry.lost, path=entry.arrival.name)
            source = entry.source
            if source is None:
                source = self._reopened(entry)
            with self._lock:
                self._open[entry.lo] = entry
                self._open.move_to_end(entry.lo)
                if entry.left:
                    self._leaving[entry.lo] = entry
            return source

    def drop(self, entry: CatalogEntry) -> None:
        """Open the source of an entry again at its next use."""
        with entry.opening, self._lock:
            if entry.lo in self._open:
                source = self._forget_open(entry)
                entry.dropped.append(source)
                self.intake.discard(source)

    def close(self) -> None:
        with self._lock:
            sources = [entry.source for entry in self._open.values() if entry.source is not None]
            sources += self._ready.values()
            self._open.clear()
            self._leaving.clear()
            self._ready.clear()
            for entry in self._entries.values():
                entry.source = None
        for source in sources:
            self.intake.close(source)

    def _find(self, number: int) -> CatalogEntry:
        with self._lock:
            position = bisect_right(self._los, number) - 1
            entry = self._entries[self._los[position]] if position >= 0 else None
        if entry is None or number >= entry.lo + entry.arrival.count:
            raise SourceGone(f"expected chunk {number} to be of a known source, got none")
        return entry

    def _reopened(self, entry: CatalogEntry) -> OpenSource:
        source = self.intake.open(entry.arrival)
        count = source.count(self._part)
        if count != entry.arrival.count:
            self.intake.close(source)
            message = f"expected {entry.arrival.count} chunks as before, got {count}"
            raise SourceGone(message, path=entry.arrival.name)
        entry.chunks = source.chunks(self._part)
        entry.source = source
        with self._lock:
            self._add_run(entry, source)
        self._tell_opened(entry, source)
        return source

    def _add_run(self, entry: CatalogEntry, source: OpenSource) -> None:
        """Note where the chunks of a whole source are in its table, in one run with adjacent chunks."""
        if source.table is None or entry.chunks is not None:
            return
        table, first = source.table
        run = TableRun(entry.lo, entry.lo + entry.arrival.count, first - entry.lo, table)
        place = bisect_right(self._runs, run.lo, key=_lo_of)
        begin, end = max(place - 1, 0), place + 1
        apart: list[TableRun] = []
        for other in self._runs[begin:end]:
            if other[2:] == run[2:] and other.lo <= run.hi and run.lo <= other.hi:
                run = run._replace(lo=min(run.lo, other.lo), hi=max(run.hi, other.hi))
            else:
                apart.append(other)
        self._runs[begin:end] = sorted([*apart, run], key=_lo_of)

    def _tell_opened(self, entry: CatalogEntry, source: OpenSource) -> None:
        if self._events is not None:
            self._events.append(SourceOpened(entry.lo, source.lost(self._part)))

    def _shrink(self) -> None:
        """Close sources that left, and the least recently used ones above the limit, unless they are being read."""
        if len(self._open) <= self._limit and not self._leaving:
            return
        with self._lock:
            over = len(self._open) - self._limit
            idle = (entry for entry in self._open.values() if entry.users == 0)
            chosen = [*(entry for entry in self._leaving.values() if entry.users == 0), *islice(idle, max(over, 0))]
            closing = [self._forget_open(entry) for entry in chosen if entry.lo in self._open]
        for source in closing:
            self.intake.close(source)

    def _forget_open(self, entry: CatalogEntry) -> OpenSource:
        source, entry.source = entry.source, None
        del self._open[entry.lo]
        self._leaving.pop(entry.lo, None)
        assert source is not None, "what is in _open is open"
        return source


def _lo_of(run: TableRun) -> int:
    return run.lo
