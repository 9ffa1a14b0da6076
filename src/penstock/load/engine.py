"""The engine of a loader: jobs on threads, in their order, as many at once as the consumer needs and memory allows."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.errors import PlanError
from penstock.load.cursor import Cursor
from penstock.load.feed import Batches, Job, State
from penstock.load.ticket import Batch

T = TypeVar("T")

MEMORY = 1 << 30  # bytes in flight by default, or a quarter of what is free, if that is less
LEAST_MEMORY = 1 << 24


@dataclass
class LoaderStats:
    """What a loader has done: batches and samples given out, and how long the consumer waited for them.

    `elapsed` counts seconds between the first request and the last delivery of each epoch, `waited` those of them
    spent inside the loader.

    >>> LoaderStats(batches=2, samples=512, elapsed=4.0, waited=1.0).waiting_share
    0.25
    """

    batches: int = 0
    samples: int = 0
    elapsed: float = 0.0
    waited: float = 0.0

    @property
    def waiting_share(self) -> float:
        """The part of the time that the consumer waited, 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0

    @property
    def rate(self) -> float:
        """Samples a second, the consumer's own work included."""
        return self.samples / self.elapsed if self.elapsed else 0.0


class Flow:
    """How many jobs may be in flight: `width` of them, of at most `memory` bytes together, one at least.

    What is not given sets itself: `threads` up to the cores, `memory` by what is free; and `width` begins at 1 and
    grows by one each time that the consumer has to wait, up to `most`. Where `threads` or `prefetch` are given, `width`
    is `prefetch` (by default `threads + 1`) from the beginning.

    Raises `PlanError` for impossible numbers.

    >>> flow = Flow(threads=None, prefetch=None, memory=1 << 20, limit=2)
    >>> flow.width, [flow.waited() for _ in range(5)] and flow.width
    (1, 3)
    """

    def __init__(self, threads: int | None, prefetch: int | None, memory: int | None, limit: int | None = None) -> None:
        if (threads is not None and threads < 0) or (prefetch is not None and prefetch < 1):
            raise PlanError(f"expected threads >= 0 and prefetch >= 1, got {threads} and {prefetch}")
        if memory is not None and memory < 1:
            raise PlanError(f"expected memory of at least one byte, got {memory}")
        wanted = cores() if threads is None else threads
        self.threads = wanted if limit is None else min(wanted, limit)
        self.memory = min(MEMORY, max(free_memory() // 4, LEAST_MEMORY)) if memory is None else memory
        self.most = prefetch or self.threads + 1
        self.width = 1 if threads is None and prefetch is None else self.most

    def waited(self) -> None:
        """The consumer came before the next batch was ready."""
        self.width = min(self.width + 1, self.most)

    def has_room(self, jobs: int, held: int, nbytes: int) -> bool:
        """Whether a job of `nbytes` may begin while `jobs` with `held` bytes are in flight."""
        return jobs == 0 or (jobs < self.width and held + nbytes <= self.memory)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that could be had without swapping, as the system estimates them; all its memory where it does not."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in lines:
            return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class LoaderIterator(Iterator[T]):
    """One epoch of a loader. Leaving it early (`close`, or garbage collection) stops its threads.

    Every batch goes through `hand_over`, `ahead` batches before the consumer asks for it.
    """

    def __init__(
        self, cursor: Cursor, flow: Flow, stats: LoaderStats, hand_over: Callable[[Batch], T], ahead: int
    ) -> None:
        self._cursor, self._flow, self._stats, self._hand_over, self._ahead = cursor, flow, stats, hand_over, ahead
        self._pool = ThreadPoolExecutor(flow.threads, "penstock-loader") if flow.threads else None
        self._pending: deque[tuple[Job, Future[Batches]]] = deque()
        self._ready: deque[tuple[Batch, State]] = deque()
        self._handed: deque[tuple[T, int, State]] = deque()
        self._epoch = cursor.feed.epoch(cursor.state)
        self._closed = False
        self._begin()
        self._last = time.perf_counter()

    def __next__(self) -> T:
        asked = time.perf_counter()
        if self._turn != self._cursor.turn and not self._closed:
            self._begin()
        while len(self._handed) <= self._ahead and (pulled := self._pull()):
            batch, state = pulled
            self._handed.append((self._hand_over(batch), batch.n, state))
        if not self._handed:
            self._end()
            raise StopIteration
        item, samples, state = self._handed.popleft()
        self._cursor.move(state)
        self._count(samples, asked)
        return item

    def _begin(self) -> None:
        """Forget what was prefetched, and go on from where the consumer stands, if that is in the same epoch."""
        for _, future in self._pending:
            future.cancel()
        for held in (self._pending, self._ready, self._handed):
            held.clear()
        feed, state = self._cursor.feed, self._cursor.state
        self._turn = self._cursor.turn
        self._jobs = feed.jobs(state) if feed.epoch(state) == self._epoch else iter(())
        self._job = next(self._jobs, None)

    def _end(self) -> None:
        if not self._closed:
            self._cursor.ended()
            self.close()

    def _pull(self) -> tuple[Batch, State] | None:
        if not self._ready:
            self._ready.extend(self._next_job())
        return self._ready.popleft() if self._ready else None

    def _next_job(self) -> Batches:
        try:
            batches = self._run_here() if self._pool is None else self._run_ahead(self._pool)
        except BaseException:
            self.close()
            raise
        if not batches:  # of a stream: it has ended, whatever was asked of it in advance
            self._job, self._jobs = None, iter(())
            self._pending.clear()
        return batches

    def _run_here(self) -> Batches:
        job, self._job = self._job, None
        batches = job.run() if job else []
        self._job = next(self._jobs, None)
        return batches

    def _run_ahead(self, pool: ThreadPoolExecutor) -> Batches:
        self._submit(pool)
        if not self._pending:
            return []
        _, future = self._pending.popleft()
        if not future.done():
            self._flow.waited()
            self._submit(pool)
        batches = future.result()
        self._submit(pool)
        return batches

    def _submit(self, pool: ThreadPoolExecutor) -> None:
        held = sum(job.nbytes for job, _ in self._pending)
        while self._job and self._flow.has_room(len(self._pending), held, self._job.nbytes):
            self._pending.append((self._job, pool.submit(self._job.run)))
            held += self._job.nbytes
            self._job = next(self._jobs, None)

    def _count(self, samples: int, asked: float) -> None:
        now, stats = time.perf_counter(), self._stats
        stats.batches += 1
        stats.samples += samples
        stats.waited += now - asked
        stats.elapsed += now - self._last
        self._last = now

    def close(self) -> None:
        """Cancel what is prefetched and end the threads. Closing twice is fine."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        for held in (self._pending, self._ready, self._handed):
            held.clear()
        self._job, self._jobs = None, iter(())

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()
