"""Requests of hosts over a fixed number of connections each: the time at which the bytes of each job arrive.

For each host, requests are taken in order. A request starts on the connection that is free first, not before
`request_time` and not before the host's next slot. Its bytes take `latency`, then the speed of a connection.

They also pass through the line of the host, and through the line that all hosts share. A line reserves time for
requests in the order in which they start, from the moment when a usual request has its first byte: a straggler does
not block the requests behind it. Hosts without a shared line are independent of each other, so they are simulated one
by one. Hosts with one take turns: next is the request that starts first. The tests have the definition.
"""

from __future__ import annotations

from penstock.core.arrays import FloatArray, IntArray
from penstock.kernels.jit import helper, kernel


@kernel("f8[2C] i8[2C] f8[2C] f8[1C] f8[2C] f8[1C] f8[1C] f8[1C] f8[1C] f8[1C] i8[1C] f8[2C]")
def fetch_requests(
    nbytes: FloatArray,
    job: IntArray,
    latency: FloatArray,
    request_time: FloatArray,
    free: FloatArray,
    line_free: FloatArray,
    slot: FloatArray,
    shared_free: FloatArray,
    speeds: FloatArray,
    begin: FloatArray,
    turn: IntArray,
    ready: FloatArray,
) -> None:
    """Advance the state of all hosts by a group of requests."""
    pause, overhead, usual = speeds[0], speeds[1], speeds[2]
    connection, line, shared = speeds[3], speeds[4], speeds[5]
    hosts, many = nbytes.shape
    for host in range(hosts):
        turn[host] = 0
        begin[host] = max(request_time[host], slot[host], free[host, _first(free, host)])
    host = 0
    is_shared = shared < float("inf")
    for _ in range(hosts * many):
        if is_shared:
            host = -1
            for h in range(hosts):
                if turn[h] < many and (host < 0 or begin[h] < begin[host]):
                    host = h
        elif turn[host] == many:
            host += 1
        r = turn[host]
        turn[host] += 1
        size = nbytes[host, r]
        if size <= 0:
            continue
        start = begin[host]
        sent = max(start + usual, line_free[host]) + overhead + size / line
        line_free[host] = sent
        end = max(sent, start + latency[host, r] + size / min(connection, line))
        if is_shared:
            shared_free[0] = max(start + usual, shared_free[0]) + size / shared
            end = max(end, shared_free[0])
        slot[host] = start + pause
        free[host, _first(free, host)] = end
        begin[host] = max(request_time[host], slot[host], free[host, _first(free, host)])
        ready[host, job[host, r]] = max(ready[host, job[host, r]], end)


@helper
def _first(free: FloatArray, host: int) -> int:
    """The connection of a host that is free first."""
    chosen = 0
    for c in range(1, free.shape[1]):
        if free[host, c] < free[host, chosen]:
            chosen = c
    return chosen
