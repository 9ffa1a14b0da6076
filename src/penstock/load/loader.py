"""The loader: batches in their exact order, prefetched by threads, resumable at the batch last consumed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from penstock.core.columns import Columns
from penstock.data.iter_dataset import IterDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, StateError
from penstock.load.feed import BlockFeed, Feed, Job, PositionFeed, State

VERSION = 1


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


class Loader:
    """Iterates a dataset in batches; each `for` loop is one epoch, or the rest of one after `load_state_dict`.

    `dataset` is a `MapDataset`, cut into batches of `batch_size` (the last of an epoch is short unless `drop_last`),
    or an `IterDataset`, whose blocks are the batches. `threads` plan and fetch ahead (0 does it in the caller);
    `prefetch` is how many jobs of some thousand samples wait ready, at most `threads + 1` by default. The order and
    the content of the batches do not depend on `threads` or `prefetch`.

    `state_dict()` is below 1 kB and says what the consumer has taken, whatever was prefetched; `load_state_dict` seeks
    in O(1). The batch size may change between the two.

    Raises `PlanError` for impossible arguments; `WorkerError` out of the loop if a batch could not be loaded.

    >>> import numpy as np, penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> loader = Loader(data.samples(), batch_size=4, threads=1)
    >>> [batch["rewards"].tolist() for batch in loader]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    >>> loader.state_dict()["position"]
    6
    """

    def __init__(
        self,
        dataset: MapDataset | IterDataset,
        batch_size: int | None = None,
        *,
        drop_last: bool = False,
        threads: int = 2,
        prefetch: int | None = None,
    ) -> None:
        self._feed = _feed(dataset, batch_size, drop_last)
        if threads < 0 or (prefetch is not None and prefetch < 1):
            raise PlanError(f"expected threads >= 0 and prefetch >= 1, got {threads} and {prefetch}")
        self.threads = threads if self._feed.threads is None else min(threads, self._feed.threads)
        self.prefetch = prefetch or self.threads + 1
        self.stats = LoaderStats()
        self._state = self._feed.start()

    def __len__(self) -> int:
        """Batches in a whole epoch. Raises `TypeError` for an `IterDataset`, whose length nobody knows."""
        if not isinstance(self._feed, PositionFeed):
            raise TypeError("an IterDataset has no length; count its batches as they come")
        return self._feed.batches()

    def __iter__(self) -> LoaderIterator:
        """The batches from the current state to the end of its epoch."""
        return LoaderIterator(self)

    def state_dict(self) -> State:
        """Where the consumer stands: plain JSON values, below 1 kB."""
        return {"version": VERSION, "fingerprint": self._feed.fingerprint, **self._state}

    def load_state_dict(self, state: State) -> None:
        """Continue where `state` was taken, at the next `iter()`.

        Raises `StateError` if it belongs to another dataset, plan or version, naming both.
        """
        rest = dict(state)
        version, fingerprint = rest.pop("version", None), rest.pop("fingerprint", None)
        if version != VERSION:
            raise StateError(f"expected a state of version {VERSION}, got version {version}")
        if fingerprint != self._feed.fingerprint:
            raise StateError(
                f"expected a state of the dataset and plan with fingerprint {self._feed.fingerprint}, got one of "
                f"{fingerprint}; build the dataset with the same data, transforms and seeds as the run that saved it"
            )
        self._feed.check(rest)
        self._state = rest

    def _consumed(self, state: State) -> None:
        self._state = state

    def _jobs(self) -> Iterator[Job]:
        return self._feed.jobs(self._state)

    def _restart(self) -> None:
        # A positional state runs on into the next epoch by itself; a stream begins anew.
        if not isinstance(self._feed, PositionFeed):
            self._state = self._feed.start()


class LoaderIterator(Iterator[Columns]):
    """One epoch of a `Loader`. Leaving it early (`close`, or garbage collection) stops its threads."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._jobs = loader._jobs()  # pyright: ignore[reportPrivateUsage]
        self._pool = ThreadPoolExecutor(loader.threads, "penstock-loader") if loader.threads else None
        self._pending: deque[Future[list[tuple[Columns, State]]]] = deque()
        self._ready: deque[tuple[Columns, State]] = deque()
        self._last = time.perf_counter()

    def __next__(self) -> Columns:
        asked = time.perf_counter()
        while not self._ready:
            batches = self._next_job()
            if not batches:
                self._loader._restart()  # pyright: ignore[reportPrivateUsage]
                self.close()
                raise StopIteration
            self._ready.extend(batches)
        batch, state = self._ready.popleft()
        self._loader._consumed(state)  # pyright: ignore[reportPrivateUsage]
        self._count(batch, asked)
        return batch

    def _next_job(self) -> list[tuple[Columns, State]]:
        if self._pool is None:
            job = next(self._jobs, None)
            return job() if job else []
        self._submit(self._pool)
        if not self._pending:
            return []
        try:
            batches = self._pending.popleft().result()
        except BaseException:
            self.close()
            raise
        self._submit(self._pool)
        return batches

    def _submit(self, pool: ThreadPoolExecutor) -> None:
        while len(self._pending) < self._loader.prefetch and (job := next(self._jobs, None)):
            self._pending.append(pool.submit(job))

    def _count(self, batch: Columns, asked: float) -> None:
        now, stats = time.perf_counter(), self._loader.stats
        stats.batches += 1
        stats.samples += batch.n
        stats.waited += now - asked
        stats.elapsed += now - self._last
        self._last = now

    def close(self) -> None:
        """Cancel what is prefetched and end the threads. Closing twice is fine."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._pending.clear()
        self._ready.clear()
        self._jobs = iter(())

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()


def _feed(dataset: MapDataset | IterDataset, batch_size: int | None, drop_last: bool) -> Feed:
    if isinstance(dataset, IterDataset):
        if batch_size is not None or drop_last:
            raise PlanError(
                f"expected no batch_size and drop_last for an IterDataset, whose blocks are the batches, "
                f"got {batch_size} and {drop_last}; call its rebatch({batch_size}, drop_last={drop_last})"
            )
        return BlockFeed(dataset)
    if batch_size is None or batch_size < 1:
        raise PlanError(f"expected a batch_size of at least 1 for a MapDataset, got {batch_size}")
    return PositionFeed(dataset, batch_size, drop_last)
