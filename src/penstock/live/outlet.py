"""`Outlet`: batches for a consumer that is not waited for: what it does not get in time is dropped, and counted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from penstock.flow.metrics import StageMetrics
from penstock.flow.queue import BlockQueue, Overflow, QueueClosed
from penstock.live.sampler import Batch
from penstock.live.tensors import Decoded


class Outlet:
    """Takes batches as fast as they come, by a thread of its own. At most `items` wait, of `nbytes` together; of more,
    `overflow` drops the new or the oldest. `let_go` is called with the number of each that waits no
    more, got or dropped. Batches are decoded when they are got, so that what is dropped costs nothing there.

    `get`, `close`, `join` and `stats` are as those of `OrderedMap`.
    """

    def __init__(
        self,
        batches: Iterator[Batch],
        decode: Callable[[Batch], Decoded],
        overflow: Overflow,
        items: int,
        nbytes: int,
        let_go: Callable[[int], None],
        metrics: StageMetrics,
    ) -> None:
        self._batches, self._decode, self._let_go, self._metrics = batches, decode, let_go, metrics
        self._queue: BlockQueue[Batch] = BlockQueue(items, nbytes, overflow)
        self._waiting: deque[int] = deque()
        self._ended = self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.stats = metrics.queue = self._queue.stats

    def start(self) -> None:
        """Begin to take batches."""
        if self._thread.ident is None and not self._queue.closed:
            self._thread.start()

    def get(self, timeout: float | None = None) -> Decoded:
        """The oldest batch that waits.

        Raises `StopIteration` at the end, the error of a stage at once, `TimeoutError`, and `QueueClosed` after
        `close`.
        """
        self.start()
        if self._stopped:
            raise QueueClosed("nothing more comes: the outlet is closed")
        try:
            batch = self._queue.get(timeout)
        except QueueClosed:
            if self._ended:
                raise StopIteration from None
            raise
        with self._metrics.work():
            return self._decode(batch)

    def offer(self, batch: Batch) -> None:
        """Have a batch wait, or drop one."""
        if not self._queue.put(batch):
            self._let_go(batch.index)
            return
        self._waiting.append(batch.index)
        while len(self._waiting) > len(self._queue):
            self._let_go(self._waiting.popleft())

    def close(self, error: BaseException | None = None) -> None:
        """Take no more; whoever waits is told."""
        self._stopped = error is None
        self._queue.close(error)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread, which ends with the batches, or after `close`."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            for batch in self._batches:
                self.offer(batch)
            self._ended = True
            self._queue.close()
        except QueueClosed:
            self._queue.close()
        except BaseException as error:  # noqa: BLE001  handed to whoever waits for a batch
            self._queue.close(error)
