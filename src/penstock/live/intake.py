"""`Intake`: shares an inlet between several pools; each file is listed, opened and indexed once."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import FormatError, PlanError
from penstock.formats.base.chunks import ChunkSource, Wanted, WantedOfEach
from penstock.live.chunk_sources import Inlet, Opened
from penstock.live.journal import Arrival
from penstock.live.splitter import ChunkSourceSplitter, ChunkSubset, SplitPart

PAUSE = 0.2  # seconds between two looks at what grows, where nothing tells of changes
REWRITTEN = "expected the file that was taken, got none, or one that was written anew"


class Subscriber(Protocol):
    """Subscriber of an intake: takes `wanted` chunks at the start, 0 for none; then, if `follows`, new chunks.

    `part` is the part of each source that it takes. `known` are the sources that a loaded state names, and `newest` is
    their greatest key; None if no state was loaded.
    """

    part: tuple[ChunkSourceSplitter, int] | None
    known: dict[str, Arrival] | None

    fail: Callable[[BaseException], None]

    @property
    def newest(self) -> str: ...  # noqa: D102  as said above

    @property
    def wanted(self) -> int: ...  # noqa: D102

    @property
    def follows(self) -> bool: ...  # noqa: D102

    def arrive(self, opened: list[Opened]) -> None:
        """Take new sources, in their order."""
        ...

    def lose(self, names: Collection[str], why: str) -> None:
        """Remove the sources of deleted files."""
        ...

    def miss(self, name: str, error: BaseException) -> None:
        """Count a new file that cannot be opened."""
        ...


class Intake:
    """Passes the sources of an `inlet` to all subscribers at once. Thread-safe.

    Subscribers share an open source. A subscriber does not get sources again that its loaded state names.
    """

    @staticmethod
    def of(given: Inlet | SplitPart) -> Intake:
        """Return the intake of an inlet, the same one for all callers."""
        inlet = given.inlet if isinstance(given, SplitPart) else given
        return vars(inlet).setdefault("_intake", Intake(inlet))

    def __init__(self, inlet: Inlet) -> None:
        self.inlet = inlet
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._shared = _Table()
        self._begun = self._is_shared = False
        self._stopping = threading.Event()
        self._feeder: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        """Whether the existing sources were passed on."""
        return self._begun

    def join(self, subscriber: Subscriber) -> Callable[[Arrival], ChunkSource]:
        """Add a subscriber; return its function to reopen sources. Raises `PlanError` once the intake has begun."""
        with self._lock:
            if self._begun:
                raise PlanError("expected all pipelines of an inlet to be made before one is started, got one later")
            self._subscribers.append(subscriber)
            self._is_shared = len(self._subscribers) > 1 or subscriber.part is not None
        return functools.partial(self._open, subscriber.part)

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber; without subscribers the intake ends."""
        with self._lock:
            self._subscribers = [other for other in self._subscribers if other is not subscriber]
            last = not self._subscribers
            self._begun = self._begun or last
        if last:
            self._stopping.set()
            if self._feeder is not None:
                self._feeder.join()
            self.inlet.close()

    def begin(self) -> None:
        """Pass the existing sources to the subscribers, once."""
        with self._lock:
            subscribers = [subscriber for subscriber in self._subscribers if subscriber.wanted]
            if self._begun or not subscribers:
                return
            self._begun = True
            self._resume(subscribers)
            if self._is_shared:
                self._begin_shared(subscribers)
            else:
                _arrive(
                    subscribers[0],
                    [each for each in self.inlet.begin(subscribers[0].wanted) if _is_news(subscribers[0], each[0])],
                )
            self._report_unopened(subscribers)

    def _begin_shared(self, subscribers: list[Subscriber]) -> None:
        """Open the newest sources until every subscriber has enough."""
        left, given = [subscriber.wanted for subscriber in subscribers], [list[Opened]() for _ in subscribers]
        with contextlib.closing(self.inlet.newest()) as newest:
            for arrival, source in newest:
                held = self._shared.add(arrival, source)
                for i, subscriber in enumerate(subscribers):
                    if left[i] > 0 and _is_news(subscriber, arrival):
                        given[i] += _part_for(subscriber, arrival, held)
                    left[i] -= _count(held, subscriber)
                held.close()
                if max(left) <= 0:
                    break
        for subscriber, mine in zip(subscribers, given, strict=True):
            _arrive(subscriber, mine[::-1])

    def poll(self) -> int:
        """Pass new sources on; return how many."""
        with self._lock:
            opened, followers = self.inlet.poll(), [each for each in self._subscribers if each.follows]
            if lost := frozenset(self.inlet.lost()):
                for subscriber in self._subscribers:
                    subscriber.lose(lost, REWRITTEN)
            held = [(each, self._shared.add(each, source) if self._is_shared else source) for each, source in opened]
            for subscriber in followers:
                mine = [_part_for(subscriber, *each) for each in held if _is_unknown(subscriber, each[0])]
                _arrive(subscriber, [each for one in mine for each in one])
            for _, source in held if self._is_shared else ():
                source.close()
            self._report_unopened(followers)
            return len(opened)

    def _report_unopened(self, subscribers: list[Subscriber]) -> None:
        """Report files that cannot be opened; of several parts, to the part of the first chunk."""
        for name, error in self.inlet.unopened():
            for subscriber in subscribers:
                if subscriber.part is None or subscriber.part[0].parts(name, 1)[0] == subscriber.part[1]:
                    subscriber.miss(name, error)

    def follow(self) -> None:
        """Take new sources in a thread, until the last subscriber leaves."""
        with self._lock:
            if self._feeder is None:
                self._feeder = threading.Thread(target=self._feed, daemon=True)
                self._feeder.start()

    def _feed(self) -> None:
        try:
            while not self._stopping.is_set():
                self.poll()
                self.inlet.wait(PAUSE)
        except BaseException as error:  # noqa: BLE001  handed to whoever waits for a batch
            for subscriber in list(self._subscribers):
                subscriber.fail(error)

    def _resume(self, subscribers: list[Subscriber]) -> None:
        """Pass the sources that all subscribers know to the inlet; others come again, and who knows them skips them."""
        if all(subscriber.known is None for subscriber in subscribers):
            return
        newest = min(subscriber.newest for subscriber in subscribers)
        latest = min(_latest(subscriber) for subscriber in subscribers)
        known = {name: arrival for subscriber in subscribers for name, arrival in (subscriber.known or {}).items()}
        below = [each for each in known.values() if each.key <= newest and each.mtime_ns <= latest]
        self.inlet.resume(below, newest)

    def _open(self, part: tuple[ChunkSourceSplitter, int] | None, arrival: Arrival) -> ChunkSource:
        """Open a source again, for one subscriber. Raises what the inlet raises."""
        if not self._is_shared:
            return self.inlet.open(arrival)
        held = self._shared.find(arrival)
        if held is None:
            held = self._shared.add(arrival, self.inlet.open(arrival))
        return _view(held, part)


class _Table:
    """Open sources by identity; each is closed after its last user."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[tuple[str, int, int], _Shared] = {}

    def find(self, arrival: Arrival) -> _SharedSource | None:
        """Add a user; None if the source is not open."""
        with self._lock:
            shared = self._open.get(_identity(arrival))
            return None if shared is None else self.hold(shared)

    def add(self, arrival: Arrival, source: ChunkSource) -> _SharedSource:
        """Add an opened source and a user; if another thread has opened it already, share that one."""
        with self._lock:
            shared = self._open.setdefault(_identity(arrival), _Shared(_identity(arrival), source))
            held = self.hold(shared)
        if shared.source is not source:
            source.close()
        return held

    def hold(self, shared: _Shared) -> _SharedSource:
        with self._lock:
            shared.holders += 1
        return _SharedSource(self, shared)

    def release(self, shared: _Shared) -> None:
        with self._lock:
            shared.holders -= 1
            last = shared.holders == 0
            if last:
                self.forget(shared)
        if last:
            shared.source.close()

    def forget(self, shared: _Shared) -> None:
        """Remove a source that is closed or unreadable, so that the next user opens it again."""
        with self._lock:
            if self._open.get(shared.identity) is shared:
                del self._open[shared.identity]


class _Shared:
    def __init__(self, identity: tuple[str, int, int], source: ChunkSource) -> None:
        self.identity, self.source, self.holders = identity, source, 0
        self._parts: dict[ChunkSourceSplitter, npt.NDArray[np.int64]] = {}

    def places(self, splitter: ChunkSourceSplitter, index: int) -> npt.NDArray[np.int64]:
        """Return the chunks of a part; hashes are cached for other parts."""
        parts = self._parts.get(splitter)
        if parts is None:
            parts = self._parts[splitter] = splitter.parts_of(self.source)
        return np.flatnonzero(parts == index)

    def lost(self, splitter: ChunkSourceSplitter, index: int) -> int:
        """Return how many chunks a part has lost."""
        return int(np.count_nonzero(splitter.lost_of(self.source) == index))


class _SharedSource(ChunkSource):
    """One user of a shared source."""

    def __init__(self, table: _Table, shared: _Shared) -> None:
        self.key, self.torn, self.shared, self._table = shared.source.key, shared.source.torn, shared, table
        self._is_open = True

    def __len__(self) -> int:
        return len(self.shared.source)

    @property
    def expected(self) -> int:
        return self.shared.source.expected

    def load(self, i: int, wanted: Wanted | None = None) -> npt.NDArray[np.uint8]:
        try:
            return self.shared.source.load(i, wanted)
        except OSError:
            self._table.forget(self.shared)
            raise

    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[npt.NDArray[np.uint8] | None]:
        return self.shared.source.load_some(chunks, wanted)

    def again(self) -> _SharedSource:
        """Add a user."""
        return self._table.hold(self.shared)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._table.release(self.shared)


def _count(held: _SharedSource, subscriber: Subscriber) -> int:
    """Return how many chunks of a source are for a subscriber."""
    return len(held) if subscriber.part is None else len(held.shared.places(*subscriber.part))


def _part_for(subscriber: Subscriber, arrival: Arrival, source: ChunkSource) -> list[Opened]:
    """Return the part of a new source for a subscriber: one source, or none."""
    if not isinstance(source, _SharedSource):
        return [(arrival, source)]
    count = _count(source, subscriber)
    if not count and subscriber.part is not None and source.shared.lost(*subscriber.part):
        subscriber.miss(arrival.name, FormatError(source.torn or "expected chunks, got none"))
    return [(replace(arrival, count=count), _view(source.again(), subscriber.part))] if count else []


def _view(held: _SharedSource, part: tuple[ChunkSourceSplitter, int] | None) -> ChunkSource:
    """Return a subscriber's part of a source."""
    return held if part is None else ChunkSubset(held, held.shared.places(*part), held.shared.lost(*part))


def _arrive(subscriber: Subscriber, opened: list[Opened]) -> None:
    if opened:
        subscriber.arrive(opened)


def _identity(arrival: Arrival) -> tuple[str, int, int]:
    return arrival.name, arrival.size, arrival.mtime_ns


def _latest(subscriber: Subscriber) -> int:
    return max((arrival.mtime_ns for arrival in (subscriber.known or {}).values()), default=0)


def _is_unknown(subscriber: Subscriber, arrival: Arrival) -> bool:
    """Return whether a source is missing in the loaded state."""
    known = None if subscriber.known is None else subscriber.known.get(arrival.name)
    return known is None or _identity(known) != _identity(arrival)


def _is_news(subscriber: Subscriber, arrival: Arrival) -> bool:
    """Return whether an existing source is later than a loaded state, by its key or its time."""
    if subscriber.known is None:
        return True
    later = arrival.key > subscriber.newest or arrival.mtime_ns > _latest(subscriber)
    return later and _is_unknown(subscriber, arrival)
