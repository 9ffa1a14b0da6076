"""Jobs on a Ray cluster of two nodes on loopback addresses: equal to one run, also when workers and nodes die."""

# pyright: basic

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import MissingExtraError
from penstock.jobs import ray_runner
from penstock.jobs.coordinator import finish_work, missing_jobs, run_work
from penstock.jobs.ray_runner import RayRunner
from penstock.jobs.runners import JobResources, runner_of
from penstock.jobs.work_plan import WorkPlan

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray
HEAD, OTHER = "127.0.0.2", "127.0.0.3"  # Ray replaces 127.0.0.1 by the address of the machine
SECONDS = 100


@pytest.fixture(autouse=True)
def time_limit() -> Generator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"a test of Ray took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def cluster() -> Generator[Any]:
    """A head and, on demand, other nodes, each with one core and an object store of 80 MB."""
    os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray import cluster_utils

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    folder = tempfile.mkdtemp(prefix="ray-")  # short: paths of sockets have at most 107 bytes
    os.environ["RAY_TMPDIR"] = folder
    head = {**node, "node_ip_address": HEAD}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    made.add_other = lambda: made.add_node(num_cpus=1, object_store_memory=80 << 20, node_ip_address=OTHER)
    ray.init(address=made.address, log_to_driver=False, _node_ip_address=HEAD)
    yield made
    ray.shutdown()
    made.shutdown()
    del os.environ["RAY_TMPDIR"]
    shutil.rmtree(folder)


@pytest.fixture
def work(recording: Path) -> WorkPlan:
    return WorkPlan.make("stats", {"location": str(recording), "by": "task"}, range_bytes=500_000)


@pytest.fixture
def expected(recording: Path) -> object:
    return penstock.statistics(penstock.open(recording), by="task")


def kill_workers() -> int:
    """Kill all workers of the clusters that this process started."""
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = folder.joinpath("cmdline").read_bytes()  # "ray::" and the name of the task, also of agents
            if title.startswith((b"ray::penstock", b"ray::IDLE")) and below_us(int(folder.name)):
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        except (OSError, ValueError):
            continue  # it ended meanwhile
    return killed


def below_us(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_nodes_and_workers_that_die(
    cluster: Any, work: WorkPlan, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_runner, "LATE", 0.0)  # every job that runs at the end gets a second copy
    monkeypatch.setattr(ray_runner, "LOOK_SECONDS", 0.0)
    nodes = [cluster.add_other()]
    killed: list[int] = []

    def kill(done: int, _: int) -> None:
        if done == 2 and not killed:
            killed.append(kill_workers())
        elif done == 5 and nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    report = run_work(work, tmp_path, RayRunner(), on_job=kill)
    assert report.failures == {}
    assert sum(killed) > 0
    assert nodes == []
    assert finish_work(work, tmp_path) == expected


def test_a_killed_driver_goes_on(cluster: Any, work: WorkPlan, expected: object, tmp_path: Path) -> None:
    plan, folder = tmp_path / "plan.json", tmp_path / "results"
    work.write(plan)
    script = (
        "import os, signal, sys, ray; from pathlib import Path; from penstock.jobs import WorkPlan, run_work\n"
        "from penstock.jobs.ray_runner import RayRunner\n"
        f"ray.init(address={cluster.address!r}, log_to_driver=False, _node_ip_address={HEAD!r})\n"
        "def on_job(done, total): done >= 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "run_work(WorkPlan.read(sys.argv[1]), Path(sys.argv[2]), RayRunner(), on_job=on_job)\n"
    )
    command = [sys.executable, "-c", script, str(plan), str(folder)]
    assert subprocess.run(command, timeout=SECONDS, check=False).returncode == -signal.SIGKILL
    assert 3 <= len(work) - len(missing_jobs(work, folder)) < len(work)
    report = run_work(work, folder, RayRunner())
    assert report.earlier + report.done == len(work)
    assert finish_work(work, folder) == expected


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock\[ray\]'"):
        runner_of("ray", None, JobResources())
