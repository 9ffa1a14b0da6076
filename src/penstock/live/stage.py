"""`OrderedMap`: a function over a stream by several threads, results in the order of the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from penstock.errors import PlanError, WorkerError
from penstock.live.metrics import StageMetrics
from penstock.live.process import HomeProcess
from penstock.live.queue import QueueClosed, WaitingTime, wait_until

T = TypeVar("T")
R = TypeVar("R")


class OrderedMap(Generic[T, R]):
    """`fn` of each item of `source`, worked out by `threads` threads and given out in the order of the items.

    Items are taken from `source` one at a time, whatever thread takes them, so `source` may be any generator. At most
    `ahead` items are worked on or wait to be got, and no more are begun while the results that wait, with as much for
    each in work as they have on average, weigh `nbytes` (attribute `nbytes`). One item always gets through.

    An error of `source` or `fn` comes out in its place in the order, and ends the map. `close` ends it at once, after
    the items in work. An iterator: `StopIteration` once the source is used up.

    Raises `PlanError` for fewer than one thread or item.

    >>> with OrderedMap(lambda x: x * x, range(5), threads=2) as squares:
    ...     print(list(squares))
    [0, 1, 4, 9, 16]
    """

    def __init__(
        self,
        fn: Callable[[T], R],
        source: Iterable[T],
        threads: int = 1,
        *,
        ahead: int | None = None,
        nbytes: int | None = None,
        metrics: StageMetrics | None = None,
    ) -> None:
        self._ahead = 2 * threads + 2 if ahead is None else ahead
        if threads < 1 or self._ahead < 1:
            raise PlanError(f"expected at least one thread and one item ahead, got {threads} and {self._ahead}")
        self._fn, self._source, self._nbytes, self._home = fn, source, nbytes, HomeProcess("stage")
        self._metrics = metrics or StageMetrics("map", threads)
        self._metrics.queue = self.stats
        self._changed, self._input = threading.Condition(), threading.Lock()
        self._done: dict[int, tuple[R | None, BaseException | None, int]] = {}
        self._begun = self._taken = self._given = 0  # items: with a place, taken from the source, got
        self._end: int | None = None  # items that there are, once that is known
        self._waiting_bytes = self._all_bytes = self._finished = 0
        self._closed, self._waiting = False, WaitingTime()
        self._error: BaseException | None = None
        self._iterator: Iterator[T] | None = None
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def start(self) -> None:
        """Begin to work ahead; the first `get` does so by itself."""
        with self._changed:
            if self._iterator is not None or self._closed:
                return
            self._iterator = iter(self._source)
        for thread in self._threads:
            thread.start()

    def get(self, timeout: float | None = None) -> R:
        """The next result.

        Raises `StopIteration` at the end, the error of an item in its place, `TimeoutError` after `timeout` seconds
        without a result, and once the map is closed, the error that it was closed with, or `QueueClosed`.
        """
        self._home.check()
        self.start()
        with self._changed:
            with self._waiting:
                wait_until(self._changed, self._ready, timeout, "a result")
            if self._given in self._done:
                result, error, weight = self._done.pop(self._given)
                self._given += 1
                self._waiting_bytes -= weight
                self._changed.notify_all()
            elif self._error is not None:
                raise self._error
            elif self._closed:
                raise QueueClosed("nothing more comes: the stage is closed")
            else:
                raise StopIteration
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
        """Work on nothing more. What waits is forgotten; whoever waits is told, with the `error` if there is one."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._done.clear()
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads of a closed map."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout)

    def stats(self) -> dict[str, float]:
        """As those of a queue: `puts`, `gets`, `drops`, `fill`, `capacity`, `nbytes`, `waited_seconds`."""
        counts = {"puts": self._finished, "gets": self._given, "drops": 0}
        held = {"fill": len(self._done), "capacity": self._ahead, "nbytes": self._waiting_bytes}
        return {**counts, **held, "waited_seconds": self._waiting.seconds}

    def _ready(self) -> bool:
        return self._closed or self._given in self._done or (self._end is not None and self._given >= self._end)

    def _room(self) -> bool:
        """Whether one more item may be begun."""
        outstanding = self._begun - self._given
        if outstanding == 0 or self._closed:
            return True
        if self._nbytes is None or self._finished == 0:
            return outstanding < self._ahead
        in_work = outstanding - len(self._done)
        expected = self._waiting_bytes + in_work * self._all_bytes / self._finished
        return outstanding < self._ahead and expected < self._nbytes

    def _run(self) -> None:
        while True:
            with self._changed:
                wait_until(self._changed, lambda: self._room() or self._end is not None, None, "room")
                if self._closed or self._end is not None:
                    return
                self._begun += 1
            if not self._one():
                return

    def _one(self) -> bool:
        """Take an item and work on it; False at the end."""
        assert self._iterator is not None
        with self._input:
            place = self._taken
            if self._end is not None or self._closed:
                return False
            try:
                item = next(self._iterator)
            except StopIteration:
                self._ends(place)
                return False
            except BaseException as error:  # noqa: BLE001  handed to whoever waits for this item
                self._ends(place + 1)
                self._finish(place, None, error)
                return False
            self._taken += 1
        try:
            with self._metrics.work():
                result = self._fn(item)
        except StopIteration as error:  # as of a generator: it would look like the end of all items
            failure = WorkerError(f"expected a result, got StopIteration from {self._fn!r}")
            failure.__cause__ = error
            self._finish(place, None, failure)
            return False
        except BaseException as error:  # noqa: BLE001  as above
            self._finish(place, None, error)
            return False
        self._finish(place, result, None)
        return True

    def _ends(self, items: int) -> None:
        with self._changed:
            self._end = items
            self._changed.notify_all()

    def _finish(self, place: int, result: R | None, error: BaseException | None) -> None:
        weight = int(getattr(result, "nbytes", 0))
        with self._changed:
            if not self._closed:
                self._done[place] = (result, error, weight)
                self._waiting_bytes += weight
                self._all_bytes += weight
                self._finished += 1
            self._changed.notify_all()
