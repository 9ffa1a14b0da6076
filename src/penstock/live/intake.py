"""`Intake`: an inlet that several pools take from: looked at, opened and indexed once for all of them."""

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
    """What takes from an intake: `wanted` chunks at the beginning, 0 for none; then, if `follows`, what comes. `part`
    is the part of each source that it takes. `known` are the sources that a loaded state names, and `newest` the
    greatest key of those; None where none was loaded."""

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
        """Sources come, in their order."""
        ...

    def lose(self, names: Collection[str], why: str) -> None:
        """What was taken under some names is gone."""
        ...

    def miss(self, name: str, error: BaseException) -> None:
        """What came cannot be opened."""
        ...


class Intake:
    """Hands what an `inlet` gives to all who take from it, at once. Thread-safe.

    A source that several have open is one source. What the takers of a loaded state know already they do not get again.
    """

    @staticmethod
    def of(given: Inlet | SplitPart) -> Intake:
        """The intake of an inlet, which is one for all who ask."""
        inlet = given.inlet if isinstance(given, SplitPart) else given
        return vars(inlet).setdefault("_intake", Intake(inlet))

    def __init__(self, inlet: Inlet) -> None:
        self.inlet = inlet
        self._lock = threading.RLock()
        self._takers: list[Subscriber] = []
        self._shared = _Table()
        self._begun = self._is_shared = False
        self._stopping = threading.Event()
        self._feeder: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        """Whether what was there has been handed out."""
        return self._begun

    def join(self, taker: Subscriber) -> Callable[[Arrival], ChunkSource]:
        """One more who takes; gives what opens a source again for it. Raises `PlanError` once it has begun."""
        with self._lock:
            if self._begun:
                raise PlanError("expected all pipelines of an inlet to be made before one is started, got one later")
            self._takers.append(taker)
            self._is_shared = len(self._takers) > 1 or taker.part is not None
        return functools.partial(self._open, taker.part)

    def leave(self, taker: Subscriber) -> None:
        """One less; with the last one all ends."""
        with self._lock:
            self._takers = [other for other in self._takers if other is not taker]
            last = not self._takers
            self._begun = self._begun or last
        if last:
            self._stopping.set()
            if self._feeder is not None:
                self._feeder.join()
            self.inlet.close()

    def begin(self) -> None:
        """Hand out what is there, once."""
        with self._lock:
            takers = [taker for taker in self._takers if taker.wanted]
            if self._begun or not takers:
                return
            self._begun = True
            self._resume(takers)
            if self._is_shared:
                self._begin_shared(takers)
            else:
                _arrive(
                    takers[0], [each for each in self.inlet.begin(takers[0].wanted) if _is_news(takers[0], each[0])]
                )
            self._report_unopened(takers)

    def _begin_shared(self, takers: list[Subscriber]) -> None:
        """Open the newest, until everyone has enough."""
        left, given = [taker.wanted for taker in takers], [list[Opened]() for _ in takers]
        with contextlib.closing(self.inlet.newest()) as newest:
            for arrival, source in newest:
                held = self._shared.add(arrival, source)
                for i, taker in enumerate(takers):
                    if left[i] > 0 and _is_news(taker, arrival):
                        given[i] += _part_for(taker, arrival, held)
                    left[i] -= _count(held, taker)
                held.close()
                if max(left) <= 0:
                    break
        for taker, mine in zip(takers, given, strict=True):
            _arrive(taker, mine[::-1])

    def poll(self) -> int:
        """Hand out what came since; gives how many sources."""
        with self._lock:
            opened, followers = self.inlet.poll(), [taker for taker in self._takers if taker.follows]
            if lost := frozenset(self.inlet.lost()):
                for taker in self._takers:
                    taker.lose(lost, REWRITTEN)
            held = [(each, self._shared.add(each, source) if self._is_shared else source) for each, source in opened]
            for taker in followers:
                mine = [_part_for(taker, *each) for each in held if _is_unknown(taker, each[0])]
                _arrive(taker, [each for one in mine for each in one])
            for _, source in held if self._is_shared else ():
                source.close()
            self._report_unopened(followers)
            return len(opened)

    def _report_unopened(self, takers: list[Subscriber]) -> None:
        """Tell of what cannot be opened; where there are parts, the one that would have its first chunk."""
        for name, error in self.inlet.unopened():
            for taker in takers:
                if taker.part is None or taker.part[0].parts(name, 1)[0] == taker.part[1]:
                    taker.miss(name, error)

    def follow(self) -> None:
        """Have a thread take in what comes, until the last one leaves."""
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
            for taker in list(self._takers):
                taker.fail(error)

    def _resume(self, takers: list[Subscriber]) -> None:
        """Tell the inlet what every taker knows; what only some know comes again, and is held back from those."""
        if all(taker.known is None for taker in takers):
            return
        newest = min(taker.newest for taker in takers)
        latest = min(_latest(taker) for taker in takers)
        known = {name: arrival for taker in takers for name, arrival in (taker.known or {}).items()}
        below = [each for each in known.values() if each.key <= newest and each.mtime_ns <= latest]
        self.inlet.resume(below, newest)

    def _open(self, part: tuple[ChunkSourceSplitter, int] | None, arrival: Arrival) -> ChunkSource:
        """Open a source again, for one taker. Raises what the inlet raises."""
        if not self._is_shared:
            return self.inlet.open(arrival)
        held = self._shared.find(arrival)
        if held is None:
            held = self._shared.add(arrival, self.inlet.open(arrival))
        return _view(held, part)


class _Table:
    """Sources that are open, by what they are; each is closed once nobody holds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[tuple[str, int, int], _Shared] = {}

    def find(self, arrival: Arrival) -> _SharedSource | None:
        """One more who holds it; None where it is not open."""
        with self._lock:
            shared = self._open.get(_identity(arrival))
            return None if shared is None else self.hold(shared)

    def add(self, arrival: Arrival, source: ChunkSource) -> _SharedSource:
        """The first who holds it, or one more, where another thread was faster."""
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
        """Whoever opens it from now on gets another: it is closed, or cannot be read any more."""
        with self._lock:
            if self._open.get(shared.identity) is shared:
                del self._open[shared.identity]


class _Shared:
    def __init__(self, identity: tuple[str, int, int], source: ChunkSource) -> None:
        self.identity, self.source, self.holders = identity, source, 0
        self._parts: dict[ChunkSourceSplitter, npt.NDArray[np.int64]] = {}

    def places(self, splitter: ChunkSourceSplitter, index: int) -> npt.NDArray[np.int64]:
        """The chunks of a part; what is hashed is kept for the others."""
        parts = self._parts.get(splitter)
        if parts is None:
            parts = self._parts[splitter] = splitter.parts_of(self.source)
        return np.flatnonzero(parts == index)

    def lost(self, splitter: ChunkSourceSplitter, index: int) -> int:
        """How many chunks a part has lost."""
        return int(np.count_nonzero(splitter.lost_of(self.source) == index))


class _SharedSource(ChunkSource):
    """One who holds a source that is shared."""

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
        """One more who holds it."""
        return self._table.hold(self.shared)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._table.release(self.shared)


def _count(held: _SharedSource, taker: Subscriber) -> int:
    """The chunks of a source that are for a taker."""
    return len(held) if taker.part is None else len(held.shared.places(*taker.part))


def _part_for(taker: Subscriber, arrival: Arrival, source: ChunkSource) -> list[Opened]:
    """What a taker gets of a source that came: one source, or none."""
    if not isinstance(source, _SharedSource):
        return [(arrival, source)]
    count = _count(source, taker)
    if not count and taker.part is not None and source.shared.lost(*taker.part):
        taker.miss(arrival.name, FormatError(source.torn or "expected chunks, got none"))
    return [(replace(arrival, count=count), _view(source.again(), taker.part))] if count else []


def _view(held: _SharedSource, part: tuple[ChunkSourceSplitter, int] | None) -> ChunkSource:
    """What is one taker's of a source."""
    return held if part is None else ChunkSubset(held, held.shared.places(*part), held.shared.lost(*part))


def _arrive(taker: Subscriber, opened: list[Opened]) -> None:
    if opened:
        taker.arrive(opened)


def _identity(arrival: Arrival) -> tuple[str, int, int]:
    return arrival.name, arrival.size, arrival.mtime_ns


def _latest(taker: Subscriber) -> int:
    return max((arrival.mtime_ns for arrival in (taker.known or {}).values()), default=0)


def _is_unknown(taker: Subscriber, arrival: Arrival) -> bool:
    """Whether a source is not one that a loaded state names."""
    known = None if taker.known is None else taker.known.get(arrival.name)
    return known is None or _identity(known) != _identity(arrival)


def _is_news(taker: Subscriber, arrival: Arrival) -> bool:
    """Whether what was there at the start came after a loaded state: its key or its time says so."""
    if taker.known is None:
        return True
    later = arrival.key > taker.newest or arrival.mtime_ns > _latest(taker)
    return later and _is_unknown(taker, arrival)
