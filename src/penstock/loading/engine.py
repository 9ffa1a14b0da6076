"""Run the jobs of a loader on threads, in order, within limits of jobs and memory."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeVar

from penstock.core.cache import CacheLimit, caches_within
from penstock.core.turns import Turns
from penstock.errors import ArgumentError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import Metrics
from penstock.flow.ordered_map import OrderedMap
from penstock.loading.batch_source import Batches, Job, State, Timed
from penstock.loading.cursor import Cursor, CursorPlace
from penstock.loading.ticket import Batch

T = TypeVar("T")

LOADER = "loader"  # stage whose threads do the jobs


@dataclass(frozen=True)
class LoaderStats:
    """Counts and times of a loader so far, as its metrics have them.

    Args:
        batches: Batches that the consumer received.
        samples: Samples that the consumer received.
        jobs: Jobs that the batches were cut from.
        elapsed: Seconds from the first request to the last delivery of each epoch.
        waited: Part of these seconds that the consumer waited for the loader.
        snapshot: Plain values of all stages, as `penstock.flow.metrics.Metrics.snapshot` has them: of a live pipeline,
            or of `loader`, the stages that its threads run, and `consumer`. `penstock_live.MetricsEndpoint` serves
            them, for Prometheus and `penstock top`.

    Example:
        >>> LoaderStats(batches=2, samples=512, elapsed=4.0, waited=1.0).waiting_share
        0.25
    """

    batches: int = 0
    samples: int = 0
    jobs: int = 0
    elapsed: float = 0.0
    waited: float = 0.0
    snapshot: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    @classmethod
    def of(cls, metrics: Metrics, snapshot: dict[str, Any] | None = None) -> LoaderStats:
        """Return the counts and times in the metrics of a loader.

        Args:
            metrics: Metrics that a `LoaderIterator` updates.
            snapshot: Plain values of all stages. The default is None: none.
        """
        if LOADER not in metrics.stages:  # no loop has begun
            return cls(snapshot=snapshot or {})
        consumer, jobs = metrics.consumer(), metrics.stage(LOADER).counts["jobs"]
        counts = (consumer.batches, consumer.received_samples, jobs)
        return cls(*counts, consumer.elapsed, consumer.waited, snapshot or {})

    @property
    def waiting_share(self) -> float:
        """Fraction of the time that the consumer waited, 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0

    @property
    def rate(self) -> float:
        """Samples a second, with the consumer's own work."""
        return self.samples / self.elapsed if self.elapsed else 0.0


class LoaderIterator(Iterator[T]):
    """Iterator over one epoch of a loader, which its first `next` begins. Closing or deleting it stops its threads.

    Threads may share the iterator; each batch is yielded once. A forked process gets a `WorkerError`. After an error or
    an interrupt, the next batch is the one that the consumer did not get.

    Args:
        cursor: Position of the loader.
        limits: Limits for jobs in flight.
        hand_over: Function to pass every batch through.
        ahead: How many batches to pass before the consumer asks for them.
        metrics: Counts and times of the stages to update.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps()
        >>> batches = iter(data.loader(batch_size=4))
        >>> type(batches).__name__, next(batches)["x"].tolist()
        ('LoaderIterator', [0, 1, 2, 3])
    """

    def __init__(
        self,
        cursor: Cursor,
        limits: PrefetchLimits,
        hand_over: Callable[[Batch], T],
        ahead: int,
        metrics: Metrics,
    ) -> None:
        self._cursor = cursor
        self._limits = limits
        self._hand_over = hand_over
        self._ahead = ahead
        self._metrics, self._consumer = metrics, metrics.consumer()
        self._turns = Turns("iterator of a loader")
        self._jobs: OrderedMap[Job, Batches] | None = None  # the jobs under way, in their order
        self._abandon: weakref.finalize[..., Any] | None = None
        self._caches: CacheLimit | None = None  # of all caches of the process, until the iterator is closed
        self._ready: deque[tuple[Batch, State]] = deque()
        self._handed: deque[tuple[T, int, State]] = deque()
        self._place: CursorPlace | None = None  # where the batches under way begin; None: they are to be begun
        self._after: tuple[CursorPlace, State] | None = None  # after the last batch that was given
        self._epoch: int | None = None  # known with the first batch
        self._began, self._given = cursor.state, 0  # where the epoch was taken up, and how many samples came since
        self._exhausted = False
        self._closed = False
        self._last = time.perf_counter()

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            "expected a loader to pickle, which is pickled where it stands, got its iterator, whose threads stay in "
            "this process; or save loader.state_dict(), and load it into a loader there"
        )

    def __bool__(self) -> bool:
        return True  # rather than by its length

    def __len__(self) -> NoReturn:
        raise TypeError(
            "the iterator of a loader has no len(); loop over it as it is, for it yields whole batches, or take "
            "loader.data_loader(), which is a DataLoader; len(loader) counts the batches of an epoch"
        )

    def __next__(self) -> T:
        with self._turns:
            try:
                return self._next()
            except StopIteration:
                raise
            except BaseException:
                # An interrupt may come between any two steps, so nothing that was prefetched is believed any more.
                ended = self._jobs is not None and self._jobs.closed  # by a signal handler, or the interpreter exits
                self._place = None
                self._forget()
                if ended:
                    raise StopIteration from None
                raise

    def _next(self) -> T:
        requested = time.perf_counter()
        while not self._closed:
            place = self._place
            if place is None or place.turn != self._cursor.turn:
                place = self._begin()
            while len(self._handed) <= self._ahead and (pulled := self._pull()):
                batch, state = pulled
                self._handed.append((self._hand_over(batch), batch.n, state))
            if not self._handed:
                self.close()
                self._exhausted = True
                self._cursor.ended(self._began, self._given)
                break
            item, samples, state = self._handed.popleft()
            self._given += samples
            if self._cursor.move(place, state):  # else another thread loaded a state or skipped samples meanwhile
                self._after = place, state
                self._count(samples, requested)
                return item
        raise StopIteration

    @property
    def over(self) -> bool:
        """Whether the consumer has received the last batch of the epoch, or asked for more of a stream than it has."""
        if self._exhausted or self._after is None:
            return self._exhausted
        place, state = self._after
        return place.source.epoch(state) != self._epoch

    def _begin(self) -> CursorPlace:
        """Forget prefetched batches, and begin an epoch, or go on where the consumer is if that is the same epoch."""
        self._forget()
        place = self._cursor.place(self._after)
        _, source, state = place
        epoch = source.epoch(state)
        if self._after is None:
            self._began, self._epoch = state, epoch
        if epoch == self._epoch:
            self._caches = self._caches or caches_within(self._limits.memory // 2)
            stage = self._metrics.stage(LOADER, max(self._limits.threads, 1))
            run = partial(_run, timed_by(self._metrics))
            jobs = OrderedMap(
                run, source.jobs(state), self._limits, weigh=_bytes_of, metrics=stage, name="penstock-loader"
            )
            # Not `__del__`: it may run in any thread, while any lock is taken, and late at exit.
            self._jobs, self._abandon = jobs, weakref.finalize(self, jobs.abandon)
            self._abandon.atexit = False  # at exit the map ends its threads
        self._place = place
        return place

    def _forget(self) -> None:
        """Forget prefetched batches. Threads end after their current work, which is not waited for."""
        self._ready.clear()
        self._handed.clear()
        jobs, self._jobs = self._jobs, None
        if jobs is not None and self._abandon is not None:
            self._abandon.detach()
            jobs.close()

    def _pull(self) -> tuple[Batch, State] | None:
        if not self._ready and self._jobs is not None:
            batches = next(self._jobs, None)
            if batches:
                samples = sum(batch.n for batch, _ in batches)
                self._metrics.stage(LOADER).add(jobs=1, batches=len(batches), samples=samples)
                self._ready.extend(batches)
            else:  # of a stream: it has ended before all requested batches
                self._jobs.close()
                self._jobs = None
        return self._ready.popleft() if self._ready else None

    def _count(self, samples: int, requested: float) -> None:
        now = time.perf_counter()
        self._consumer.received(samples, now - requested, now - self._last)
        self._last = now

    def close(self) -> None:
        """Cancel prefetched jobs and stop the threads. Another thread that waits for a batch gets it first.

        A second call does nothing.
        """
        if not self._turns.home.is_here:
            self._closed = True
            return
        with self._turns:
            self._closed = True
            jobs = self._jobs
            self._forget()
            self._caches = None
            if jobs is not None:
                jobs.join()


def timed_by(metrics: Metrics) -> Timed:
    """Return a function that does the work of a stage and times it."""

    def timed(name: str, work: Callable[[], Any]) -> Any:
        stage = metrics.stage(name)
        stage.gauges["part_of"] = LOADER  # whose threads do the work
        with stage.work():
            return work()

    return timed


def _run(timed: Timed, job: Job) -> Any:
    """Begin a job. The threads refer to this function, and not to the iterator, so that it can be deleted."""
    return job.work(timed)  # the map makes a list of a generator


def _bytes_of(job: Job) -> int:
    return job.nbytes
