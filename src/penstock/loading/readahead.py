"""`ReadAhead`: batches at any positions, which threads read before they are asked for, where requests are regular.

Trainers that split batches over processes ask for every n-th batch, or for a part of each. So the next request is
guessed: it follows the last one at the distance between the last two, with an equal number of samples, up to the end of
the epoch. A wrong guess costs the work and changes nothing: each request for other positions is read when it comes.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.turns import ForkSafeLock, HomeProcess
from penstock.errors import WorkerError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.loading.batch_source import Batches, Job
from penstock.loading.position_source import PositionSource
from penstock.loading.ranks import Int, Ranks
from penstock.loading.ticket import Batch


@dataclass(frozen=True)
class _FirstRows(Ranks):
    """The first rows of every batch."""

    rows: int = 1
    of: int = 1

    @cached_property
    def times(self) -> float:
        return self.of / self.rows

    def share(self, samples: Int) -> tuple[Int, Int]:
        return np.zeros_like(samples)[..., None], np.minimum(samples, self.rows)[..., None]


class ReadAhead:
    """Batches of a source at positions that a consumer asks for."""

    def __init__(self, source: PositionSource, limits: PrefetchLimits) -> None:
        self._source, self._limits = source, limits
        self._lock, self._home = ForkSafeLock(), HomeProcess("DataLoader")
        self._last, self._stride = -1, 0  # kept number at which the last request began, and from the one before it
        self._jobs: OrderedMap[Job, Batches] | None = None
        self._abandon: weakref.finalize[..., object] | None = None
        self._ready: deque[Batch] = deque()

    def __reduce__(self) -> tuple[type[ReadAhead], tuple[PositionSource, PrefetchLimits]]:
        return ReadAhead, (self._source, self._limits)

    def batch(self, positions: IntArray) -> Columns:
        first = self._first(positions) if self._limits.threads else None
        if first is not None:
            with self._lock:
                ready = self._next()
                if ready is not None and _has(ready, positions):
                    self._last = first
                    return ready
                self._guess(first, len(positions))
        return self._source.dataset.at(positions)

    def _first(self, positions: IntArray) -> int | None:
        """Kept number of the first sample, or None if they do not follow one another, but for skipped ones."""
        if not len(positions):
            return None
        first = self._source.skips.kept_before(int(positions[0]))
        following = self._source.skips.positions(np.arange(first, first + len(positions)))
        return first if np.array_equal(positions, following) else None

    def _next(self) -> Batch | None:
        if not self._home.is_here or self._jobs is None:
            return None
        try:
            if not self._ready:
                self._ready.extend(batch for batch, _ in next(self._jobs, ()))
        except WorkerError:  # of some guess: the request itself is read when it comes, and raises its own error
            return None
        return self._ready.popleft() if self._ready else None

    def _guess(self, first: int, rows: int) -> None:
        """Begin to read the requests after one, if it is the first one of its epoch, or as far as expected."""
        self._forget()
        rest = self._source.rest(self._source.skips.position(first))
        begin = self._source.skips.kept_before(self._source.dataset.plan.start(rest.epoch))
        before, self._last = self._last, first
        if begin <= before < first:
            regular, self._stride = first - before == self._stride, first - before
        else:
            regular, self._stride = True, self._stride or rows
        if regular and rows <= self._stride < rest.hi - first:
            ranks = _FirstRows(rows=rows, of=self._stride)
            source = replace(self._source, batch_size=self._stride, drop_last=False, ranks=ranks)
            jobs = source.jobs({"position": source.skips.position(first + self._stride)})
            self._jobs = OrderedMap(Job.run, jobs, self._limits, weigh=_bytes_of, name="penstock-readahead")
            self._abandon = weakref.finalize(self, self._jobs.abandon)
            self._abandon.atexit = False  # at exit the map ends its threads
            self._jobs.start()

    def _forget(self) -> None:
        """Forget what was read ahead. A forked process has no threads to end, and a lock of theirs may be taken."""
        self._ready.clear()
        jobs, self._jobs = self._jobs, None
        if jobs is not None and self._abandon is not None:
            self._abandon.detach()
            if self._home.is_here:
                jobs.close()
        self._home = HomeProcess("DataLoader")


def _has(batch: Batch, positions: IntArray) -> bool:
    """Whether a batch has these positions, which follow one another."""
    ticket = batch.ticket
    return batch.n == len(positions) and (ticket.position, ticket.stop) == (positions[0], positions[-1] + 1)


def _bytes_of(job: Job) -> int:
    return job.nbytes
