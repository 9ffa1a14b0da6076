"""Runs work in processes that are killed at a chosen moment: `python -m tests.jobs.crashing`.

Each line of the standard input is a JSON object: `plan`, `results`, and `die`, the number of the change below `root`
before which the process is killed, or 0. A change is an opening for writing, or a file or folder that is made, moved or
removed, or an object that is put or deleted by HTTP. With `range_bytes`, the work is done as by a command, which
removes its results in the end. The number of changes is written to the file `changes`, and what the command made, by
the name of its `case`, to `outcome`. A line is answered by the exit code of a process that was forked off for it.
"""

# pyright: basic

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.jobs import WorkOptions, run_in_parts
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.work_plan import WorkPlan
from tests.forking import serve
from tests.jobs.cases import CASES, ROLLOUT

# Which processes would import after they were forked off: half of what a small conversion costs.
IMPORTED = ("PIL.PngImagePlugin", "av", "h5py", "numcodecs", "pandas", "pyarrow.parquet")
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link"}


def die_at(number: int, root: str | tuple[str, ...]) -> Callable[[], int]:
    """Kill this process before a change below `root`, or below one of several folders.

    Return a function that returns the number of changes.
    """
    left = number

    def hear(event: str, details: tuple[Any, ...]) -> None:
        nonlocal left
        path = details[0] if details else None
        if event == "http.client.send":
            if not isinstance(details[1], bytes) or not details[1].startswith((b"PUT ", b"DELETE ")):
                return
            path = root if isinstance(root, str) else root[0]
        elif event == "open":
            if not isinstance(details[2], int) or not details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in CHANGES:
            return
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(root):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)
    return lambda: number - left


def task_of(folder: Path, die: int, **more: object) -> dict[str, Any]:
    """The task to work on the plan in a folder."""
    return {"plan": str(folder / "plan"), "results": str(folder / "results"), "root": str(folder), "die": die, **more}


def work(task: dict[str, Any]) -> None:
    """Run all jobs, and merge their results."""
    plan = WorkPlan.read(task["plan"])
    results = Path(task["results"])
    changes = die_at(task["die"], task["root"]) if task["die"] or "changes" in task else None
    if "range_bytes" in task:
        options = WorkOptions(runner="threads", jobs=0, range_bytes=str(task["range_bytes"]))
        with run_in_parts(plan.operation, plan.arguments, options, quiet=True, folder=results) as result:
            outcome = CASES[task["case"]].outcome(result, Path(task["root"]))
        assert changes is not None
        Path(task["changes"]).write_text(str(changes()))
        Path(task["outcome"]).write_bytes(pickle.dumps(outcome))
        return
    run_work(plan, results)
    finish_work(plan, results)


def warm_up() -> None:
    """Load what all processes need before they are forked off: kernels, and modules of formats."""
    for module in IMPORTED:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "data"
        flags = {"terminations": [False], "truncations": [True]}
        columns = {"observations": np.zeros((2, 2)), "actions": np.zeros((1, 1)), "rewards": [1.0], **flags}
        penstock.convert(penstock.from_arrays(columns, lengths=[1]), place)
        penstock.check(place, deep=True)
        penstock.recording.RolloutWorker(ROLLOUT).record(range(1), Path(folder) / "recorded")


if __name__ == "__main__":
    warm_up()
    serve(work)
