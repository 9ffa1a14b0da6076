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

`kernels.queueing` has the loop over requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.kernels.queueing import fetch_requests
from penstock.simulation.storage import StorageConstants

CONNECTIONS = 32
"""Requests at a time of a host (`locations.fetching.THREADS`)."""


@dataclass(frozen=True)
class FetchCall:
    """Jobs whose bytes a loader asks for in one call.

    Args:
        taken: Number of the job that a thread takes just then.
        batches: Batches of each job of the call.
    """

    taken: int
    batches: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HostRequests:
    """Requests of one call, for each host.

    Args:
        nbytes: `[hosts, r]` float64 bytes of each request, 0 where a host has fewer.
        job: `[hosts, r]` int64 number of the job in the call that needs it first, ascending.
    """

    nbytes: FloatArray
    job: IntArray


@dataclass(frozen=True)
class LoaderThreads:
    """Threads of the loader of each host.

    Args:
        threads: Most threads.
        adaptive: Whether the loader begins with one job ahead, and adds one each time that the consumer waits.
        work: Seconds that a thread works for a batch after its bytes have arrived. The default is 0.
    """

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
    """Return how long the batches of each call are waited for, without the first batch of all.

    Args:
        calls: Calls and their requests, in order.
        seconds: Time of a step without waiting.
        storage: Constants of the storage.
        loader: Threads of the loader of each host.
        rng: Generator of random numbers.
        hosts: All hosts, which share the limits of the storage. The default is None: the hosts in `calls`.

    Returns:
        `[calls]` seconds.

    Example:
        >>> slow = StorageConstants(latency=1.0, spread=0.0, connection=1e9, host=1e9)
        >>> one = HostRequests(np.full((1, 1), 1e6), np.zeros((1, 1), np.int64))
        >>> calls = [(FetchCall(job, (1,)), one) for job in range(3)]
        >>> waiting(calls, 0.5, slow, LoaderThreads(1, False), np.random.default_rng(0)).round(3).tolist()
        [0.0, 0.501, 0.501]
    """
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
