"""Definition of `penstock_cluster.kernels.queueing`: of all requests, the one that starts first is next."""

# pyright: basic

from __future__ import annotations

import math


def fetch_requests(nbytes, job, latency, request_time, free, line_free, slot, shared_free, speeds, begin, turn, ready):
    """Advance the state of all hosts by a group of requests."""
    pause, overhead, usual, speed, line, shared = speeds
    waiting = [[r for r in range(nbytes.shape[1]) if nbytes[host, r] > 0] for host in range(len(nbytes))]

    def start_of(host):
        return max(free[host].min(), request_time[host], slot[host])

    while any(waiting):
        host = min((h for h in range(len(waiting)) if waiting[h]), key=start_of)
        start, r = start_of(host), waiting[host].pop(0)
        size = nbytes[host, r]
        line_free[host] = max(start + usual, line_free[host]) + overhead + size / line
        ends = [line_free[host], start + latency[host, r] + size / min(speed, line)]
        if math.isfinite(shared):
            shared_free[0] = max(start + usual, shared_free[0]) + size / shared
            ends.append(shared_free[0])
        free[host, free[host].argmin()] = end = max(ends)
        slot[host] = start + pause
        ready[host, job[host, r]] = max(ready[host, job[host, r]], end)
