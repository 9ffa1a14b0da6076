"""Jobs on a Ray cluster of several nodes: equal to one run, also when workers, nodes, the driver and the head die."""

# pyright: basic

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest

import penstock
from penstock.errors import MissingExtraError, WorkerError
from penstock.files.user_cache import user_cache
from penstock.jobs.coordinator import finish_work, missing_jobs, run_work
from penstock.jobs.operations.record import record_arguments
from penstock.jobs.runners import JobResources, runner_of
from penstock.jobs.work_plan import WorkPlan
from penstock_cluster import ray_runner
from penstock_cluster.ray_runner import RayRunner
from ray_runs.ray_cluster import HEAD, LocalCluster
from tests.jobs import collecting
from tests.jobs.cases import CASES, Inputs, make_inputs, values_of
from tests.jobs.test_crashes import FullDisk

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray
COUNTED = penstock.recording.RolloutSpec(
    f"{collecting.__name__}:Counted-v0", policy=f"{collecting.__name__}:noisy_batch", seed=9, n_envs=3
)
MOST_LOST = 3  # how often a job may be lost: once less than makes it fail


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


class Faults:
    """What dies while the jobs of a plan run, by a seed.

    A job kills its worker in its first attempts: before a change of a file that follows from the seed, the job and the
    attempt, or when the work is done and its result is not sent. When some numbers of jobs are done, all workers or a
    node are killed. At the end, each job that still runs gets a second copy.

    Args:
        cluster: The cluster.
        work: The jobs.
        folder: Their folder.
        seed: Seed of the choices.
        deaths: How many attempts kill their worker, of each of some jobs.
        kills: `"workers"` or `"node"`, for each time that others are killed.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        work: WorkPlan,
        folder: Path,
        seed: object,
        deaths: Sequence[int] = (2,),
        kills: Sequence[str] = (),
    ) -> None:
        chosen = random.Random(str(seed))
        assert max(deaths, default=0) + len(kills) <= MOST_LOST
        self.cluster = cluster
        self.deaths = dict(zip(chosen.sample(range(len(work)), len(deaths)), deaths, strict=True))
        self.points = {(number, start): chosen.randint(0, 12) for number in self.deaths for start in range(MOST_LOST)}
        self.kills = dict(zip(chosen.sample(range(1, len(work)), len(kills)), kills, strict=True))
        self.marks = folder / "marks"
        self.roots = (str(folder), str(user_cache("")))
        self.marks.mkdir()

    def actor(self) -> type[Any]:
        """The class of actors, which travels to nodes with the variables that it refers to."""
        marks, roots, deaths, points = self.marks, self.roots, self.deaths, self.points

        class JobActorThatDies(ray_runner.JobActor):
            def run(self, number: int) -> Any:
                import os
                import signal

                from tests.jobs.crashing import die_at

                for start in count():  # how many attempts have begun before
                    try:
                        (marks / f"{number}.{start}").touch(exist_ok=False)
                        break
                    except FileExistsError:
                        continue
                dies = start < deaths.get(number, 0)
                if dies:
                    die_at(points[number, start] + 1, roots)
                done = super().run(number)
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                return done

        return JobActorThatDies

    def on_job(self, done: int, _: int) -> None:
        kill = self.kills.pop(done, None)
        if kill == "workers":
            self.cluster.kill_workers()
        elif kill == "node":
            self.cluster.kill_node(self.cluster.nodes[0])
            self.cluster.add()


def run_with_faults(work: WorkPlan, folder: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all jobs, and require that everything died that should."""
    monkeypatch.setattr(ray_runner, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(ray_runner, "JobActor", faults.actor())
    report = run_work(work, folder / "results", RayRunner(), on_job=faults.on_job)
    assert report.failures == {}
    assert report.earlier + report.done == len(work)
    for number, times in faults.deaths.items():
        assert {f"{number}.{start}" for start in range(times)} < {mark.name for mark in faults.marks.iterdir()}
    assert faults.kills == {}


# Parts of a dataset that a function changes, and actors that keep environments: the runner does not know what jobs do.
# That each command survives a kill at any change of a file is tested without Ray, in `tests/jobs/test_crashes.py`.
KILLS = {"map to columns": ["node"], "record --grow": ["workers"]}


@pytest.mark.parametrize("name", KILLS)
def test_each_command_whose_workers_die_gives_the_bytes_of_a_run_without_jobs(
    name: str, cluster: LocalCluster, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain := tmp_path / "plain").mkdir()
    expected = CASES[name].plain(inputs, plain)
    (folder := tmp_path / "parts").mkdir()
    work = CASES[name].plan(inputs, folder)
    faults = Faults(cluster, work, folder, name, kills=KILLS[name])
    run_with_faults(work, folder, faults, monkeypatch)
    cluster.wait_for_workers()
    assert CASES[name].outcome(finish_work(work, folder / "results"), folder) == expected
    assert not list(folder.glob("*.parts"))


class Built:
    """What the files of environments of type `Counted` say, but for those of this process."""

    def __init__(self, folder: Path) -> None:
        events = [file.name.split(" ") for file in folder.iterdir()]
        self.events = [event for event in events if event[1] != str(os.getpid())]

    def count(self, event: str) -> Counter[str]:
        """How many environments each process built or closed."""
        return Counter(process for _, process, _, name, _ in self.events if name == event)


@pytest.fixture
def empty(built: Path) -> Path:
    """The folder of these files, empty."""
    for file in built.iterdir():
        file.unlink()
    return built


def collected_alone(folder: Path) -> Mapping[str, bytes]:
    penstock.recording.RolloutWorker(COUNTED).record(range(60), folder / "alone")
    return values_of(folder / "alone", "number")


def collecting_plan(folder: Path, *, grow: bool = False) -> WorkPlan:
    return WorkPlan.make("record", record_arguments(COUNTED, folder / "out", 60, job_episodes=3, grow=grow))


def closed_gate(path: Path) -> IO[str]:
    """A file at which other processes wait until it is closed."""
    gate = path.open("w")
    fcntl.flock(gate, fcntl.LOCK_EX)
    return gate


def wait_at_gate(path: Path) -> None:
    with path.open() as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)


def test_an_actor_keeps_its_environments_until_no_job_waits(cluster: LocalCluster, empty: Path, tmp_path: Path) -> None:
    expected = collected_alone(tmp_path)
    work = collecting_plan(tmp_path)
    assert run_work(work, tmp_path / "results", RayRunner()).done == len(work) == 20
    finish_work(work, tmp_path / "results")
    assert values_of(tmp_path / "out", "number") == expected
    built, closed = Built(empty).count("built"), Built(empty).count("closed")
    assert 1 <= len(built) <= 2  # actors, for 20 jobs
    assert set(built.values()) == {COUNTED.n_envs}
    assert closed == built


def test_actors_with_gpus_run_where_these_are(cluster: LocalCluster, empty: Path, tmp_path: Path) -> None:
    node = cluster.add(gpus=1)
    runner = RayRunner(resources=JobResources(gpus=0.5))
    assert run_work(collecting_plan(tmp_path), tmp_path / "results", runner).done == 20
    assert {(place, gpus) for place, *_, gpus in Built(empty).events} == {(node.node_ip_address, "0")}
    cluster.remove(node)


def test_nodes_that_join_and_leave_while_collecting(
    cluster: LocalCluster, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs wait until a node that joined has done one. Then one node is removed, and another one loses its power."""
    expected = collected_alone(tmp_path)
    work = collecting_plan(tmp_path, grow=True)
    (marks := tmp_path / "marks").mkdir()
    old = [HEAD, *(node.node_ip_address for node in cluster.nodes)]
    nodes = list[str]()
    gate = closed_gate(marks / "gate")

    class JobActorThatWaits(ray_runner.JobActor):
        def run(self, number: int) -> Any:
            import os

            node = os.environ["PENSTOCK_TEST_NODE"]
            if number > 5 and node in old:
                wait_at_gate(marks / "gate")
            done = super().run(number)
            (marks / f"{node} has done a job").touch()
            return done

    def on_job(done: int, _: int) -> None:
        if done == 3:
            nodes.append(cluster.add().node_ip_address)
        elif done == 9:
            cluster.remove(cluster.nodes[0])
            cluster.add()
        elif done == 13:
            cluster.kill_node(cluster.nodes[0])
        if nodes and (marks / f"{nodes[0]} has done a job").exists():
            gate.close()

    monkeypatch.setattr(ray_runner, "JobActor", JobActorThatWaits)
    report = run_work(work, tmp_path / "results", RayRunner(), on_job=on_job)
    assert (report.done, report.failures) == (len(work), {})
    assert (marks / f"{nodes[0]} has done a job").exists()
    finish_work(work, tmp_path / "results")
    assert values_of(tmp_path / "out", "number") == expected
    assert max(Built(empty).count("built").values()) == COUNTED.n_envs


def test_a_full_disk_fails_a_job_and_the_same_command_goes_on(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = collected_alone(tmp_path)
    work = collecting_plan(tmp_path, grow=True)
    out, results = tmp_path / "out", tmp_path / "results"

    class JobActorWithoutRoom(ray_runner.JobActor):
        def run(self, number: int) -> Any:
            FullDisk(out, results, 20, pytest.MonkeyPatch())  # half of a job
            return super().run(number)

    with monkeypatch.context() as patch:
        patch.setattr(ray_runner, "JobActor", JobActorWithoutRoom)
        with pytest.raises(WorkerError, match="No space left on device"):
            run_work(work, results, RayRunner())
    cluster.wait_for_workers()
    earlier = len(work) - len(missing_jobs(work, results))
    report = run_work(work, results, RayRunner())
    assert (report.earlier, report.done) == (earlier, len(work) - earlier)
    finish_work(work, results)
    assert values_of(out, "number") == expected


DRIVER = """
import sys
from pathlib import Path
import ray
from penstock.jobs import WorkPlan, run_work
from penstock_cluster.ray_runner import RayRunner

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


def test_the_driver_and_then_the_head_die(cluster: LocalCluster, inputs: Inputs, tmp_path: Path) -> None:
    """The same command goes on, in the end on another cluster, while workers of the first one may still run."""
    case = replace(CASES["convert to columns"], range_bytes=10_000)
    (plain := tmp_path / "plain").mkdir()
    expected = case.plain(inputs, plain)
    (folder := tmp_path / "parts").mkdir()
    work = case.plan(inputs, folder)
    work.write(folder / "plan.json")
    driver = drive(cluster, cluster.nodes[0].node_ip_address, folder, 3)
    driver.kill()
    driver.communicate()
    assert driver.wait() == -signal.SIGKILL
    driver = drive(cluster, cluster.nodes[0].node_ip_address, folder, 6)
    cluster.kill_head()
    driver.communicate()
    assert driver.wait() not in (0, -signal.SIGKILL)
    done = len(work) - len(missing_jobs(work, folder / "results"))
    assert 6 <= done < len(work)

    cluster.start()
    cluster.add()  # as the tests after this one find it
    report = run_work(work, folder / "results", RayRunner())
    assert (report.earlier, report.done) == (done, len(work) - done)
    assert case.outcome(finish_work(work, folder / "results"), folder) == expected


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock-cluster\[ray\]'"):
        runner_of("ray", None, JobResources())
