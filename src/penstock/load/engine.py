"""Run the jobs of a loader on threads, in order, within limits of jobs and memory."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.turns import Turns
from penstock.errors import PlanError
from penstock.load.cursor import Cursor
from penstock.load.feed import Batches, Job, State
from penstock.load.ticket import Batch

T = TypeVar("T")

MEMORY = 1 << 30  # bytes in flight by default, or a quarter of what is free, if that is less
LEAST_MEMORY = 1 << 24


@dataclass
class LoaderStats:
    """Counts and times of a loader.

    Args:
        batches: Batches that the consumer received.
        samples: Samples that the consumer received.
        jobs: Jobs that the batches were cut from.
        elapsed: Seconds from the first request to the last delivery of each epoch.
        waited: Part of these seconds that the consumer waited for the loader.

    Example:
        >>> LoaderStats(batches=2, samples=512, elapsed=4.0, waited=1.0).waiting_share
        0.25
    """

    batches: int = 0
    samples: int = 0
    jobs: int = 0
    elapsed: float = 0.0
    waited: float = 0.0

    @property
    def waiting_share(self) -> float:
        """Fraction of the time that the consumer waited, 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0

    @property
    def rate(self) -> float:
        """Samples a second, with the consumer's own work."""
        return self.samples / self.elapsed if self.elapsed else 0.0


class Flow:
    """Limits for jobs in flight: at most `width` jobs and `memory` bytes, but always one job.

    If neither `threads` nor `prefetch` is given, `width` starts at 1 and grows by one each time that the consumer
    waits, up to `most`. Otherwise `width` is `prefetch`.

    Args:
        threads: Number of threads. The default None is the number of cores.
        prefetch: Most jobs in flight. The default None is `threads + 1`.
        memory: Bytes. The default None is 1 GiB, or a quarter of the free memory if that is less.
        limit: Most threads. The default is None: no limit.

    Raises:
        PlanError: A number is out of range.

    Example:
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
        """Count that the consumer asked before the next batch was ready."""
        self.width = min(self.width + 1, self.most)

    def has_room(self, jobs: int, held: int, nbytes: int) -> bool:
        """Return whether another job may start.

        Args:
            jobs: Jobs in flight.
            held: Their bytes.
            nbytes: Bytes of the new job.
        """
        return jobs == 0 or (jobs < self.width and held + nbytes <= self.memory)


def cores() -> int:
    """Return the number of cores that this process may use.

    Example:
        >>> cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Return the free memory in bytes, as the system estimates it, or all memory if it does not.

    Example:
        >>> free_memory() > 0
        True
    """
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in lines:
            return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class LoaderIterator(Iterator[T]):
    """Iterator over one epoch of a loader. Closing or deleting it stops its threads.

    Threads may share the iterator; each batch is yielded once. A forked process gets a `WorkerError`. After an error or
    an interrupt, the next batch is the one that the consumer did not get.

    Args:
        cursor: Position of the loader.
        flow: Limits for jobs in flight.
        stats: Counts to update.
        hand_over: Function to pass every batch through.
        ahead: How many batches to pass before the consumer asks for them.
    """

    def __init__(
        self, cursor: Cursor, flow: Flow, stats: LoaderStats, hand_over: Callable[[Batch], T], ahead: int
    ) -> None:
        self._cursor, self._flow, self._stats, self._hand_over, self._ahead = cursor, flow, stats, hand_over, ahead
        self._turns = Turns("this iterator of a loader")
        self._pool: ThreadPoolExecutor | None = None  # made for the first job that needs it
        self._abandon: weakref.finalize[..., Any] | None = None
        self._pending: deque[tuple[Job, Future[Batches]]] = deque()
        self._ready: deque[tuple[Batch, State]] = deque()
        self._handed: deque[tuple[T, int, State]] = deque()
        self._epoch = cursor.feed.epoch(cursor.state)
        self._began, self._given = cursor.state, 0  # where the epoch was taken up, and how many samples came since
        self._closed = False
        self._begin()
        self._last = time.perf_counter()

    def __next__(self) -> T:
        with self._turns:
            try:
                return self._taken()
            except StopIteration:
                raise
            except CancelledError:  # a signal handler closed the iterator meanwhile
                raise StopIteration from None
            except BaseException:
                # An interrupt may come between any two steps, so nothing that was prefetched is believed any more.
                self._turn = None
                self._stop(wait=False)
                raise

    def _taken(self) -> T:
        asked = time.perf_counter()
        while not self._closed:
            turn = self._turn
            if turn != self._cursor.turn:
                turn = self._begin()
            while len(self._handed) <= self._ahead and (pulled := self._pull()):
                batch, state = pulled
                self._handed.append((self._hand_over(batch), batch.n, state))
            if not self._handed:
                self.close()
                self._cursor.ended(self._began, self._given)
                break
            item, samples, state = self._handed.popleft()
            self._given += samples
            if self._cursor.move(state, turn):  # else another thread loaded a state or skipped samples meanwhile
                self._count(samples, asked)
                return item
        raise StopIteration

    def _begin(self) -> int:
        """Forget prefetched batches, and continue from the consumer's position if that is in the same epoch."""
        self._forget()
        self._turn, feed, state = self._cursor.place()
        self._jobs = feed.jobs(state) if feed.epoch(state) == self._epoch else iter(())
        self._job = next(self._jobs, None)
        return self._turn

    def _forget(self) -> None:
        for _, future in self._pending:
            future.cancel()
        for held in (self._pending, self._ready, self._handed):
            held.clear()
        self._job, self._jobs = None, iter(())

    def _pull(self) -> tuple[Batch, State] | None:
        if not self._ready:
            self._ready.extend(self._next_job())
        return self._ready.popleft() if self._ready else None

    def _next_job(self) -> Batches:
        batches = self._run_ahead() if self._flow.threads else self._run_here()
        if not batches:  # of a stream: it has ended, whatever was asked of it in advance
            self._pending.clear()
            self._job, self._jobs = None, iter(())
        else:
            self._stats.jobs += 1
        return batches

    def _run_here(self) -> Batches:
        job, self._job = self._job, None
        batches = job.run() if job else []
        self._job = next(self._jobs, None)
        return batches

    def _run_ahead(self) -> Batches:
        self._submit()
        if not self._pending:  # at the end, or where the interpreter is exiting and its threads take no more work
            return self._run_here()
        _, future = self._pending.popleft()
        if not future.done():
            self._flow.waited()
            self._submit()
        batches = future.result()
        self._submit()
        return batches

    def _submit(self) -> None:
        held = sum(job.nbytes for job, _ in self._pending)
        while self._job and self._flow.has_room(len(self._pending), held, self._job.nbytes):
            if (future := self._submitted(self._job)) is None:
                return
            self._pending.append((self._job, future))
            held += self._job.nbytes
            self._job = next(self._jobs, None)

    def _submitted(self, job: Job) -> Future[Batches] | None:
        """Send a job to a thread. Return None if the interpreter is exiting."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._flow.threads, "penstock-loader")
            # Not `__del__`: it may run in any thread, with any lock held, and late at exit.
            self._abandon = weakref.finalize(self, _abandoned, self._pool, os.getpid())
            self._abandon.atexit = False  # at exit the pool ends its threads by itself
        try:
            return self._pool.submit(job.run)
        except RuntimeError as error:
            if "shutdown" not in str(error):  # such as no room for one more thread
                raise
            return None

    def _count(self, samples: int, asked: float) -> None:
        now, stats = time.perf_counter(), self._stats
        stats.batches += 1
        stats.samples += samples
        stats.waited += now - asked
        stats.elapsed += now - self._last
        self._last = now

    def _stop(self, *, wait: bool) -> None:
        """Stop the threads after their current work."""
        if self._abandon is not None:
            self._abandon.detach()
        pool, self._pool, self._abandon = self._pool, None, None
        if pool is not None and not self._turns.elsewhere:
            pool.shutdown(wait=wait, cancel_futures=True)

    def close(self) -> None:
        """Cancel prefetched jobs and stop the threads. Another thread that waits for a batch gets it first.

        A second call does nothing.
        """
        if self._turns.elsewhere:
            self._closed = True
            return
        with self._turns:
            self._closed = True
            self._forget()
            self._stop(wait=True)


def _abandoned(pool: ThreadPoolExecutor, process: int) -> None:
    """Stop the threads of a deleted iterator, without waiting.

    The thread that collects garbage may own a lock that they need.
    """
    if os.getpid() == process:
        pool.shutdown(wait=False, cancel_futures=True)
