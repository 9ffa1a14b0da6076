"""Pieces of work, each in a process of its own, forked off from one that has imported what they all need.

A start of Python that imports PyTorch takes seconds, and one that imports penstock with its kernels a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 60
SERVER = ForkServerContext()
SERVER.set_forkserver_preload(["penstock.data.dataset", "pyarrow.parquet", "pytest", "torch"])


def forked(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that calls a function, with the environment of now, forked off one that has imported the most.

    For tests of processes that run at one time. A process whose start or end is tested is `python -c`.
    """
    process = SERVER.Process(target=_in_environment, args=(dict(os.environ), work, arguments))
    process.start()
    return process


def _in_environment(environment: dict[str, str], work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.fsync = lambda fd: None
    work(*arguments)


class Forks:
    """A process without threads, `python -m module`, which calls `serve` and forks off one process for each task."""

    def __init__(self, module: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", module]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True, cwd=ROOT)

    def run(self, task: dict[str, Any]) -> int:
        """Do one task, which is sent as JSON; return the exit code of its process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.process.wait(SECONDS) == 0


def kill_before_call(number: int, names: Iterable[str]) -> Callable[[], int]:
    """Let this process be killed before its call `number` of functions of `os`; return what counts the calls so far."""
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return made

    for name in names:
        setattr(os, name, counted(getattr(os, name)))
    return lambda: calls


def serve(work: Callable[[dict[str, Any]], None]) -> None:
    """Do the task of each line of the standard input in a forked process, and answer its exit code.

    No task waits for the disk, as in the other tests.
    """
    os.fsync = lambda fd: None
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
