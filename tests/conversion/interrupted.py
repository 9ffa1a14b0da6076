"""Runs conversions in processes that are killed at a chosen change of a file: `python -m tests.conversion.interrupted`.

Each line of the standard input is a JSON object: `source`, `out`, `format`, `options`, and `die`, the number of the
change at `out` before which the process is killed, or 0. A line is answered by the exit code of a process that was
forked off for it, and by the number of changes if it was not killed.
"""

# pyright: basic

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from tests.jobs.crashing import die_at


def audited(write: Callable[..., int]) -> Callable[..., int]:
    """A function that writes to a descriptor, and counts as a change of its file."""

    def call(fd: int, *arguments: Any) -> int:
        sys.audit("os.truncate", os.readlink(f"/proc/self/fd/{fd}"), 0)
        return write(fd, *arguments)

    return call


def convert(task: dict[str, Any]) -> int:
    """Convert, and return the number of changes."""
    out = Path(task["out"])
    changes = die_at(task["die"], (str(out), str(out.with_name(f".{out.name}"))))
    for name in ("write", "pwrite", "pwritev", "ftruncate"):
        setattr(os, name, audited(getattr(os, name)))
    penstock.convert(task["source"], out, format=task["format"], options=task["options"], certificate=False)
    return changes()


def main() -> None:
    """Answer each line. Formats are imported before, so that a process that is forked off has them."""
    os.fsync = lambda fd: None  # processes are killed, not the power
    tasks = [json.loads(text) for text in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        for number, task in enumerate(tasks):
            out = Path(folder, str(number), Path(task["out"]).name)
            penstock.convert(task["source"], out, format=task["format"], options=task["options"], certificate=False)
    for line in sys.stdin:
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.write(write, str(convert(json.loads(line))).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), os.read(read, 20).decode() or 0, flush=True)
        os.close(read)


if __name__ == "__main__":
    main()
