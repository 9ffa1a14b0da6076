"""`ChunkCatalog`: loads the frames of a chunk by its number and reopens sources if needed.

Entries are found by the first number of their source. An entry has at most one open source, which the intake counts and
closes after its last user; of a stream that reads a part of each source, it has the index of that part. A source that
cannot be read is dropped: the next read opens the file again, which may have been renamed, and the dropped source is
closed once no thread of this catalog reads it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from penstock.errors import FormatError
from penstock.flow.metrics import idle
from penstock.flow.queue import SLICE, QueueClosed
from penstock.formats.base.chunks import ChunkSource, Wanted, WantedOfEach
from penstock.live.events import EventLog, SourceOpened
from penstock.live.failures import SourceGone, may_pass
from penstock.live.intake import Intake
from penstock.live.journal import Arrival
from penstock.live.splitter import SplitPart

Int = npt.NDArray[np.int64]

AGAIN = 3  # attempts after one that failed; so many renames of a file may fall into one read


@dataclass(slots=True, eq=False)
class _CatalogEntry:
    lo: int
    arrival: Arrival
    source: ChunkSource | None = None
    chunks: Int | None = None  # of the source, which are those of the entry; None for all
    users: int = 0  # threads that read
    dropped: list[ChunkSource] = field(default_factory=list[ChunkSource])  # to be closed once there are none
    left: bool = False
    lost: str = ""
    opening: threading.Lock = field(default_factory=threading.Lock)

    def index(self, number: int) -> int:
        """Return the index of a chunk in the source."""
        return number - self.lo if self.chunks is None else int(self.chunks[number - self.lo])


class ChunkCatalog:
    """Maps chunk numbers to sources, and opens sources when they are read, at most `limit` at a time.

    The `intake` opens sources; of each, the chunks of `part` have numbers. `events` gets a `SourceOpened` for each. A
    source that left the window stays known until `forget`, because its frames may have to be read again. With `waits`,
    a read that fails in an outage of the intake waits for its end, or until the catalog is closed. Thread-safe.

    >>> import penstock
    >>> from penstock.live.source_chunks import EpisodeInlet
    >>> source = penstock.from_arrays({"letter": np.arange(97, 106, dtype=np.uint8)}, lengths=[2, 3, 4]).source
    >>> catalog = ChunkCatalog(Intake(EpisodeInlet(source, ["letter"])))
    >>> catalog.place(10, Arrival("episodes 0:3", "0", 3))
    >>> bytes(catalog.load(11)), catalog.name(11)
    (b'cde', 'episodes 0:3#1')
    """

    def __init__(
        self,
        intake: Intake,
        limit: int = 1 << 16,
        *,
        part: SplitPart | None = None,
        events: EventLog | None = None,
        waits: bool = False,
    ) -> None:
        self._intake = intake
        self._limit = limit
        self._part = part
        self._events = events
        self._waits = waits
        self._closed = False
        self._lock = threading.Lock()
        self._held: dict[int, _CatalogEntry] = {}
        self._los: list[int] = []
        self._ready: dict[str, ChunkSource] = {}  # opened before they have numbers
        self._open: OrderedDict[int, _CatalogEntry] = OrderedDict()
        self._leaving: dict[int, _CatalogEntry] = {}  # open, and no longer in the window

    def __len__(self) -> int:
        return len(self._held)

    @property
    def open_sources(self) -> int:
        """Number of open sources."""
        return len(self._open)

    def offer(self, arrival: Arrival, source: ChunkSource) -> None:
        """Register the open source of an arrival that is about to be placed."""
        with self._lock:
            self._ready[arrival.name] = source

    def place(self, lo: int, arrival: Arrival) -> None:
        """Register a source whose chunks have the numbers from `lo` on."""
        with self._lock:
            held = _CatalogEntry(lo, arrival)
            if lo not in self._held:
                insort(self._los, lo)
            self._held[lo] = held
            source = self._ready.pop(arrival.name, None)
            if source is not None:
                held.chunks = self._intake.chunks(source, self._part)
                held.source, self._open[lo] = source, held
        if source is not None:
            self._tell_opened(held, source)
        self._shrink()

    def leave(self, lo: int) -> None:
        """Mark a source as outside of the window: it is not drawn any more."""
        with self._lock:
            held = self._held[lo]
            held.left = True
            if lo in self._open:
                self._leaving[lo] = held
        self._shrink()

    def lose(self, names: Collection[str], why: str) -> list[int]:
        """Make all chunks of the named sources fail from now on. Return the first number of each source."""
        with self._lock:
            lost = [held for held in self._held.values() if held.arrival.name in names]
            for held in lost:
                held.lost = why
            return [held.lo for held in lost]

    def forget(self, below: int) -> None:
        """Forget sources that left and whose numbers are all below `below`."""
        with self._lock:
            gone = [lo for lo in self._los if self._held[lo].left and lo + self._held[lo].arrival.count <= below]
            closing = [self._held.pop(lo) for lo in gone]
            self._los = sorted(self._held)
            for held in closing:
                self._open.pop(held.lo, None)
                self._leaving.pop(held.lo, None)
        for held in closing:
            if held.source is not None:
                self._intake.close(held.source)

    def sources_that_left(self) -> list[tuple[int, Arrival]]:
        """Return the first number and description of each source that left and is not forgotten."""
        with self._lock:
            return [(lo, self._held[lo].arrival) for lo in self._los if self._held[lo].left]

    def name(self, number: int) -> str:
        """Return the display name of a chunk: the name of its file, and its index there."""
        held = self._find(number)
        return f"{held.arrival.name}#{number - held.lo}"

    def load(self, number: int, wanted: Wanted | None = None) -> npt.NDArray[np.uint8]:
        """Return `[n, width]` frames; with `wanted`, only these. Reads that the system fails are retried three times.

        During an outage, `load` waits.

        Raises what the source raises, `SourceGone`, and `QueueClosed` once the catalog is closed in an outage.
        """
        while True:
            try:
                return self._load(number, wanted)
            except (OSError, FormatError) as error:
                if not self._was_outage(error):
                    raise

    def _was_outage(self, error: OSError | FormatError) -> bool:
        """Wait for the end of an outage; return whether there was one."""
        inlet = self._intake.inlet
        if not self._waits or not (may_pass(error) or isinstance(error, SourceGone)) or not inlet.outage():
            return False
        with idle():
            while not self._closed:
                inlet.wait_for_files(SLICE)
                if not inlet.outage():
                    return True
        raise QueueClosed("nothing more is read: the catalog is closed")

    def _load(self, number: int, wanted: Wanted | None) -> npt.NDArray[np.uint8]:
        held = self._find(number)
        with self._lock:
            held.users += 1
        try:
            for _ in range(AGAIN):
                try:
                    return self._source(held).load(held.index(number), wanted)
                except (OSError, FormatError) as error:
                    if not may_pass(error):
                        raise
                    self._drop(held)  # it may have been renamed: opening it again may find it
            return self._source(held).load(held.index(number), wanted)
        finally:
            self._end_use([held])

    def load_some(self, numbers: Sequence[int], wanted: WantedOfEach) -> list[npt.NDArray[np.uint8] | None]:
        """Return a few frames of each of several chunks, as `ChunkSource.load_some`; None where `load` must be used."""
        found: list[npt.NDArray[np.uint8] | None] = [None] * len(numbers)
        groups = self._used(numbers)
        try:
            for held, places in groups:
                of = places
                try:
                    source = self._source(held)
                    chunks = [held.index(numbers[at]) for at in places]
                    rows = source.load_some(chunks, lambda k, n, of=of: wanted(of[k], n))
                except Exception:  # noqa: BLE001  `load` meets it again, and says of each chunk what is wrong
                    continue
                for at, each in zip(places, rows, strict=True):
                    found[at] = each
        finally:
            self._end_use([held for held, _ in groups])
        return found

    def _end_use(self, entries: list[_CatalogEntry]) -> None:
        """Count one reader less of each entry, and close sources that nobody needs open."""
        closing: list[ChunkSource] = []
        with self._lock:
            for held in entries:
                held.users -= 1
                if held.users == 0 and held.dropped:
                    closing += held.dropped
                    held.dropped = []
        for source in closing:
            self._intake.close(source)
        self._shrink()

    def _used(self, numbers: Sequence[int]) -> list[tuple[_CatalogEntry, list[int]]]:
        """Return the source of each number, counted as used, with the indices of its numbers."""
        groups: dict[int, tuple[_CatalogEntry, list[int]]] = {}
        with self._lock:
            for place, number in enumerate(numbers):
                at = bisect_right(self._los, number) - 1
                held = self._held[self._los[at]] if at >= 0 else None
                if held is not None and number < held.lo + held.arrival.count:
                    groups.setdefault(held.lo, (held, []))[1].append(place)
            for held, _ in groups.values():
                held.users += 1
        return list(groups.values())

    def stop_waiting(self) -> None:
        """Cancel reads that wait for the end of an outage."""
        self._closed = True

    def close(self) -> None:
        """Close all sources."""
        self.stop_waiting()
        with self._lock:
            sources = [held.source for held in self._open.values() if held.source is not None]
            sources += self._ready.values()
            self._open.clear()
            self._leaving.clear()
            self._ready.clear()
            for held in self._held.values():
                held.source = None
        for source in sources:
            self._intake.close(source)

    def _find(self, number: int) -> _CatalogEntry:
        with self._lock:
            at = bisect_right(self._los, number) - 1
            held = self._held[self._los[at]] if at >= 0 else None
        if held is None or number >= held.lo + held.arrival.count:
            raise SourceGone(f"expected chunk {number} to be of a known source, got none")
        return held

    def _source(self, held: _CatalogEntry) -> ChunkSource:
        with held.opening:
            if held.lost:
                raise SourceGone(held.lost, path=held.arrival.name)
            source = held.source
            if source is None:
                source = self._intake.open(held.arrival)
                chunks = self._intake.chunks(source, self._part)
                count = len(source) if chunks is None else len(chunks)
                if count != held.arrival.count:
                    self._intake.close(source)
                    message = f"expected {held.arrival.count} chunks as before, got {count}"
                    raise SourceGone(message, path=held.arrival.name)
                held.chunks, held.source = chunks, source
                self._tell_opened(held, source)
            with self._lock:
                self._open[held.lo] = held
                self._open.move_to_end(held.lo)
                if held.left:
                    self._leaving[held.lo] = held
            return source

    def _tell_opened(self, held: _CatalogEntry, source: ChunkSource) -> None:
        if self._events is not None:
            self._events.append(SourceOpened(held.lo, self._intake.lost(source, self._part)))

    def _drop(self, held: _CatalogEntry) -> None:
        """Reopen a source at its next use."""
        with held.opening, self._lock:
            if held.lo in self._open:
                source = self._forget_open(held)
                held.dropped.append(source)
                self._intake.discard(source)

    def _shrink(self) -> None:
        """Close sources that left, and the least recently used ones above the limit, unless they are being read."""
        if len(self._open) <= self._limit and not self._leaving:
            return
        with self._lock:
            over = len(self._open) - self._limit
            idle = (held for held in self._open.values() if held.users == 0)
            chosen = [*(held for held in self._leaving.values() if held.users == 0), *islice(idle, max(over, 0))]
            closing = [self._forget_open(held) for held in chosen if held.lo in self._open]
        for source in closing:
            self._intake.close(source)

    def _forget_open(self, held: _CatalogEntry) -> ChunkSource:
        source, held.source = held.source, None
        del self._open[held.lo]
        self._leaving.pop(held.lo, None)
        assert source is not None, "what is in _open is open"
        return source
