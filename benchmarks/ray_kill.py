"""Commands in parts on a Ray cluster whose workers, nodes and head are killed, with other faults each round.

    python benchmarks/ray_kill.py [--minutes 10] [--seed 0]

Each round runs one command of `tests/jobs/cases.py`, in turn, on a head and two nodes with one core each and small
object stores. Some jobs kill their workers for certain, up to three times; all workers or a node are killed when some
numbers of jobs are done. In one of six rounds, the head with all its processes is killed
first, which ends the command; the same command continues on a new cluster. The result is compared, byte for byte, with
a run without jobs. A failed round prints its seed and ends the program. At the end, the rounds of each command are
printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "packages" / "penstock-cluster" / "tests"))

from penstock.jobs.coordinator import finish_work, missing_jobs
from penstock.jobs.work_plan import WorkPlan
from ray_runs.ray_cluster import LocalCluster, local_cluster
from ray_runs.test_ray_runner import MOST_LOST, Faults, drive, run_with_faults
from tests.jobs.cases import CASES, Inputs, make_inputs

HEAD_DIES = 6  # rounds, in one of which the head dies


def kill_head(cluster: LocalCluster, work: WorkPlan, folder: Path, done: int) -> None:
    """Kill the head of the cluster when some jobs are done, and start another cluster."""
    work.write(folder / "plan.json")
    driver = drive(cluster, cluster.nodes[0].node_ip_address, folder, done)
    cluster.kill_head()
    driver.communicate()
    cluster.start()
    cluster.add()
    cluster.add()


def run_round(cluster: LocalCluster, inputs: Inputs, folder: Path, seed: int) -> tuple[str, str]:
    """Run one command with faults, and compare its result; return its name, and what was done."""
    chosen = random.Random(seed)
    name = list(CASES)[seed % len(CASES)]
    (plain := folder / "plain").mkdir()
    expected = CASES[name].plain(inputs, plain)
    (parts := folder / "parts").mkdir()
    work = CASES[name].plan(inputs, parts)
    head = not chosen.randrange(HEAD_DIES)
    if head:
        kill_head(cluster, work, parts, chosen.randrange(1, len(work)))
    left = len(missing_jobs(work, parts / "results"))
    kills: list[str] = []
    deaths: list[int] = []
    if left == len(work):
        kills = [chosen.choice(["workers", "node"]) for _ in range(min(chosen.randint(0, 2), len(work) - 1))]
        deaths = [chosen.randint(1, MOST_LOST - len(kills)) for _ in range(chosen.randint(1, min(3, len(work))))]
    with pytest.MonkeyPatch.context() as patch:
        run_with_faults(work, parts, Faults(cluster, work, parts, seed, deaths, kills), patch)
    cluster.wait_for_workers()
    if CASES[name].outcome(finish_work(work, parts / "results"), parts) != expected:
        raise RuntimeError(f"expected the bytes of a run without jobs from {name}, got others; seed {seed}")
    deadly = "the head" if head else f"{sum(deaths)} workers by jobs, and {kills}"
    return name, f"{len(work)} jobs, killed {deadly}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    seed, end = chosen.seed, time.monotonic() + 60 * chosen.minutes
    rounds = Counter[str]()
    with tempfile.TemporaryDirectory() as name, local_cluster() as cluster:
        inputs = make_inputs(Path(name))
        cluster.add()
        cluster.add()
        while time.monotonic() < end:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                print(f"seed {seed}: ", end="", flush=True)
                command, what = run_round(cluster, inputs, Path(folder), seed)
            print(f"{command}: {what}, equal, {time.monotonic() - begin:.0f} s", flush=True)
            rounds[command] += 1
            seed += 1
    for command, count in rounds.items():
        print(f"{command:28}{count:4} rounds")
    print(f"{rounds.total()} rounds, all equal")


if __name__ == "__main__":
    main()
