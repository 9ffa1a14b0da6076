"""Work in parts: the time of `check --deep`, statistics and a conversion by 1 and 2 processes, and what a job costs.

    python benchmarks/jobs.py --megabytes 512

Each line has the best of three runs, in seconds of wall time, without the start of the processes: the first job of
each, which opens the data and loads kernels, does not count. The cost of a job is the time of 500 jobs of one tiny
episode, divided by 500. Speed-up needs as many free cores as processes; the load of the machine is printed too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.jobs.coordinator import run_work
from penstock.jobs.runners import ProcessRunner
from penstock.jobs.work_plan import WorkPlan


def recording(folder: Path, megabytes: int) -> Path:
    rng = np.random.default_rng(0)
    steps = megabytes * 1_000_000 // (64 * 4)
    lengths = np.full(steps // 500, 500)
    columns = {"observations": rng.standard_normal((int(lengths.sum()), 64)).astype("f4")}
    penstock.convert(penstock.from_arrays(columns, lengths=lengths), folder / "data", certificate=False)
    return folder / "data"


def seconds(operation: str, arguments: dict[str, Any], folder: Path, jobs: int, range_bytes: int) -> float:
    """Wall time of all jobs but the first of each process, which also opens the data and loads kernels."""
    work = WorkPlan.make(operation, arguments, range_bytes=range_bytes)
    times: list[float] = []

    def on_job(*_: int) -> None:
        times.append(time.perf_counter())

    run_work(work, folder / f"results-{time.time_ns()}", ProcessRunner(jobs), on_job=on_job)
    finished = len(times) - 1 - jobs
    return (times[-1] - times[jobs]) / finished * len(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    size = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = recording(folder, size)
        print(f"{size} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for operation, more in (("stats", {}), ("check", {"deep": True})):
            arguments = {"location": str(place), **more}
            best = {
                jobs: min(seconds(operation, arguments, folder, jobs, size * 1_000_000 // 32) for _ in range(3))
                for jobs in (1, 2)
            }
            print(f"{operation:6} 1 process {best[1]:6.2f} s, 2 processes {best[2]:6.2f} s, x{best[1] / best[2]:.2f}")
        tiny = penstock.from_arrays({"x": np.zeros(500)}, lengths=np.ones(500, np.int64))
        small = penstock.convert(tiny, folder / "small").out
        print(
            f"a job of almost nothing: {seconds('verify', {'location': str(small)}, folder, 1, 1) / 500 * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
