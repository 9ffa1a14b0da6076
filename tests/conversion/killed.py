"""Converts in processes that are killed at one of their calls of the system: `python -m tests.conversion.killed`.

Each line of the standard input is a JSON object: `source`, `out`, `format` and `options` of the conversion, `at`, the
number of the call before which the process is killed, or -1, and `calls`, a file for the number of calls.
"""

from __future__ import annotations

import importlib
import signal
from pathlib import Path
from typing import Any

import penstock
from tests.forking import Forks, kill_before_call, serve

IMPORTED = ("h5py", "penstock.conversion.certificate", "pyarrow.parquet")
CALLS = ("replace", "rename", "pwrite", "pwritev", "write", "unlink", "mkdir", "ftruncate", "fsync")  # change the disk


class Conversions(Forks):
    """A process that forks off one for each conversion."""

    def __init__(self) -> None:
        super().__init__("tests.conversion.killed")

    def convert(self, source: Path, out: Path, format: str, options: dict[str, Any], at: int = -1) -> int:
        """Convert, killed before a call; return the number of calls if it was not killed, otherwise 0."""
        calls = out.with_name("calls")
        places = {"source": str(source), "out": str(out), "calls": str(calls)}
        code = self.run({**places, "format": format, "options": options, "at": at})
        assert code in (0, -signal.SIGKILL)
        if code:
            return 0
        number = int(calls.read_text())
        calls.unlink()
        return number


def work(task: dict[str, Any]) -> None:
    calls = kill_before_call(task["at"], CALLS)
    penstock.convert(task["source"], task["out"], format=task["format"], options=task["options"])
    Path(task["calls"]).write_text(str(calls()))


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    serve(work)
