"""Ask for the bytes of later jobs behind a URL, so that threads do not wait for one answer after another.

The plan knows the rows of all jobs. Before it yields a job, `looking_ahead` requests the ranges of the next
`AHEAD_BYTES` of rows in one call, so that neighbouring ranges of different batches become one request. It does so again
when half of them are used up. Local data has no ranges: then it yields jobs as they come.

`with_requested` decides from sizes alone when to request which jobs. `penstock_cluster.simulation` runs it too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Protocol, TypeVar

from penstock.files.remote import begin_fetch
from penstock.loading.batch_source import Job

AHEAD_BYTES = 64 << 20  # at 1 GB/s and 20 ms of latency, 20 MB are under way
_FIRST, _MOST = 4, 256  # jobs of the second call, each later call has twice the jobs: the first ones measure a row


class Sized(Protocol):
    """Something that takes bytes, such as a `Job`."""

    @property
    def nbytes(self) -> float:
        """The bytes."""
        ...


S = TypeVar("S", bound=Sized)


def looking_ahead(jobs: Iterator[Job], *, most_rows: bool) -> Iterator[Job]:
    """Yield each job after its bytes, and the bytes of the next jobs, were asked for."""
    remote: bool | None = None
    for job, fresh in with_requested(jobs, AHEAD_BYTES):
        if fresh:
            ranges = [wanted for each in fresh for wanted in each.remote_ranges()]
            begin_fetch(ranges, most=most_rows)
            remote = bool(ranges) if remote is None else remote
        yield job
        if not remote:
            yield from jobs
            return


def with_requested(jobs: Iterator[S], ahead_bytes: float) -> Iterator[tuple[S, list[S]]]:
    """Yield each job with the jobs whose bytes to request just before, perhaps none."""
    waiting: deque[S] = deque(islice(jobs, 1))
    fresh = list(waiting)
    most = _FIRST
    while waiting:
        yield waiting.popleft(), fresh
        fresh: list[S] = []
        nbytes = sum(job.nbytes for job in waiting)
        if 2 * len(waiting) <= most and 2 * nbytes <= ahead_bytes:
            for job in islice(jobs, most):
                fresh.append(job)
                nbytes += job.nbytes
                if nbytes >= ahead_bytes:
                    break
            waiting.extend(fresh)
            most = min(2 * most, _MOST)
