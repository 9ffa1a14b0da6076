"""`Intake`: shares an inlet between several streams; each file is listed, opened and indexed once.

Each stream gets events: the sources that arrived, the files that were deleted, the files that cannot be opened. A
source that several streams read is open once. `open` and `close` count its users; no object wraps it for a stream.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from penstock.errors import FormatError, PlanError
from penstock_live.chunk_sources import Inlet
from penstock_live.events import Event, EventLog, FileFailed, FilesDeleted, IntakeFailed, SourcesArrived
from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource
from penstock_live.splitter import SplitPart

Identity = tuple[str, int, int]  # of a file: name, size, time of its last change

PAUSE = 0.2  # seconds between two looks at what grows, where nothing tells of changes
REWRITTEN = "expected the file that was taken, got none, or one that was written anew"


class Subscriber(Protocol):
    """Stream of an intake: takes `wanted` chunks at the start, 0 for none; then, if `follows`, new chunks.

    `part` is the part of each source that it takes, None for all of it. `known` are the sources that a loaded state
    names, and `newest` is their greatest key; None if no state was loaded. `events` is its event log.
    """

    part: SplitPart | None
    known: dict[str, Arrival] | None
    events: EventLog

    @property
    def newest(self) -> str: ...

    @property
    def wanted(self) -> int: ...

    @property
    def follows(self) -> bool: ...

    def receive(self, event: Event) -> None:
        """Apply an event now, after all earlier ones."""
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
        self._begun = self._is_shared = False
        self._stopping = threading.Event()
        self._feeder: threading.Thread | None = None
        self._counting = threading.Lock()  # guards users and `_latest` alone, so any thread may take it
        self._latest: dict[Identity, OpenSource] = {}  # the one that further users share

    @property
    def begun(self) -> bool:
        """Whether the existing sources were passed on."""
        return self._begun

    def join(self, subscriber: Subscriber) -> None:
        with self._lock:
            if self._begun:
                raise PlanError("expected all pipelines of an inlet to be made before one is started, got one later")
            self._subscribers.append(subscriber)
            self._is_shared = len(self._subscribers) > 1 or subscriber.part is not None

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
                self._pass_on(self.inlet.begin(subscribers[0].wanted), subscribers, _is_news)
            self._report_failed(subscribers)

    def _begin_shared(self, subscribers: list[Subscriber]) -> None:
        """Open the newest sources until every subscriber has enough."""
        left = [subscriber.wanted for subscriber in subscribers]
        given = [list[tuple[Arrival, OpenSource]]() for _ in subscribers]
        with contextlib.closing(self.inlet.newest()) as newest:
            for opened in newest:
                self._add(opened)
                for i, subscriber in enumerate(subscribers):
                    if left[i] > 0 and _is_news(subscriber, opened.arrival):
                        given[i] += self._part_for(subscriber, opened)
                    left[i] -= opened.count(subscriber.part)
                self.close(opened)
                if max(left) <= 0:
                    break
        for subscriber, mine in zip(subscribers, given, strict=True):
            if mine:
                subscriber.receive(SourcesArrived(mine[::-1]))

    def poll(self) -> int:
        """Pass new sources on; return how many."""
        with self._lock:
            opened, followers = self.inlet.poll(), [each for each in self._subscribers if each.follows]
            if lost := frozenset(self.inlet.lost()):
                for subscriber in self._subscribers:
                    subscriber.receive(FilesDeleted(lost, REWRITTEN))
            self._pass_on(opened, followers, _is_unknown)
            self._report_failed(followers)
            return len(opened)

    def _pass_on(
        self, opened: list[OpenSource], subscribers: Iterable[Subscriber], is_new: Callable[[Subscriber, Arrival], bool]
    ) -> None:
        for each in opened:
            self._add(each)
        try:
            for subscriber in subscribers:
                parts = [self._part_for(subscriber, each) for each in opened if is_new(subscriber, each.arrival)]
                if mine := [each for part in parts for each in part]:
                    subscriber.receive(SourcesArrived(mine))
        finally:
            for each in opened:
                self.close(each)

    def _part_for(self, subscriber: Subscriber, opened: OpenSource) -> list[tuple[Arrival, OpenSource]]:
        """Return the part of a new source for a subscriber, which is one more user: one source, or none."""
        count = opened.count(subscriber.part)
        if not count:
            if opened.lost(subscriber.part):
                error = FormatError(opened.source.torn or "expected chunks, got none")
                subscriber.receive(FileFailed(opened.arrival.name, error))
            return []
        with self._counting:
            opened.users += 1
        return [(replace(opened.arrival, count=count), opened)]

    def _report_failed(self, subscribers: list[Subscriber]) -> None:
        """Report files that cannot be opened; of several parts, to the part of the first chunk."""
        for name, error in self.inlet.unopened():
            for subscriber in subscribers:
                part = subscriber.part
                if part is None or part.splitter.parts(name, 1)[0] == part.index:
                    subscriber.receive(FileFailed(name, error))

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
        except BaseException as error:  # noqa: BLE001  raised to the consumer of each stream, which applies it
            for subscriber in list(self._subscribers):
                subscriber.events.append(IntakeFailed(error))

    def _resume(self, subscribers: list[Subscriber]) -> None:
        """Pass the sources that all subscribers know to the inlet; others come again, and who knows them skips them."""
        if all(subscriber.known is None for subscriber in subscribers):
            return
        newest = min(subscriber.newest for subscriber in subscribers)
        latest = min(_latest(subscriber) for subscriber in subscribers)
        known = {name: arrival for subscriber in subscribers for name, arrival in (subscriber.known or {}).items()}
        below = [each for each in known.values() if each.key <= newest and each.mtime_ns <= latest]
        self.inlet.resume(below, newest)

    # Open sources and their users. Called by catalogs, from any thread.

    def open(self, arrival: Arrival) -> OpenSource:
        """Open a source again, or share it if it is open, for one more user."""
        with self._counting:
            shared = self._latest.get(_identity(arrival))
            if shared is not None:
                shared.users += 1
                return shared
        opened = self.inlet.open(arrival)
        self._add(opened)
        return opened

    def close(self, opened: OpenSource) -> None:
        """Count one user less of a source, and close it after the last."""
        with self._counting:
            opened.users -= 1
            if opened.users:
                return
            self._stop_sharing(opened)
        opened.source.close()

    def discard(self, opened: OpenSource) -> None:
        """Share a source no further, because it cannot be read: its next user opens the file again."""
        with self._counting:
            self._stop_sharing(opened)

    def _add(self, opened: OpenSource) -> None:
        """Count one user of a source that the inlet opened, and share it from now on."""
        with self._counting:
            opened.users += 1
            self._latest[_identity(opened.arrival)] = opened

    def _stop_sharing(self, opened: OpenSource) -> None:
        identity = _identity(opened.arrival)
        if self._latest.get(identity) is opened:
            del self._latest[identity]


def _identity(arrival: Arrival) -> Identity:
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
