"""Requests of all hosts to one storage, and the arrival of the batches of a run: an event model.

*Calls.* A loader asks for the bytes of several jobs in one call, when a thread takes a certain job (`FetchCall`). Its
requests begin in order on `CONNECTIONS` connections: when one is free, and not before the share of this host in the
requests a second allows it. A request takes its latency, then its bytes at the speed of a connection. The bytes of all
requests of a host share its line, and the bytes of all hosts the line of the storage. Each request also costs the host
some processor time.

*Jobs.* A thread takes the next job when it is free and there is room: `OrderedMap` lets `threads + 1` jobs be ahead of
the consumer. When all bytes of the job have arrived, the thread works on them, such as to decode them. Then the job is
done. It has several batches, and all of them are ready at that time.

*Steps.* A batch begins when the batch before it ended and all hosts have it, because ranks synchronize gradients. So
all hosts wait for the slowest one, which is why stragglers count more with more hosts.

`penstock_cluster.kernels.queueing` has the loop over requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock_cluster.kernels.queueing import fetch_requests
from penstock_cluster.simulation.storage import StorageConstants

CONNECTIONS = 32
"""Requests at a time of a host (`locations.fetching.THREADS`)."""


@dataclass(frozen=True)
class FetchCall:
    """Jobs whose bytes a loader asks for in one call."""

    taken: int
    batches: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HostRequests:
    """Requests of one call, for each host."""

    nbytes: FloatArray
    job: IntArray


@dataclass(frozen=True)
class LoaderThreads:
    """Threads of the loader of each host."""

    threads: int
    adaptive: bool
    work: float = 0.0

    @property
    def unmeasured(self) -> int:
        """Jobs that are taken at once in the beginning, before the first one has measured a row."""
        return min(2, self.threads) if self.adaptive else self.threads


def waiting(
    calls: Sequence[tuple[FetchCall, HostRequests]],
    seconds: float,
    storage: StorageConstants,
    loader: LoaderThreads,
    rng: np.random.Generator,
    hosts: int | None = None,
) -> FloatArray:
    """Return how long the batches of each call are waited for, without the first batch of all."""
    requested = len(calls[0][1].nbytes)
    network = _Network(requested, hosts or requested, storage, rng)
    loaders = _Loaders(requested, loader)
    owners = [(number, many) for number, (call, _) in enumerate(calls) for many in call.batches]
    upcoming = deque(calls)
    arrivals: list[FloatArray] = []
    waits: FloatArray = np.zeros(len(calls))
    now = 0.0
    for job, (number, many) in enumerate(owners):
        taken = loaders.take(job)
        while upcoming and upcoming[0][0].taken <= job:
            call, requests = upcoming.popleft()
            arrivals.extend(network.fetch(requests, taken, len(call.batches)).T)
        begin = loaders.receive(arrivals[job], many, now)
        waits[number] += begin - now if job else 0.0
        now = begin + many * seconds
    return waits


class _Network:
    """Connections and lines of some hosts, which have their share of the limits of all."""

    def __init__(self, hosts: int, sharing: int, storage: StorageConstants, rng: np.random.Generator) -> None:
        pause = 0.0 if storage.requests is None else sharing / storage.requests
        shared = np.inf if storage.total is None else storage.total * hosts / sharing
        self._storage, self._rng = storage, rng
        self._speeds = np.array([pause, storage.overhead, storage.latency, storage.connection, storage.host, shared])
        self._free = np.zeros((hosts, CONNECTIONS))
        self._slot = np.zeros(hosts)
        self._line_free, self._shared_free = np.zeros(hosts), np.zeros(1)

    def fetch(self, requests: HostRequests, asked: FloatArray, jobs: int) -> FloatArray:
        """Return when each host has the bytes of each job of a call, `[hosts, jobs]`."""
        hosts = len(asked)
        latency = self._storage.latencies(requests.nbytes.shape, self._rng)
        arrivals = np.tile(asked[:, None], jobs)
        state = (self._free, self._line_free, self._slot, self._shared_free)
        scratch = np.zeros(hosts), np.zeros(hosts, np.int64)
        fetch_requests(requests.nbytes, requests.job, latency, asked, *state, self._speeds, *scratch, arrivals)
        return arrivals


class _Loaders:
    """Threads of the loaders of some hosts, and the jobs that are ahead of their consumers."""

    def __init__(self, hosts: int, loader: LoaderThreads) -> None:
        self._most = loader.threads + 1
        self._work = loader.work
        self._width = np.full(hosts, 1 if loader.adaptive else self._most)
        self._free = np.zeros((hosts, loader.threads))
        self._taken = np.zeros(hosts)
        self._thread = np.zeros(hosts, np.int64)  # that took the last job
        self._received: deque[tuple[float, IntArray, FloatArray]] = deque(maxlen=self._most + 1)
        """Of the last jobs: when the consumers asked for each, jobs that may be ahead then, and when they had it."""

    def take(self, job: int) -> FloatArray:
        """Return when each host takes a job, `[hosts]`."""
        room: FloatArray = np.zeros(len(self._free)) if job == 0 else np.full(len(self._free), np.inf)
        first = job - len(self._received)
        for number, (asked, width, given) in enumerate(self._received, first):
            # A job counts as ahead until it is received. A request that has to wait may let one more job be ahead.
            room = np.minimum(room, np.where(job - number < width, asked, np.inf))
            room = np.minimum(room, np.where(job - number - 1 < width, given, np.inf))
        self._thread = self._free.argmin(axis=1)
        free = np.take_along_axis(self._free, self._thread[:, None], axis=1)[:, 0]
        self._taken = np.maximum(np.maximum(room, free), self._taken)
        return self._taken

    def receive(self, arrival: FloatArray, batches: int, now: float) -> float:
        """End the job that was taken last, which consumers request `now`. Return when all have it."""
        done = np.maximum(arrival, self._taken) + batches * self._work
        np.put_along_axis(self._free, self._thread[:, None], done[:, None], axis=1)
        self._width = np.where(done > now, np.minimum(self._width + 1, self._most), self._width)
        given = np.maximum(done, now)
        self._received.append((now, self._width, given))
        return float(given.max())
