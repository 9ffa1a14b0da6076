"""`ChunkCatalog`: loads the frames of a chunk by its number and reopens sources if needed."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import FormatError
from penstock.flow.metrics import idle
from penstock.flow.queue import SLICE, QueueClosed
from penstock.formats.base.chunks import ChunkSource, Wanted, WantedOfEach
from penstock.live.journal import Arrival

AGAIN = 3  # attempts after one that failed; so many renames of a file may fall into one read


class Outage(Protocol):
    """Place of files that may be unavailable for a while."""

    def outage(self) -> str:
        """Return why files cannot be read at present; empty if they can."""
        ...

    def wait_for_files(self, timeout: float) -> None:
        """Wait until files can be read, or `timeout` seconds."""
        ...


class SourceGone(FormatError):
    """The file of a chunk was deleted or replaced."""

    reason = "gone"


def may_pass(error: BaseException) -> bool:
    """Return whether reading again may help: the system failed to read, and the data are not wrong.

    >>> may_pass(OSError("input/output error")), may_pass(FormatError("expected a checksum, got another"))
    (True, False)
    """
    return isinstance(error, OSError) or getattr(error, "reason", None) == "io"


@dataclass(slots=True, eq=False)
class _CatalogEntry:
    lo: int
    arrival: Arrival
    source: ChunkSource | None = None
    users: int = 0
    left: bool = False
    lost: str = ""
    opening: threading.Lock = field(default_factory=threading.Lock)


class ChunkCatalog:
    """Maps chunk numbers to sources, and opens sources when they are read, at most `limit` at a time.

    `opened` opens the source of an arrival, and raises what is wrong with it; `on_open` is called with the first number
    and the source whenever one is opened. A source that `left` the window stays known, as frames that were taken from
    it may have to be read again, until `forget`. With an `outage`, what cannot be read while that says why is waited
    for, until it says nothing or the catalog is closed. Thread-safe.

    >>> class Letters(ChunkSource):
    ...     key = "a"
    ...     def __len__(self):
    ...         return 3
    ...     def load(self, i, wanted=None):
    ...         return np.array([[97 + i]], np.uint8)
    >>> catalog = ChunkCatalog(lambda arrival: Letters())
    >>> catalog.placed(10, Arrival("letters", "a", 3))
    >>> bytes(catalog.load(11)), catalog.name(11)
    (b'b', 'letters#1')
    """

    def __init__(
        self,
        opened: Callable[[Arrival], ChunkSource],
        limit: int = 1 << 16,
        *,
        on_open: Callable[[int, ChunkSource], None] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._opened, self._limit, self._on_open, self._outage = opened, limit, on_open, outage
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

    def placed(self, lo: int, arrival: Arrival) -> None:
        """Register a source whose chunks have the numbers from `lo` on."""
        with self._lock:
            held = _CatalogEntry(lo, arrival, self._ready.pop(arrival.name, None))
            if lo not in self._held:
                insort(self._los, lo)
            self._held[lo] = held
            if held.source is not None:
                self._open[lo] = held
        if held.source is not None and self._on_open is not None:
            self._on_open(lo, held.source)
        self._shrink()

    def left(self, lo: int) -> None:
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
                held.source.close()

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
        if self._outage is None or not (may_pass(error) or isinstance(error, SourceGone)) or not self._outage.outage():
            return False
        with idle():
            while not self._closed:
                self._outage.wait_for_files(SLICE)
                if not self._outage.outage():
                    return True
        raise QueueClosed("nothing more is read: the catalog is closed")

    def _load(self, number: int, wanted: Wanted | None) -> npt.NDArray[np.uint8]:
        held = self._find(number)
        with self._lock:
            held.users += 1
        try:
            for _ in range(AGAIN):
                try:
                    return self._source(held).load(number - held.lo, wanted)
                except (OSError, FormatError) as error:
                    if not may_pass(error):
                        raise
                    self._drop(held)  # it may have been renamed: opening it again may find it
            return self._source(held).load(number - held.lo, wanted)
        finally:
            with self._lock:
                held.users -= 1
            self._shrink()

    def load_some(self, numbers: Sequence[int], wanted: WantedOfEach) -> list[npt.NDArray[np.uint8] | None]:
        """Return a few frames of each of several chunks, as `ChunkSource.load_some`; None where `load` must be used."""
        found: list[npt.NDArray[np.uint8] | None] = [None] * len(numbers)
        groups = self._used(numbers)
        try:
            for held, places in groups:
                chunks, of = [numbers[at] - held.lo for at in places], places
                try:
                    rows = self._source(held).load_some(chunks, lambda k, n, of=of: wanted(of[k], n))
                except Exception:  # noqa: BLE001  `load` meets it again, and says of each chunk what is wrong
                    continue
                for at, each in zip(places, rows, strict=True):
                    found[at] = each
        finally:
            with self._lock:
                for held, _ in groups:
                    held.users -= 1
            self._shrink()
        return found

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
            source.close()

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
                source = self._opened(held.arrival)
                if len(source) != held.arrival.count:
                    source.close()
                    message = f"expected {held.arrival.count} chunks as before, got {len(source)}"
                    raise SourceGone(message, path=held.arrival.name)
                held.source = source
                if self._on_open is not None:
                    self._on_open(held.lo, source)
            with self._lock:
                self._open[held.lo] = held
                self._open.move_to_end(held.lo)
                if held.left:
                    self._leaving[held.lo] = held
            return source

    def _drop(self, held: _CatalogEntry) -> None:
        """Reopen a source at its next use. It is not closed, because other threads may read it."""
        with held.opening, self._lock:
            if held.lo in self._open:
                self._forget_open(held)

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
            source.close()

    def _forget_open(self, held: _CatalogEntry) -> ChunkSource:
        source, held.source = held.source, None
        del self._open[held.lo]
        self._leaving.pop(held.lo, None)
        assert source is not None, "what is in _open is open"
        return source
