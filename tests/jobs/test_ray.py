"""Jobs on a Ray cluster of several nodes: equal to one run, also when workers, nodes, the driver and the head die."""

# pyright: basic

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.conversion.difference import difference
from penstock.errors import MissingExtraError
from penstock.jobs import ray_runner
from penstock.jobs.coordinator import finish_work, missing_jobs, run_work
from penstock.jobs.dataset import ChosenDataset
from penstock.jobs.operations.record import record_arguments
from penstock.jobs.ray_runner import RayRunner
from penstock.jobs.runners import JobResources, runner_of
from penstock.jobs.work_plan import WorkPlan
from penstock.record.memory import MemoryWriter
from tests.ray_cluster import LocalCluster, local_cluster, time_limit

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray
RANGE = 1_000_000
COLLECTED = penstock.RolloutSpec("CartPole-v1", seed=9, n_envs=2)
SECONDS = 600


@pytest.fixture(autouse=True)
def limit() -> Generator[None]:
    with time_limit(SECONDS):
        yield


@pytest.fixture(scope="module")
def cluster() -> Generator[LocalCluster]:
    with local_cluster() as made:
        made.add()
        yield made


@pytest.fixture(scope="module")
def copy(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("copy") / "copy"
    penstock.convert(recording, path)
    return path


class Faults:
    """What dies while the jobs of a plan run, by a seed.

    Two jobs kill their worker when they run for the first time, for certain. When some numbers of jobs are done, all
    workers or a node are killed. At the end, each job that still runs gets a second copy. A job is lost at most three
    times, which is once less than makes it fail.
    """

    def __init__(self, cluster: LocalCluster, work: WorkPlan, folder: Path, seed: int, kills: Sequence[str]) -> None:
        chosen = random.Random(seed)
        self.cluster = cluster
        self.deadly = chosen.sample(range(max(len(work) // 2, 2)), 2)
        self.kills = dict(zip(chosen.sample(range(1, len(work)), len(kills)), kills, strict=True))
        self.marks = folder
        folder.mkdir()

    def task(self) -> Callable[..., Any]:
        """The function of a Ray task, which travels to workers with the variables that it refers to."""
        marks, deadly, run_task = self.marks, self.deadly, ray_runner.run_task

        def run(plan: bytes, survey: bytes, number: int, *more: Any) -> Any:
            import os
            import signal

            if number in deadly and not (marks / str(number)).exists():
                (marks / str(number)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return run_task(plan, survey, number, *more)

        return run

    def on_job(self, done: int, _: int) -> None:
        kill = self.kills.pop(done, None)
        if kill == "workers":
            self.cluster.kill_workers()
        elif kill == "node":
            self.cluster.kill_node(self.cluster.nodes[0])
            self.cluster.add()


def run_with_faults(work: WorkPlan, folder: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all jobs, and require that everything died that should."""
    monkeypatch.setattr(ray_runner, "LATE", 0.0)
    monkeypatch.setattr(ray_runner, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(ray_runner, "run_task", faults.task())
    report = run_work(work, folder / "results", RayRunner(), on_job=faults.on_job)
    assert report.failures == {}
    assert report.done == len(work)
    assert {int(mark.name) for mark in faults.marks.iterdir()} == set(faults.deadly)  # a copy may have saved the job
    assert faults.kills == {}


def plan_of(operation: str, recording: Path, copy: Path, folder: Path) -> WorkPlan:
    chosen = ChosenDataset(str(recording)).arguments()
    arguments = {
        "stats": {**chosen, "by": "task"},
        "check": {**chosen, "deep": True, "thresholds": {"frozen_steps": 3}},
        "convert": {**chosen, "out": str(folder / "out")},
        "verify": {"location": str(copy), "source": chosen},
    }
    if operation == "record":
        arguments["record"] = record_arguments(COLLECTED, folder / "out", 60, job_episodes=5)
    return WorkPlan.make(operation, arguments[operation], range_bytes=RANGE)


def require_equal(operation: str, result: Any, recording: Path, copy: Path, folder: Path) -> None:
    """Compare the result of jobs with that of a run without jobs."""
    if operation == "stats":
        assert result == penstock.statistics(penstock.open(recording), by="task")
    elif operation == "check":
        expected = penstock.check(recording, deep=True, thresholds={"frozen_steps": 3})
        assert result.findings == expected.findings
        assert np.array_equal(result.digests, expected.digests)
        for name, measure in expected.measures.flat.items():
            assert np.array_equal(result.measures.flat[name], measure, equal_nan=True)
    elif operation == "verify":
        assert result == []
    elif operation == "record":
        penstock.RolloutWorker(COLLECTED).record(range(60), alone := MemoryWriter())
        collected = penstock.open(folder / "out")
        assert [dict(episode.metadata) for episode in collected] == [episode.metadata for episode in alone.episodes]
        for one, other in zip(collected, alone.episodes, strict=True):
            assert all(np.array_equal(one.columns[name], rows) for name, rows in other.columns.items())
        assert {each.name for each in folder.iterdir()} == {"marks", "results", "out"}
    else:
        with penstock.open(folder / "out") as one, penstock.open(copy) as other:
            assert list(difference(one, other)) == []
            assert one.source.fingerprint == other.source.fingerprint
        assert {each.name for each in folder.iterdir()} == {"marks", "results", "out", "out.certificate.json"}


KILLS = {
    "stats": ["workers"],
    "check": ["node"],
    "convert": ["workers", "node"],
    "verify": ["workers"],
    "record": ["workers", "node"],
}


@pytest.mark.parametrize("operation", KILLS)
def test_workers_and_nodes_that_die(
    cluster: LocalCluster, recording: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    work = plan_of(operation, recording, copy, tmp_path)
    faults = Faults(cluster, work, tmp_path / "marks", len(work), KILLS[operation])
    run_with_faults(work, tmp_path, faults, monkeypatch)
    require_equal(operation, finish_work(work, tmp_path / "results"), recording, copy, tmp_path)


DRIVER = """
import sys
from pathlib import Path
import ray
from penstock.jobs import WorkPlan, run_work
from penstock.jobs.ray_runner import RayRunner

address, node, folder, last = sys.argv[1:]
folder = Path(folder)
ray.init(address=address, log_to_driver=False, _node_ip_address=node)

def on_job(done, total):
    if done == int(last):
        print("waits", flush=True)
        sys.stdin.read()  # until this process is killed, or the test closes the pipe

run_work(WorkPlan.read(folder / "plan.json"), folder / "results", RayRunner(), on_job=on_job)
"""


def drive(cluster: LocalCluster, node: str, folder: Path, last: int) -> subprocess.Popen[bytes]:
    """Start a driver that waits after `last` jobs; return it when it waits."""
    command = [sys.executable, "-c", DRIVER, cluster.address, node, str(folder), str(last)]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert driver.stdout is not None
    assert b"waits\n" in driver.stdout  # reads lines up to this one
    return driver


def test_the_driver_and_then_the_head_die(cluster: LocalCluster, recording: Path, copy: Path, tmp_path: Path) -> None:
    """The same command goes on, in the end on another cluster, while workers of the first one may still run."""
    work = plan_of("convert", recording, copy, tmp_path)
    (tmp_path / "marks").mkdir()
    state = tmp_path / "marks"
    work.write(state / "plan.json")
    driver = drive(cluster, cluster.nodes[0].node_ip_address, state, 3)
    driver.kill()
    driver.communicate()
    assert driver.wait() == -signal.SIGKILL
    driver = drive(cluster, cluster.nodes[0].node_ip_address, state, 6)
    cluster.kill_head()
    driver.communicate()
    assert driver.wait() not in (0, -signal.SIGKILL)
    done = len(work) - len(missing_jobs(work, state / "results"))
    assert 6 <= done < len(work)

    cluster.start()
    report = run_work(work, state / "results", RayRunner())
    assert (report.earlier, report.done) == (done, len(work) - done)
    finish_work(work, state / "results")
    os.rename(state / "results", tmp_path / "results")
    require_equal("convert", None, recording, copy, tmp_path)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock\[ray\]'"):
        runner_of("ray", None, JobResources())
