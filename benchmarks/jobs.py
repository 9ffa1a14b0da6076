"""Work in parts: the time of `check --deep`, statistics and a conversion by 1 and 2 processes, and what a job costs.

    python benchmarks/jobs.py --megabytes 512 [--operations stats check] [--ray]
    python benchmarks/jobs.py --megabytes 4 --steps 10 --operations "convert hdf5"

First come whole commands, with their start: `--jobs 1` and `--jobs 2`, in turns.

Ranges are the default ones. Wall time is the best of three runs, without the start of the processes: the first job of
each, which opens the data and loads kernels, does not count. Wall times need as many free cores as processes, so the
load of the machine is printed.

CPU time depends little on the load. `serial` is that of the coordinator: it publishes results and merges them.
`start` is that of one process more, for imports and kernels. The rest, the jobs themselves, is divided among
processes. So `limit` is the speed-up of 2 processes on free cores, without their start: (jobs + serial) /
(jobs / 2 + serial), if storage is as quick for two. The cost of a job is the time of 500 jobs of one tiny episode. It
is compared with plain processes: `concurrent.futures` over the same function, in turns, without results on disk.
With `--ray`, only the cost of a job on two processes and on two actors of Ray is measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from figures import record

sys.path.append(str(Path(__file__).parents[1]))

import penstock
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ProcessRunner, run_job
from penstock.jobs.work_plan import WorkPlan

OPERATIONS: dict[str, dict[str, Any]] = {
    "stats": {},
    "check": {"deep": True},
    "convert": {},
    "convert minari": {},
    "convert hdf5": {},
}
WRITERS = {
    "convert minari": {"to": "minari", "writer": {"data_format": "parquet"}},
    "convert hdf5": {"to": "minari", "writer": {"data_format": "hdf5"}},
}


def recording(folder: Path, megabytes: int, steps: int) -> Path:
    rng = np.random.default_rng(0)
    lengths = np.full(megabytes * 1_000_000 // (8 * 4) // steps, steps)
    n = int(lengths.sum())
    flags = {name: np.zeros(n, bool) for name in ("terminations", "truncations")}
    columns = {"observations": rng.standard_normal((n + len(lengths), 6)).astype("f4")}
    columns |= {"actions": np.zeros((n, 1), "f4"), "rewards": np.zeros(n, "f4"), **flags}
    penstock.convert(penstock.from_arrays(columns, lengths=lengths.tolist()), folder / "data", certificate=False)
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
        arguments = {**arguments, "out": str(place.with_suffix(".out")), **WRITERS.get(operation, {})}
    work = WorkPlan.make(operation.split(maxsplit=1)[0], arguments, range_bytes=range_bytes)
    times: list[float] = []
    workers = cpu(resource.RUSAGE_CHILDREN)
    work.opened()
    serial = cpu(resource.RUSAGE_SELF)
    runner = ProcessRunner(jobs, meanwhile=False)

    def on_job(*_: int) -> None:
        times.append(time.perf_counter())

    run_work(work, place, runner, on_job=on_job)
    begin = time.perf_counter()
    finish_work(work, place)
    merged = time.perf_counter() - begin
    finished = len(times) - 1 - jobs
    wall = (times[-1] - times[jobs]) / finished * len(work) + merged
    return Times(wall, cpu(resource.RUSAGE_CHILDREN) - workers, cpu(resource.RUSAGE_SELF) - serial)


def commands(place: Path, folder: Path) -> None:
    """Time whole commands, and print the ratio of 1 to 2 jobs at a time."""
    run = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
    environment = {**os.environ, "PENSTOCK_CACHE": str(folder / "cache")}
    for name, more in {"stats": (), "check": ("--deep",), "convert": ("OUT",)}.items():
        times: dict[int, list[float]] = {1: [], 2: []}
        for attempt in range(4):  # the first one compiles
            for jobs, each in times.items():
                given = [str(folder / f"{jobs}-{attempt}") if one == "OUT" else one for one in more]
                begin = time.perf_counter()
                command = [*run, name, str(place), *given, "--jobs", str(jobs)]
                subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
                each.append(time.perf_counter() - begin)
        one, two = (min(each[1:]) for each in times.values())
        ratio = statistics.median(a / b for a, b in zip(*(each[1:] for each in times.values()), strict=True))
        print(f"penstock {name:8} --jobs 1 {one:6.2f} s, --jobs 2 {two:6.2f} s, median x{ratio:.2f}", flush=True)


_WORK: list[WorkPlan] = []


def begin_process(work: WorkPlan) -> None:
    _WORK[:] = [work]
    work.opened()


def run_number(number: int) -> bytes | None:
    return run_job(_WORK[0], number, 0).result


def plain_processes(work: WorkPlan, jobs: int) -> float:
    """Return the seconds of all jobs in plain processes, without their start."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), begin_process, (work,)) as pool:
        list(pool.map(run_number, range(2 * jobs)))
        begin = time.perf_counter()
        list(pool.map(run_number, range(len(work))))
        return time.perf_counter() - begin


def compare_with_ray() -> None:
    """Print what a job of almost nothing costs on two processes and on two actors, and the start of both."""
    from penstock_cluster.ray_runner import RayRunner
    from ray_runs.ray_cluster import local_cluster

    with tempfile.TemporaryDirectory() as temporary, local_cluster(cpus=2):
        tiny = penstock.from_arrays({"x": np.zeros(500)}, lengths=[1] * 500)
        small = penstock.convert(tiny, Path(temporary) / "small").out
        work = WorkPlan.make("verify", {"location": str(small)}, range_bytes=1)
        for number in range(4):
            for runner in (ProcessRunner(2, meanwhile=False), RayRunner(2)):
                begin = time.perf_counter()
                times = [time.perf_counter() for _ in runner.run(work, deque(range(len(work))))]
                quarter = len(times) // 4
                cost = (times[-1] - times[quarter]) / (len(times) - 1 - quarter)
                kind = type(runner).__name__
                print(f"round {number}, {kind:13} first result {times[0] - begin:.2f} s, {cost * 1e3:.2f} ms a job")
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--steps", type=int, default=500, help="steps of an episode")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--ray", action="store_true", help="compare the cost of a job on processes and on Ray, no more")
    chosen = parser.parse_args()
    if chosen.ray:
        compare_with_ray()
        return
    size = chosen.megabytes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        place = recording(folder, size, chosen.total_steps)
        least = None if size >= 256 else size * 1_000_000 // 16  # small data would be one range
        print(f"{size} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        commands(place, folder)
        for operation in chosen.operations:
            arguments = {"location": str(place), **OPERATIONS[operation]}
            rounds = {jobs: [measured(operation, arguments, folder, jobs, least) for _ in range(3)] for jobs in (1, 2)}
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
        tiny = penstock.from_arrays({"x": np.zeros(500)}, lengths=[1] * 500)
        small = penstock.convert(tiny, folder / "small").out
        arguments = {"location": str(small)}
        work = WorkPlan.make("verify", arguments, range_bytes=1)
        pairs = [(measured("verify", arguments, folder, 1, 1).wall, plain_processes(work, 1)) for _ in range(3)]
        ratio = statistics.median(ours / plain for ours, plain in pairs)
        ours, plain = (min(each) / len(work) * 1e3 for each in zip(*pairs, strict=True))
        record("tiny", ours / 1e3, "s")
        print(f"a job of almost nothing: {ours:.2f} ms, in plain processes {plain:.2f} ms, median x{ratio:.2f}")


if __name__ == "__main__":
    main()
