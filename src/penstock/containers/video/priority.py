"""Keep an encoder from making this process a real-time one.

SVT-AV1, the encoder of AV1, asks for the highest real-time priority where it runs as root: for its own threads, and for
the thread that opens it, with all that this thread starts later. Such threads take a core before all others: a command
that encodes on as many threads as there are cores stops everything else on the machine for seconds. The encoder has no
option against it, so its threads get the priority of the caller back as soon as it is open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

THREADS = "/proc/self/task"


@contextmanager
def same_priority() -> Generator[None]:
    """Give the thread that runs the block, and all threads that begin within it, the scheduling that it had before.

    Elsewhere than on Linux nothing is changed.
    """
    if sys.platform != "linux":
        yield
        return
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    before = set(os.listdir(THREADS))
    try:
        yield
    finally:
        for thread in (0, *map(int, set(os.listdir(THREADS)) - before)):
            with suppress(ProcessLookupError):  # the thread has ended
                if os.sched_getscheduler(thread) != policy:
                    os.sched_setscheduler(thread, policy, priority)
