"""What recording in parts costs and gains: episodes of an environment by one run, and by jobs on 1, 2 and 4 processes.

    python benchmarks/collect_workers.py --episodes 2000 --rounds 3 [--ray]

With `--ray`, jobs also run on actors of a Ray cluster on this machine, whose CPU time is not measured.

Wall time is of the steps between the first job of each process, which imports the environment, and the end. It needs as
many free cores as processes; the load of the machine is printed too. CPU time is of all processes together with their
start, and depends less on other work of the machine: its ratio to the CPU time of one run is what work in parts costs.
The best of all rounds is printed.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.operations.record import record_arguments
from penstock.jobs.runners import ProcessRunner
from penstock.jobs.work_plan import WorkPlan
from penstock.recording.rollout_spec import RolloutSpec
from penstock.recording.rollout_worker import RolloutWorker
from penstock_cluster.ray_runner import RayRunner

PROCESSES = (1, 2, 4)


def cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def alone(spec: RolloutSpec, episodes: int, folder: Path) -> tuple[float, float, int]:
    """Steps a second of wall time, CPU seconds, and steps of one run."""
    worker = RolloutWorker(spec)
    begin, before = time.perf_counter(), cpu()
    steps = worker.record(range(episodes), folder / "alone").steps
    return steps / (time.perf_counter() - begin), cpu() - before, steps


def in_parts(
    spec: RolloutSpec, episodes: int, processes: int, folder: Path, kind: type[ProcessRunner | RayRunner]
) -> tuple[float, float]:
    """Steps a second of wall time, and CPU seconds, of jobs."""
    folder = folder / kind.__name__
    out = folder / f"jobs-{processes}"
    work = WorkPlan.make("record", record_arguments(spec, out, episodes, job_episodes=max(episodes // 64, 1)))
    times: list[float] = []

    def on_job(*_: int) -> None:
        times.append(time.perf_counter())

    before = cpu()
    run_work(work, folder / f"results-{processes}", kind(processes), on_job=on_job)
    steps = finish_work(work, folder / f"results-{processes}").steps
    share = (len(times) - 1 - processes) / len(work)
    return steps * share / (times[-1] - times[processes]), cpu() - before


def on_ray(spec: RolloutSpec, episodes: int, rounds: int, alone: float) -> None:
    """Print the steps a second of jobs on actors."""
    from ray_runs.ray_cluster import local_cluster

    with local_cluster(cpus=max(PROCESSES)):
        for actors in PROCESSES:
            best = 0.0
            for _ in range(rounds):
                with tempfile.TemporaryDirectory() as name:
                    best = max(best, in_parts(spec, episodes, actors, Path(name), RayRunner)[0])
            print(f"{f'actors: {actors}':10} {best:9.0f} steps/s, x{best / alone:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--n-envs", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="jobs on actors of Ray too")
    options = parser.parse_args()
    spec = RolloutSpec(options.env, n_envs=options.n_envs)
    rates: dict[int, list[float]] = {processes: [] for processes in (0, *PROCESSES)}
    costs: dict[int, list[float]] = {processes: [] for processes in (0, *PROCESSES)}
    steps = 0
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            rate, cost, steps = alone(spec, options.episodes, Path(name))
            rates[0].append(rate)
            costs[0].append(cost)
            for processes in PROCESSES:
                rate, cost = in_parts(spec, options.episodes, processes, Path(name), ProcessRunner)
                rates[processes].append(rate)
                costs[processes].append(cost)
    print(f"{options.env}, {options.episodes} episodes of {steps} steps, {options.n_envs} environments a process")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for processes, found in rates.items():
        what = "one run" if processes == 0 else f"jobs on {processes}"
        best, cost = max(found), float(np.min(costs[processes]))
        print(
            f"{what:10} {best:9.0f} steps/s, x{best / max(rates[0]):.2f}; {cost / steps * 1e6:6.1f} us of CPU a step, "
            f"x{cost / float(np.min(costs[0])):.2f}"
        )
    if options.ray:
        on_ray(spec, options.episodes, options.rounds, max(rates[0]))


if __name__ == "__main__":
    main()
