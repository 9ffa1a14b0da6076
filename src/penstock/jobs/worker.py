"""The process of a `ProcessRunner`: receives a work plan, then numbers, and sends results until the parent is gone."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from multiprocessing.connection import Connection

from penstock.jobs.runners import run_job
from penstock.jobs.work_plan import WorkPlan


def serve(connection: Connection, threads: int) -> None:
    """Run jobs until the connection is closed.

    Args:
        connection: Connection to the coordinator.
        threads: Threads that a job may use.
    """
    try:
        work = replace(WorkPlan.decode(connection.recv_bytes()), survey=connection.recv_bytes())
        while True:
            done = run_job(work, int(connection.recv_bytes()), threads)
            connection.send_bytes(repr(done.seconds).encode())
            connection.send_bytes(done.error.encode())
            if done.result is not None:
                connection.send_bytes(done.result)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the coordinator ended or was killed


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends this process
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
