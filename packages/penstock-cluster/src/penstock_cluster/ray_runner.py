"""`RayRunner`: jobs on actors of a Ray cluster.

An actor is a process that runs one job after another, so it opens the data, or makes environments and loads a policy,
once. While jobs wait, twice the number of actors that fit on the cluster are requested: Ray places the surplus when a
node joins, and an autoscaler sees it as demand. An actor that dies is replaced.

The driver alone writes results and the journal, so nodes need no common folder for operations whose results are small.
Ray repeats nothing: a lost job is reported to the coordinator, which counts attempts for all runners alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from typing_extensions import override

from penstock.errors import StateError, WorkerError, require
from penstock.jobs.operation import OPENED
from penstock.jobs.runners import JobResources, JobResult, Runner, run_job
from penstock.jobs.work_plan import WorkPlan

LOOK_SECONDS = 1.0
CLOSE_SECONDS = 10.0
"""How long actors may take to close what they opened, before they are killed."""
FAILED_STARTS = 8
"""How many actors in a row may die while they start, besides one for each actor of the pool."""
UNITS = 10_000  # Ray counts resources in ten-thousandths


class RayRunner(Runner):
    """Jobs on actors of a Ray cluster.

    If the process is connected to a cluster, that cluster is used. Every node needs the same version of penstock, and
    access to the data. An actor keeps its resources until no job waits.

    Args:
        jobs: Number of actors. The default is None: all that fit on the cluster, also when nodes join.
        resources: Resources of one actor, which Ray reserves. The default is one core.
        address: Address of the cluster, such as `"auto"`. The default is None: a new cluster on this machine, which
            ends with the work.

    Raises:
        MissingExtraError: Ray is not installed.

    Example:
        >>> RayRunner(address="auto", resources=JobResources(cpus=4)).resources.cpus
        4
    """

    def __init__(
        self, jobs: int | None = None, resources: JobResources | None = None, *, address: str | None = None
    ) -> None:
        super().__init__(resources)
        self._ray: Any = require("ray", "ray", "penstock-cluster")
        self.jobs = jobs
        self.address = address

    @override
    def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        if not waiting:
            return
        connected = self._ray.is_initialized()
        if not connected:
            self._connect()
        try:
            yield from self._run(work, waiting)
        finally:
            if not connected:
                self._ray.shutdown()

    def _connect(self) -> None:
        if self.address is None:
            self._ray.init(num_cpus=self.jobs or None, include_dashboard=False, log_to_driver=False)
        else:
            self._ray.init(address=self.address, log_to_driver=False)

    def _run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        pool = _ActorPool(self._ray, work, self.resources)
        looked = -LOOK_SECONDS
        most = 0
        try:
            while waiting or pool.running:
                if time.monotonic() >= looked + LOOK_SECONDS:
                    most = self.jobs or max(2 * pool.capacity(), 1)
                    looked = time.monotonic()
                pool.resize(len(waiting), most)
                result = pool.next_result()
                while waiting and pool.idle:
                    pool.begin(waiting.popleft())
                if result is not None:
                    yield result
            pool.close()
        finally:
            pool.kill()


class _ActorPool:
    """Actors that start, wait for a job, or run one."""

    def __init__(self, ray: Any, work: WorkPlan, resources: JobResources) -> None:
        self._ray = ray
        kinds = ray.exceptions
        self._lost = (kinds.RayActorError, kinds.ObjectLostError, kinds.OutOfMemoryError, kinds.WorkerCrashedError)
        self._resources = resources
        needs = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "memory": resources.memory}
        self._actor = ray.remote(JobActor).options(**needs)
        self._arguments = (ray.put(work.encode()), ray.put(work.survey), resources.threads)
        self._starting: dict[Any, Any] = {}  # what `start` will return: its actor
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, int]] = {}  # what `run` will return: its actor, and the number of the job
        self._closing: dict[Any, Any] = {}  # what `close` will return: its actor
        self._failed_starts = 0

    def capacity(self) -> int:
        """How many actors all nodes hold together."""
        needs = {"CPU": self._resources.cpus, "GPU": self._resources.gpus, "memory": self._resources.memory or 0}
        units = {name: round(UNITS * need) for name, need in needs.items() if need}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(min(round(UNITS * node.get(name, 0)) // need for name, need in units.items()) for node in nodes)

    def resize(self, waiting: int, most: int) -> None:
        """Start actors for jobs that wait, `most` in all. End actors that no job needs."""
        size = len(self._starting) + len(self.idle) + len(self.running)
        for _ in range(min(most - size, waiting - len(self._starting) - len(self.idle))):
            actor = self._actor.remote(*self._arguments)
            self._starting[actor.start.remote(version("penstock"))] = actor
        if not waiting:
            self._end(*self._starting.values())
            self._starting.clear()
            self._close_idle()

    def begin(self, number: int) -> None:
        """Begin a job on an idle actor."""
        actor = self.idle.pop()
        self.running[actor.run.remote(number)] = actor, number

    def next_result(self) -> JobResult | None:
        """Wait until an actor has started or ended a job, for a second at most. Return the result of the job."""
        references = [*self.running, *self._starting, *self._closing]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=LOOK_SECONDS)
        for reference in ready:
            if reference in self._starting:
                self._started(reference)
            elif reference in self._closing:
                self._end(self._closing.pop(reference))
            else:
                return self._ended(reference)
        return None

    def _started(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            self._ray.get(reference)
        except self._lost as failure:
            self._end(actor)
            self._failed_starts += 1
            if self._failed_starts > FAILED_STARTS + len(self._starting) + len(self.running):
                raise WorkerError(f"expected actors of Ray to start, got none of the last few: {failure}") from failure
        else:
            self._failed_starts = 0
            self.idle.append(actor)

    def _ended(self, reference: Any) -> JobResult:
        actor, number = self.running.pop(reference)
        try:
            result: JobResult = self._ray.get(reference)
        except self._lost as failure:
            self._end(actor)
            return JobResult(number, None, type(failure).__name__, lost=True)
        self.idle.append(actor)
        return result

    def close(self) -> None:
        """Let idle actors close what they opened, such as environments."""
        self._close_idle()
        if self._closing:
            self._ray.wait(list(self._closing), num_returns=len(self._closing), timeout=CLOSE_SECONDS)

    def kill(self) -> None:
        """End all actors at once."""
        running = [actor for actor, _ in self.running.values()]
        self._end(*self._starting.values(), *self.idle, *running, *self._closing.values())

    def _close_idle(self) -> None:
        while self.idle:
            actor = self.idle.pop()
            self._closing[actor.close.remote()] = actor

    def _end(self, *actors: Any) -> None:
        for actor in actors:
            self._ray.kill(actor)


class JobActor:
    """The actor of Ray that runs jobs of one work plan."""

    def __init__(self, plan: bytes, survey: bytes, threads: int) -> None:
        self._work = replace(WorkPlan.decode(plan), survey=survey)
        self._threads = threads

    def start(self, release: str) -> None:
        """Return when the actor runs, and its release is that of the driver."""
        if (installed := version("penstock")) != release:
            raise StateError(f"expected penstock {release} on every node, got {installed}; install the same version")

    def run(self, number: int) -> JobResult:
        """Run a job."""
        return run_job(self._work, number, self._threads)

    def close(self) -> None:
        """Close what the jobs opened."""
        OPENED.close()
