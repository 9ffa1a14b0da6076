"""Requests of hosts over a fixed number of connections each: the time at which the bytes of each tick arrive.

For each host, requests are taken in order. A request starts on the connection that is free first, not before `asked`
and not before the host's next slot. Its bytes take `latency`, then the speed of a connection, and pass through the line
of the host one request after the other, each with an overhead. Events of a host depend on its own requests alone, so
there is no queue of events: a request costs one look at the connections of its host. `tests/kernels/reference` has the
definition.
"""

from __future__ import annotations

from penstock.core.arrays import FloatArray, IntArray
from penstock.kernels.jit import uncounted_kernel


@uncounted_kernel("f8[2C] i8[2C] f8[2C] f8[1C] f8[2C] f8[1C] f8[1C] f8[1C] f8[2C]")
def fetch_requests(
    nbytes: FloatArray,
    tick: IntArray,
    latency: FloatArray,
    asked: FloatArray,
    free: FloatArray,
    line_free: FloatArray,
    slot: FloatArray,
    speeds: FloatArray,
    ready: FloatArray,
) -> None:
    """Advance the state of all hosts by a group of requests.

    Args:
        nbytes: `[hosts, r]` float64 bytes of each request, 0 where a host has fewer.
        tick: `[hosts, r]` int64 tick that needs each request.
        latency: `[hosts, r]` float64 seconds.
        asked: `[hosts]` float64, when each host asks for the requests.
        free: `[hosts, connections]` float64, when each connection is free. Updated.
        line_free: `[hosts]` float64, when the line of each host is free. Updated.
        slot: `[hosts]` float64, when each host may start its next request. Updated.
        speeds: `[4]` float64: seconds between two requests of a host, seconds that the line takes for each request
            beyond its bytes, bytes a second of a connection, and of a line.
        ready: `[hosts, ticks]` float64, time at which the requests of each tick end. Updated.
    """
    pause, overhead = speeds[0], speeds[1]
    connection, line = speeds[2], speeds[3]
    for host in range(len(nbytes)):
        for r in range(nbytes.shape[1]):
            size = nbytes[host, r]
            if size <= 0:
                continue
            chosen = 0
            for c in range(1, free.shape[1]):
                if free[host, c] < free[host, chosen]:
                    chosen = c
            start = max(free[host, chosen], asked[host], slot[host])
            first = start + latency[host, r]
            sent = max(first, line_free[host]) + overhead + size / line
            end = max(sent, first + size / connection)
            slot[host] = start + pause
            line_free[host] = sent
            free[host, chosen] = end
            ready[host, tick[host, r]] = max(ready[host, tick[host, r]], end)
