"""Work in parts: the time of `check --deep`, statistics and a conversion by 1 and 2 processes, and what a job costs.

    python benchmarks/jobs.py --megabytes 512

Ranges are the default ones. Wall time is the best of three runs, without the start of the processes: the first job of
each, which opens the data and loads kernels, does not count. Wall times need as many free cores as processes, so the
load of the machine is printed.

CPU time depends little on the load. `serial` is that of the coordinator: it publishes results and merges them.
`start` is that of one process more, for imports and kernels. The rest, the jobs themselves, is divided among
processes. So `limit` is the speed-up of 2 processes on free cores, without their start: (jobs + serial) /
(jobs / 2 + serial), if storage is as quick for two. The cost of a job is the time of 500 jobs of one tiny episode.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from figures import record

import penstock
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ProcessRunner
from penstock.jobs.work_plan import WorkPlan

OPERATIONS: dict[str, dict[str, Any]] = {"stats": {}, "check": {"deep": True}, "convert": {}, "convert minari": {}}


def recording(folder: Path, megabytes: int) -> Path:
    rng = np.random.default_rng(0)
    steps = megabytes * 1_000_000 // (8 * 4)
    lengths = np.full(steps // 500, 500)
    n = int(lengths.sum())
    flags = {name: np.zeros(n, bool) for name in ("terminations", "truncations")}
    columns = {"observations": rng.standard_normal((n + len(lengths), 6)).astype("f4")}
    columns |= {"actions": np.zeros((n, 1), "f4"), "rewards": np.zeros(n, "f4"), **flags}
    penstock.convert(penstock.from_arrays(columns, lengths=lengths), folder / "data", certificate=False)
    return folder / "data"


class Times(NamedTuple):
    """Seconds of all jobs.

    Attributes:
        wall: Wall time but for the first job of each process.
        workers: CPU time of the processes.
        serial: CPU time of the coordinator, with the merge.
    """

    wall: float
    workers: float
    serial: float


def cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def measured(
    operation: str, arguments: dict[str, Any], folder: Path, jobs: int, range_bytes: int | None = None
) -> Times:
    place = folder / f"results-{time.time_ns()}"
    if operation.startswith("convert"):
        minari = {"to": "minari", "writer": {"data_format": "parquet"}} if "minari" in operation else {}
        arguments = {**arguments, "out": str(place.with_suffix(".out")), **minari}
    work = WorkPlan.make(operation.split(maxsplit=1)[0], arguments, range_bytes=range_bytes)
    times: list[float] = []
    workers = cpu(resource.RUSAGE_CHILDREN)
    work.opened()
    serial = cpu(resource.RUSAGE_SELF)
    run_work(work, place, ProcessRunner(jobs), on_job=lambda *_: times.append(time.perf_counter()))
    begin = time.perf_counter()
    finish_work(work, place)
    merged = time.perf_counter() - begin
    finished = len(times) - 1 - jobs
    wall = (times[-1] - times[jobs]) / finished * len(work) + merged
    return Times(wall, cpu(resource.RUSAGE_CHILDREN) - workers, cpu(resource.RUSAGE_SELF) - serial)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    size = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        place = recording(folder, size)
        print(f"{size} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for operation, more in OPERATIONS.items():
            arguments = {"location": str(place), **more}
            rounds = {jobs: [measured(operation, arguments, folder, jobs) for _ in range(3)] for jobs in (1, 2)}
            wall = {jobs: min(each.wall for each in times) for jobs, times in rounds.items()}
            used = {jobs: min(each.workers for each in times) for jobs, times in rounds.items()}
            start, serial = max(used[2] - used[1], 0.0), min(each.serial for each in rounds[1])
            parts = used[1] - start
            limit = (parts + serial) / (parts / 2 + serial)
            name = operation.replace(" ", "_")
            for key, value in (("one", wall[1]), ("two", wall[2]), ("jobs", parts), ("serial", serial)):
                record(f"{name}.{key}", value, "s")
            record(f"{name}.speedup", wall[1] / wall[2], "x")
            record(f"{name}.limit", limit, "x")
            print(
                f"{operation:14} 1 process {wall[1]:6.2f} s, 2 processes {wall[2]:6.2f} s, x{wall[1] / wall[2]:.2f}; "
                f"CPU of jobs {parts:.2f} s, start {start:.2f} s, serial {serial:.2f} s, limit x{limit:.2f}",
                flush=True,
            )
        tiny = penstock.from_arrays({"x": np.zeros(500)}, lengths=np.ones(500, np.int64))
        small = penstock.convert(tiny, folder / "small").out
        cost = measured("verify", {"location": str(small)}, folder, 1, 1)
        record("tiny", cost.wall / 500, "s")
        print(f"a job of almost nothing: {cost.wall / 500 * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
