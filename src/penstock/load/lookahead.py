"""Ask for the bytes of later jobs behind a URL, so that threads do not wait for one answer after another.

The plan knows the rows of all jobs. Before a job is given out, the ranges of the next `AHEAD_BYTES` of rows are asked
for in one call, so that neighbouring ranges of different batches become one request. This is repeated when half of them
are used up. Where the first job has no ranges, as of local data, jobs are given out as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from penstock.files.remote import begin_fetch
from penstock.load.batch_source import Job

AHEAD_BYTES = 64 << 20  # at 1 GB/s and 20 ms of latency, 20 MB are under way
_FIRST, _MOST = 4, 256  # jobs of the first call, twice as many of each later one: the first ones measure a row


def looking_ahead(jobs: Iterator[Job], *, most_rows: bool) -> Iterator[Job]:
    """Yield each job after its bytes, and the bytes of the next jobs, were asked for.

    Args:
        jobs: The jobs, in order.
        most_rows: Whether the jobs read most rows of the data.
    """
    first = next(jobs, None)
    if first is None:
        return
    ranges = first.remote_ranges()
    begin_fetch(ranges, most=most_rows)
    yield first
    if not ranges:
        yield from jobs
        return
    waiting: deque[Job] = deque()
    most = _FIRST
    while True:
        nbytes = sum(job.nbytes for job in waiting)
        if 2 * len(waiting) <= most and 2 * nbytes <= AHEAD_BYTES:
            fresh: list[Job] = []
            for job in islice(jobs, most):
                fresh.append(job)
                nbytes += job.nbytes
                if nbytes >= AHEAD_BYTES:
                    break
            begin_fetch([wanted for job in fresh for wanted in job.remote_ranges()], most=most_rows)
            waiting.extend(fresh)
            most = min(2 * most, _MOST)
        if not waiting:
            return
        yield waiting.popleft()
