"""`LossyQueue`: items for a consumer that nothing waits for. Items that it does not get in time are dropped.

A thread takes items from the source as fast as they come, and puts them into a `BlockQueue` that drops. So an output
that nothing reads blocks no other output. `fn` runs when an item is received, in the consumer's thread, so a dropped
item costs no call of `fn`.

Invariant: each item of the source is received, waiting, or was passed to `on_drop` exactly once.

The thread owns the source. It ends with the source, with an error, which `get` raises at once, or after `close`. It is
a daemon: at the exit of the interpreter nothing waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import StageMetrics
from penstock.flow.queue import BlockQueue, Overflow, QueueClosed

T = TypeVar("T")
R = TypeVar("R")


class LossyQueue(Generic[T, R]):
    """Queue that a thread fills from a source without waiting for the consumer.

    `get`, `close`, `join` and `stats` work as in `OrderedMap`.
    """

    def __init__(
        self,
        fn: Callable[[T], R],
        source: Iterable[T],
        limits: PrefetchLimits,
        overflow: Overflow,
        *,
        on_drop: Callable[[T], None] | None = None,
        metrics: StageMetrics | None = None,
    ) -> None:
        self._fn = fn
        self._source = source
        self._on_drop = on_drop
        self._metrics = metrics or StageMetrics("lossy_queue")
        self._queue: BlockQueue[T] = BlockQueue(limits.most, limits.memory, overflow)
        self._ended = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-lossy", daemon=True)
        self.stats = self._metrics.queue = self._queue.stats

    def start(self) -> None:
        """Begin to take items. The first `get` does this too."""
        if self._thread.ident is None and not self._queue.closed:
            self._thread.start()

    def get(self, timeout: float | None = None) -> R:
        """Return the result of the oldest item that waits."""
        self.start()
        if self._stopped:
            raise self._queue.error or QueueClosed("nothing more comes: the queue is closed")
        try:
            item = self._queue.get(timeout)
        except QueueClosed:
            if self._ended:
                raise StopIteration from None
            raise
        with self._metrics.work():
            return self._fn(item)

    def offer(self, item: T) -> None:
        """Put an item in, and drop items if there is no room."""
        for dropped in self._queue.put(item):
            if self._on_drop is not None:
                self._on_drop(dropped)

    def close(self, error: BaseException | None = None) -> None:
        """Take no further items, and wake a consumer that waits."""
        self._stopped = True
        self._queue.close(error)

    def join(self, timeout: float | None = None) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            for item in self._source:
                self.offer(item)
            self._ended = True
            self._queue.close()
        except QueueClosed:
            self._queue.close()
        except BaseException as error:  # noqa: BLE001  raised where the next item is asked for
            self._queue.close(error)
