"""Definition of `kernels.queueing`: a request after the other, for all hosts at once."""

# pyright: basic

from __future__ import annotations

import numpy as np


def fetch_requests(nbytes, tick, latency, asked, free, line_free, slot, speeds, ready):
    """Advance the state of all hosts by a group of requests."""
    pause, overhead, speed, line = speeds
    rows = np.arange(len(nbytes))
    for r in range(nbytes.shape[1]):
        real = nbytes[:, r] > 0
        connection = free.argmin(axis=1)
        start = np.maximum(np.maximum(free[rows, connection], asked), slot)
        sent = np.maximum(start + latency[:, r], line_free) + overhead + nbytes[:, r] / line
        end = np.maximum(sent, start + latency[:, r] + nbytes[:, r] / speed)
        slot[:] = np.where(real, start + pause, slot)
        line_free[:] = np.where(real, sent, line_free)
        free[rows, connection] = np.where(real, end, free[rows, connection])
        ready[rows, tick[:, r]] = np.where(real, np.maximum(ready[rows, tick[:, r]], end), ready[rows, tick[:, r]])
