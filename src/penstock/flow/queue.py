"""`BlockQueue`: items between threads, bounded by number and bytes. It closes when the last producer has closed.

Invariants, guarded by one condition: `puts == gets + drops + fill`; the items that wait weigh `held_bytes`, and more
than `limit` only if a single item does. The queue owns the items until `get` returns them. A closed queue still returns
the items that wait, unless it was closed with an error. Waits are cut into slices, so that signals interrupt them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar, get_args

from penstock.errors import PenstockError, PlanError

T = TypeVar("T")
Overflow = Literal["block", "drop_new", "keep_newest"]

SLICE = 0.2  # seconds; no wait is longer without a look around, so that signals get through everywhere


class QueueClosed(PenstockError, RuntimeError):
    """Nothing more comes out of a queue, or nothing more may be put into it."""


class WaitingTime:
    """Seconds during which at least one thread waited for something; a context manager around each wait.

    Enter and leave it with the lock of the object that the thread waits for. Reading needs no lock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now = (0.0, 0.0, 0)  # seconds that are over, since when it is waited, by how many; changed at once

    def __enter__(self) -> None:
        done, since, threads = self._now
        self._now = (done, since if threads else self._clock(), threads + 1)

    def __exit__(self, *exc: object) -> None:
        done, since, threads = self._now
        self._now = (done if threads > 1 else done + self._clock() - since, since, threads - 1)

    @property
    def seconds(self) -> float:
        """So far, a wait that is not over included."""
        done, since, threads = self._now
        return done + (self._clock() - since if threads else 0.0)


class BlockQueue(Generic[T]):
    """A queue of at most `items` things that weigh at most `nbytes` together (by their attribute `nbytes`).

    A thing too heavy for an empty queue goes in alone. When the queue is full, `overflow` says what `put` does:
    `"block"` waits, `"drop_new"` drops the thing, `"keep_newest"` drops the oldest that wait until it fits. `drops`
    counts them. Any number of threads may put and get.
    """

    def __init__(self, items: int = 4, nbytes: int | None = None, overflow: Overflow = "block") -> None:
        if items < 1 or (nbytes is not None and nbytes < 1) or overflow not in get_args(Overflow):
            raise PlanError(
                f"expected at least one item and byte, and one of {get_args(Overflow)}, "
                f"got items={items}, nbytes={nbytes}, overflow={overflow!r}"
            )
        self.capacity = items
        self.limit = nbytes
        self.overflow = overflow
        self.puts = self.gets = self.drops = self.held_bytes = 0
        self._waiting = WaitingTime()
        self._held: deque[tuple[T, int]] = deque()
        self._changed = threading.Condition()
        self._producers = 0
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._held)

    @property
    def closed(self) -> bool:
        """Whether nothing more may be put in."""
        return self._closed

    @property
    def error(self) -> BaseException | None:
        """The first error that the queue was closed with."""
        return self._error

    def stats(self) -> dict[str, float]:
        """Return the counts `puts`, `gets` and `drops`, the present `fill`, `capacity` and `nbytes`, and
        `waited_seconds`, the time during which at least one thread waited in `get`."""
        counts = {"puts": self.puts, "gets": self.gets, "drops": self.drops}
        figures = {"fill": len(self._held), "capacity": self.capacity, "nbytes": self.held_bytes}
        return {**counts, **figures, "waited_seconds": self._waiting.seconds}

    def producer(self) -> Producer[T]:
        """Return a token to put items with. The queue closes when the last token is closed."""
        with self._changed:
            self._check_open()
            self._producers += 1
        return Producer(self)

    def put(self, item: T, timeout: float | None = None) -> list[T]:
        """Put an item in. Return the items that were dropped for lack of room: the new one, or the oldest ones."""
        weight, dropped = int(getattr(item, "nbytes", 0)), list[T]()
        with self._changed:
            self._check_open()
            self.puts += 1
            if self.overflow == "drop_new" and not self._fits(weight):
                self.drops += 1
                return [item]
            while self.overflow == "keep_newest" and not self._fits(weight):
                oldest, nbytes = self._held.popleft()
                self.held_bytes -= nbytes
                self.drops += 1
                dropped.append(oldest)
            wait_until(self._changed, lambda: self._closed or self._fits(weight), timeout, "room in a queue")
            self._check_open()
            self._held.append((item, weight))
            self.held_bytes += weight
            self._changed.notify_all()
        return dropped

    def get(self, timeout: float | None = None) -> T:
        """The oldest thing."""
        with self._changed:
            with self._waiting:
                wait_until(self._changed, lambda: self._closed or len(self._held) > 0, timeout, "something in a queue")
            if self._error is not None:
                raise self._error
            if not self._held:
                raise QueueClosed("nothing more comes: the queue is closed and empty")
            item, weight = self._held.popleft()
            self.held_bytes -= weight
            self.gets += 1
            self._changed.notify_all()
        return item

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                item = self.get()
            except QueueClosed:
                return
            yield item

    def close(self, error: BaseException | None = None) -> None:
        """Refuse further items. Waiting items can still be got, unless there is an `error`, which `get` then raises."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def _release(self) -> None:
        with self._changed:
            self._producers -= 1
            last = self._producers == 0
        if last:
            self.close()

    def _fits(self, weight: int) -> bool:
        if not self._held:
            return True
        return len(self._held) < self.capacity and (self.limit is None or self.held_bytes + weight <= self.limit)

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise QueueClosed("expected an open queue, got one that is closed")


class Producer(Generic[T]):
    """The right to put things into a queue; a context manager. See `BlockQueue.producer`."""

    def __init__(self, queue: BlockQueue[T]) -> None:
        self._queue = queue
        self._open = True

    def put(self, item: T, timeout: float | None = None) -> list[T]:
        """As `BlockQueue.put`."""
        if not self._open:
            raise QueueClosed("expected a producer that is open, got one that is closed")
        return self._queue.put(item, timeout)

    def close(self) -> None:
        """Put nothing more."""
        if self._open:
            self._open = False
            self._queue._release()  # pyright: ignore[reportPrivateUsage]  token and queue are one thing

    def __enter__(self) -> Producer[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def wait_until(changed: threading.Condition, ready: Any, timeout: float | None, what: str) -> None:
    """Wait, holding the condition, until `ready()`; raises `TimeoutError` after `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    while not ready():
        left = SLICE if end is None else min(SLICE, end - time.monotonic())
        if left <= 0:
            raise TimeoutError(f"expected {what} within {timeout} seconds, got none")
        changed.wait(left)
