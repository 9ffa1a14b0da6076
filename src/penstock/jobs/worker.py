"""The process of a `ProcessRunner`: receives a work plan, then numbers, and sends results until the parent is gone.

It sends how long it took to start, and then three messages for each job. A thread waits for the end of the parent, so
that the process ends even in the middle of a long job.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

from penstock.jobs.runners import run_job
from penstock.jobs.work_plan import WorkPlan


def serve(connection: Connection, threads: int) -> None:
    """Run jobs until the connection is closed."""
    try:
        begin = time.perf_counter()
        work = replace(WorkPlan.decode(connection.recv_bytes()), survey=connection.recv_bytes())
        with suppress(Exception):  # jobs report it
            work.opened()
        connection.send_bytes(repr(time.perf_counter() - begin).encode())
        while True:
            done = run_job(work, int(connection.recv_bytes()), threads)
            connection.send_bytes(repr(done.seconds).encode())
            connection.send_bytes(done.error.encode())
            if done.result is not None:
                connection.send_bytes(done.result)
    except (EOFError, OSError):  # OSError without a number also means an end in the middle of a message
        return  # the coordinator ended or was killed


def end_with_parent(connection: Connection) -> None:
    """End this process when the other end of the connection is closed, even in the middle of a job."""
    poll = select.poll()
    poll.register(connection.fileno(), 0)  # only hang-ups
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends this process
    parent = Connection(int(sys.argv[1]))
    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    serve(parent, int(sys.argv[2]))
