"""Requests of all hosts to one storage, and the arrival of the batches of a run: an event model.

Each host fetches *groups* of requests, in order, with `CONNECTIONS` connections, as the loader does. The loader keeps
one to two groups ahead (`load/lookahead.py`), so the requests of a group are made when the group two before it is
consumed. A request starts when a connection is free, and not before the share of this host in the requests a second
allows it. It takes its latency, then its bytes at the speed of a connection, and the bytes of all requests of a host
share its line. The line and the requests a second are the host's own, or its share of the limits of all hosts.

A *tick* is some batches. It begins when the tick before it ended and all hosts have its bytes, because ranks
synchronize gradients. So all hosts wait for the slowest one, which is why stragglers count more with more hosts.

`kernels.queueing` has the loop over requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.kernels.queueing import fetch_requests
from penstock.simulation.storage import StorageConstants

CONNECTIONS = 32
"""Requests at a time of a host (`locations.fetching.THREADS`)."""


@dataclass(frozen=True, eq=False)
class GroupRequests:
    """Requests of one group of batches, for each host.

    Args:
        nbytes: `[hosts, r]` float64 bytes of each request, 0 where a host has fewer.
        tick: `[hosts, r]` int64 number of the tick in the group that needs it first, ascending.
    """

    nbytes: FloatArray
    tick: IntArray


def waiting(
    groups: list[GroupRequests], ticks: int, seconds: float, storage: StorageConstants, rng: np.random.Generator
) -> FloatArray:
    """Return how long each tick is waited for.

    Args:
        groups: Groups of requests, in order.
        ticks: Ticks of a group.
        seconds: Time of a tick without waiting.
        storage: Constants of the storage.
        rng: Generator of random numbers.

    Returns:
        `[groups * ticks]` seconds that pass between the end of a tick and the start of the next one.

    Example:
        >>> slow = StorageConstants(latency=1.0, spread=0.0, connection=1e9, host=1e9)
        >>> one = GroupRequests(np.full((1, 1), 1e6), np.zeros((1, 1), np.int64))
        >>> waiting([one, one], 1, 0.5, slow, np.random.default_rng(0)).round(3).tolist()
        [1.001, 0.0]
    """
    hosts = groups[0].nbytes.shape[0]
    line = storage.host if storage.total is None else min(storage.host, storage.total / hosts)
    pause = 0.0 if storage.requests is None else hosts / storage.requests
    free = np.zeros((hosts, CONNECTIONS))
    line_free, slot = np.zeros(hosts), np.zeros(hosts)
    waits: list[float] = []
    now, released = 0.0, [0.0, 0.0]  # when groups are asked for
    for group, asked in zip(groups, released, strict=False):
        latency = storage.latencies(group.nbytes.shape, rng)
        speeds = np.array([asked, pause, storage.connection, line])
        ready = np.zeros((hosts, ticks))
        fetch_requests(group.nbytes, group.tick, latency, free, line_free, slot, speeds, ready)
        for begin in np.maximum.accumulate(ready.max(axis=0)).tolist():
            waits.append(max(begin - now, 0.0))
            now = max(now, begin) + seconds
        released.append(now)
    return np.array(waits)
