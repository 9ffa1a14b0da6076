"""`OrderedMap`: a function over a stream by several threads, results in the order of the stream.

It computes `fn(item)` for each item of a source. Loaders, live stages and archives that are unpacked ahead all
run on this class.

Invariants, all guarded by `_lock`:

* *Order.* Items are numbered as they leave the source (`_taken`), under the lock `_input`, so that one thread at a time
  advances it. A finished result waits in `_done` under its number. `get` returns number `_given`, and nothing else.
* *Bounds.* `_begun - _given` items are ahead of the consumer. A thread reserves a place (`_begun`) before it takes an
  item, so at most `limits.width` items were taken and not yet received. Bytes are bounded too: by `weigh(item)` where
  that is given, else by the mean of the results so far. Without `weigh` the first results may exceed the bound, because
  nothing is known about them. One item always gets through, also one above the bound.
* *Progress.* The item that the consumer waits for never waits for room: its bytes are granted at once.

Ownership: the map owns its threads, and the generator that it reads from, if the source is one: the last thread closes
it. The map does not close another kind of source. Threads refer to the map, and not to the object that uses it. So a
deleted user can `abandon` the map from a finalizer, which takes no lock.

Ends: an error of the source or of `fn` is stored under its number, raised there, and closes the map. `close` wakes
everyone; threads finish the item in work. Threads are daemons and wake every `SLICE` seconds, so an
abandoned map ends too.

Fork: a forked process has no threads, and a vanished thread may own a lock. `get` raises
`WorkerError` there before it touches a lock.

Exit of the interpreter: threads that are not daemons run to their end first, and may use maps until then. Then all maps
are closed, and the functions in work get `EXIT_SECONDS` to return, because a thread that is stopped within foreign code
may end the process with a signal. A thread that only waits for input is left alone.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from types import GeneratorType
from typing import Any, Generic, TypeVar

from penstock.core.narrowing import is_generator
from penstock.core.turns import ForkSafeLock, HomeProcess
from penstock.errors import WorkerError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import StageMetrics
from penstock.flow.queue import QueueClosed, WaitingTime, wait_until

T = TypeVar("T")
R = TypeVar("R")

EXIT_SECONDS = 10.0


class OrderedMap(Generic[T, R]):
    """Iterator over `fn(item)` for each item of a source, computed by threads, in the order of the items.

    One thread at a time advances the source, so it may be any generator. A result weighs its attribute `nbytes`.
    Several threads may call `get`; each result is returned once.
    """

    def __init__(
        self,
        fn: Callable[[T], R],
        source: Iterable[T],
        limits: PrefetchLimits,
        *,
        weigh: Callable[[T], int] | None = None,
        metrics: StageMetrics | None = None,
        name: str = "penstock-map",
    ) -> None:
        self.limits = limits
        self._fn = fn
        self._source = source
        self._weigh = weigh
        self._name = name
        self._home = HomeProcess("stage")
        self._metrics = metrics or StageMetrics(name, max(limits.threads, 1))
        if metrics is not None:  # else nobody reads them, and a cycle would keep `fn` and its arrays until a collection
            metrics.queue = self.stats
        # Reentrant, because a signal handler may close the map between any two steps of `get`.
        self._lock, self._input = threading.RLock(), threading.RLock()
        self._results, self._space = threading.Condition(self._lock), threading.Condition(self._lock)
        self._done: dict[int, tuple[R | None, BaseException | None, int]] = {}
        self._begun = self._taken = self._given = 0  # items: with a place, taken from the source, received
        self._end: int | None = None  # number of items, once it is known
        self._done_bytes = self._work_bytes = 0  # of results that wait, and of items in work that were weighed
        self._all_bytes = self._finished = 0  # of all results so far, for their mean
        self._idle = self._working = self._alive = 0  # threads: that wait for room, within `fn`, that did not end
        self._closed, self._waiting = False, WaitingTime()
        self._error: BaseException | None = None
        self._iterator: Iterator[T] | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to work ahead. The first `get` does this too."""
        if self.limits.threads:
            with self._lock:
                if self._iterator is None and not self._closed:
                    self._iterator = iter(self._source)
                    self._add_thread()

    def get(self, timeout: float | None = None) -> R:
        """Return the next result."""
        self._home.check()
        if not self.limits.threads:
            return self._computed_here()
        self.start()
        with self._lock:
            if not self._is_ready():
                self.limits.waited()
                self._add_thread()
                with self._waiting:
                    wait_until(self._results, self._is_ready, timeout, "a result")
            finished = self._done.pop(self._given, None)
            if finished is None:
                raise self._reason_to_end()
            result, error, weight = finished
            self._given += 1
            self._done_bytes -= weight
            self._space.notify_all()
            self._add_thread()
        if error is not None:
            self.close(error)
            raise error
        return result  # pyright: ignore[reportReturnType]  without an error there is a result

    def __iter__(self) -> OrderedMap[T, R]:
        return self

    def __next__(self) -> R:
        return self.get()

    def __enter__(self) -> OrderedMap[T, R]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        self.join()

    def close(self, error: BaseException | None = None) -> None:
        """Start no further work, forget finished results, and wake everyone who waits."""
        with self._lock:
            self._closed = True
            self._error = self._error or error
            self._done.clear()
            self._results.notify_all()
            self._space.notify_all()
            last = self._alive == 0
        if last:
            self._close_source()

    @property
    def closed(self) -> bool:
        return self._closed and self._error is None

    def abandon(self) -> None:
        """Close the map without a lock, from a finalizer, which may run in a thread that holds one.

        Threads notice within `SLICE` seconds.
        """
        self._closed = True

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads of a closed map."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout)

    def stats(self) -> dict[str, float]:
        """Return the counts of a queue: `puts`, `gets`, `drops`, `fill`, `capacity`, `nbytes`, `waited_seconds`."""
        counts = {"puts": self._finished, "gets": self._given, "drops": 0}
        figures = {"fill": len(self._done), "capacity": self.limits.most, "nbytes": self._done_bytes}
        return {**counts, **figures, "waited_seconds": self._waiting.seconds}

    def _is_ready(self) -> bool:
        return self._closed or self._given in self._done or (self._end is not None and self._given >= self._end)

    def _reason_to_end(self) -> BaseException:
        if self._error is not None:
            return self._error
        return QueueClosed("nothing more comes: the stage is closed") if self._closed else StopIteration()

    def _add_thread(self) -> None:
        """Start a thread if there is room for one more item and no thread that waits for room."""
        useful = not self._closed and self._end is None and self._idle == 0 and self._has_room()
        if useful and self._alive < self.limits.threads:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._threads.append(thread)
            self._alive += 1
            if self._alive == 1:
                with _RUNNING_LOCK:
                    _RUNNING.add(self)
            try:
                thread.start()
            except BaseException:
                self._threads.remove(thread)
                self._alive -= 1
                raise

    def _has_room(self) -> bool:
        """Return whether one more item may start, as far as that is known before it is taken from the source."""
        ahead = self._begun - self._given
        if ahead == 0 or self._closed:
            return True
        if not self.limits.has_items(ahead):
            return False
        if self._weigh is not None or self._finished == 0:
            return True
        in_work = ahead - len(self._done)
        return self._done_bytes + in_work * self._all_bytes / self._finished < self.limits.memory

    def _run(self) -> None:
        try:
            while self._has_reserved() and self._did_one():
                pass
        finally:
            with self._lock:
                self._alive -= 1
                last = self._alive == 0
            if last:
                with _RUNNING_LOCK:
                    _RUNNING.discard(self)
                if self._closed or self._end is not None:
                    self._close_source()

    def _has_reserved(self) -> bool:
        """Wait for room and reserve a place. Return False if there is nothing more to do."""
        with self._lock:
            self._idle += 1
            try:
                wait_until(self._space, lambda: self._end is not None or self._has_room(), None, "room")
            finally:
                self._idle -= 1
            if self._closed or self._end is not None:
                return False
            self._begun += 1
            self._add_thread()
            return True

    def _did_one(self) -> bool:
        """Take an item and compute its result. Return False at the end."""
        assert self._iterator is not None  # `start` made it
        with self._input:
            number = self._taken
            if self._end is not None or self._closed:
                return False
            try:
                item = next(self._iterator)
            except StopIteration:
                self._end_at(number)
                return False
            except BaseException as error:  # noqa: BLE001  raised where this item is asked for
                self._end_at(number + 1)
                self._store(number, None, error, 0)
                return False
            self._taken += 1
            weight = 0 if self._weigh is None else self._weigh(item)
            self._put_in_work(number, weight)
        try:
            result = self._result_of(item)
        except BaseException as error:  # noqa: BLE001  as above
            self._end_at(number + 1)
            self._finish(number, None, error, weight)
            return False
        self._finish(number, result, None, weight)
        return True

    def _put_in_work(self, number: int, weight: int) -> None:
        """Wait until an item that was weighed fits. Others wait behind it for the source, so the order stays."""

        def fits() -> bool:
            weights = self._done_bytes + self._work_bytes + weight
            return weights <= self.limits.memory or number == self._given or self._closed

        with self._lock:
            if self._weigh is not None:
                wait_until(self._space, fits, None, "room")
            self._work_bytes += weight
            self._working += 1

    def _result_of(self, item: T) -> R:
        try:
            with self._metrics.work():
                result: Any = self._fn(item)
                return self._listed(result) if is_generator(result) else result
        except StopIteration as error:  # as of a generator: it would look like the end of all items
            raise WorkerError(f"expected a result, got StopIteration from {self._fn!r}") from error

    def _listed(self, parts: Generator[Any]) -> Any:
        """The list of what a generator yields. Raises in a thread of a closed map, whose results have no reader."""
        with closing(parts):
            results: list[Any] = []
            for part in parts:
                results.append(part)
                if self._closed and self.limits.threads:
                    raise self._reason_to_end()
            return results

    def _computed_here(self) -> R:
        """The next result, computed by the caller."""
        with self._input:
            if self._closed or self._end is not None:
                raise self._reason_to_end()
            if self._iterator is None:
                self._iterator = iter(self._source)
            try:
                result = self._result_of(next(self._iterator))
            except StopIteration:
                self._end = self._given
                raise
            except BaseException as error:
                self.close(error)
                raise
            self._finished += 1
            self._given += 1
            return result

    def _end_at(self, items: int) -> None:
        """Set the number of items, after the last one or at an error."""
        with self._lock:
            self._end = items if self._end is None else min(items, self._end)
            self._results.notify_all()
            self._space.notify_all()

    def _finish(self, number: int, result: R | None, error: BaseException | None, expected: int) -> None:
        with self._lock:
            self._working -= 1
            self._work_bytes -= expected
            self._store(number, result, error, int(getattr(result, "nbytes", expected)))

    def _store(self, number: int, result: R | None, error: BaseException | None, weight: int) -> None:
        with self._lock:
            if not self._closed:
                self._done[number] = (result, error, weight)
                self._done_bytes += weight
                self._all_bytes += weight
                self._finished += 1
            self._results.notify_all()

    def _close_source(self) -> None:
        """Close the generator that items came from. One that another thread is running ends in that thread."""
        with self._input:
            source: Any = self._iterator
            if isinstance(self._iterator, GeneratorType) and not source.gi_running:
                source.close()


_RUNNING: set[OrderedMap[Any, Any]] = set()  # maps that have threads; these hold them anyway
_RUNNING_LOCK = ForkSafeLock()


def _close_all() -> None:
    """Close all maps at the exit of the interpreter, and let functions return that are in work."""
    with _RUNNING_LOCK:
        running = [each for each in _RUNNING if each._home.is_here]  # pyright: ignore[reportPrivateUsage]
    for each in running:
        each.close()
    end = time.monotonic() + EXIT_SECONDS
    while any(each._working for each in running) and time.monotonic() < end:  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.001)


atexit.register(_close_all)
