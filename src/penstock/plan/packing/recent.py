"""`RecentIndexes`: indexes of packs by epoch, planned ahead, of which the last few are kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.core.turns import ForkSafeLock
from penstock.plan.packing.even import EvenIndex
from penstock.plan.packing.index import PackIndex
from penstock.plan.packing.staged import StagedIndex

Index = PackIndex | EvenIndex | StagedIndex
RECENT = 3  # epochs; each has an index of its own


class RecentIndexes:
    """The indexes of the last `RECENT` epochs that were asked for."""

    def __init__(self, make: Callable[[int], Index], *, ahead: bool) -> None:
        self._make, self._ahead = make, ahead
        self._lock = ForkSafeLock()
        self._process = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._recent: OrderedDict[int, Future[Index]] = OrderedDict()

    def of(self, epoch: int) -> Index:
        """The index of an epoch, planned at first use. Any number of threads may ask."""
        with self._lock:
            if self._process != os.getpid():  # a fork has the futures but no thread that would fulfil them
                self._process, self._pool = os.getpid(), None
                self._recent = OrderedDict((e, f) for e, f in self._recent.items() if f.done())
            mine = self._asked(epoch)
            if self._ahead:
                self._asked(epoch + 1)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return mine.result()

    def _asked(self, epoch: int) -> Future[Index]:
        if epoch in self._recent:
            self._recent.move_to_end(epoch)
        elif (submitted := self._submitted(epoch)) is not None:
            self._recent[epoch] = submitted
        else:
            plan = self._make(epoch)
            self._recent[epoch] = Future()
            self._recent[epoch].set_result(plan)
        return self._recent[epoch]

    def _submitted(self, epoch: int) -> Future[Index] | None:
        """The index on its way on a thread; None where nothing is planned ahead, or the interpreter is exiting."""
        if not self._ahead:
            return None
        self._pool = self._pool or ThreadPoolExecutor(1, "penstock-pack")
        try:
            return self._pool.submit(self._make, epoch)
        except RuntimeError as error:
            if "shutdown" not in str(error):  # such as no room for one more thread
                raise
            return None
