"""`RayRunner`: jobs on actors of a Ray cluster.

An actor is a process that runs one job after another, so it opens the data, or makes environments and loads a policy,
once. While jobs wait, twice the number of actors that fit on the cluster are requested: Ray places the surplus when a
node joins, and an autoscaler sees it as demand. An actor that dies is replaced.

The driver alone writes results and the journal, so nodes need no common folder for operations whose results are small.
Ray repeats nothing: a lost job is reported to the coordinator, which counts attempts for all runners alike. At the end,
when no job waits and actors are idle, jobs that take twice the usual time get a second copy; the result that arrives
first counts.

An error of a machine, such as a full disk, takes the node out of the work: its job is lost, its idle actors end, and
new actors start on other nodes, while there are other nodes that fit. On the last such node, it is an error of the job.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

from typing_extensions import override

from penstock.errors import StateError, WorkerError, require
from penstock.jobs.operation import OPENED
from penstock.jobs.runners import JobResources, JobResult, Runner, run_job
from penstock.jobs.work_plan import WorkPlan

LATE = 2.0  # times the median duration of a job, from which on it gets a second copy
LEAST_DONE = 5  # jobs whose durations are known before any job counts as late
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

    A node whose disk is full or fails, or whose mount has lost its server, gets no more jobs. Its jobs run on other
    nodes, and a warning names the node and the error. If no other node fits, the job fails.

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
        looked = 0.0
        most = 0
        try:
            while waiting or pool.busy:
                if time.monotonic() >= looked + LOOK_SECONDS:
                    capacity = pool.capacity(pool.faults)
                    looked = time.monotonic()
                    most = self.jobs or max(2 * capacity, 1)
                    if not capacity and not pool.busy:
                        pool.require_no_faults()
                pool.resize(len(waiting), most)
                result = pool.next_result()
                for number in pool.choose(waiting):
                    pool.begin(number)
                if result is not None:
                    yield result
            pool.close()
        finally:
            pool.kill()


class _Idle(NamedTuple):
    """An actor that waits for a job, and the identifier of its node."""

    actor: Any
    node: str


class _Running(NamedTuple):
    """A job that runs: its actor, the identifier of its node, its number, and when it began."""

    actor: Any
    node: str
    number: int
    begun: float


class _ActorPool:
    """Actors that start, wait for a job, or run one."""

    def __init__(self, ray: Any, work: WorkPlan, resources: JobResources) -> None:
        self._ray = ray
        kinds = ray.exceptions
        self._lost = (kinds.RayActorError, kinds.ObjectLostError, kinds.OutOfMemoryError, kinds.WorkerCrashedError)
        self._resources = resources
        self.faults: dict[str, str] = {}  # nodes that get no jobs, by their identifiers: name and error
        self._actor_class = ray.remote(JobActor)
        self._actor = self._on_nodes()
        self._arguments = (ray.put(work.encode()), ray.put(work.survey), resources.threads)
        self._starting: dict[Any, Any] = {}  # what `start` will return: its actor
        self._idle: list[_Idle] = []
        self._running: dict[Any, _Running] = {}  # what `run` will return
        self._closing: dict[Any, Any] = {}  # what `close` will return: its actor
        self._unsettled: set[int] = set()  # jobs that have begun and have no result
        self._seconds: list[float] = []
        self._failed_starts = 0

    @property
    def busy(self) -> bool:
        """Whether a job has begun and has no result."""
        return bool(self._unsettled)

    def capacity(self, faults: Mapping[str, str]) -> int:
        """How many actors all nodes hold together, except nodes at fault."""
        needs = {"CPU": self._resources.cpus, "GPU": self._resources.gpus, "memory": self._resources.memory or 0}
        units = {name: round(UNITS * need) for name, need in needs.items() if need}
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["NodeID"] not in faults]
        resources = [node["Resources"] for node in nodes]
        return sum(min(round(UNITS * node.get(name, 0)) // need for name, need in units.items()) for node in resources)

    def resize(self, waiting: int, most: int) -> None:
        """Start actors for jobs that wait, `most` in all. End actors that no job needs."""
        size = len(self._starting) + len(self._idle) + len(self._running)
        for _ in range(min(most - size, waiting - len(self._starting) - len(self._idle))):
            actor = self._actor.remote(*self._arguments)
            self._starting[actor.start.remote(version("penstock"))] = actor
        if not waiting:
            self._end(list(self._starting.values()))
            self._starting.clear()
            while len(self._idle) > len(self._running):  # the others may take second copies
                self._close(self._idle.pop().actor)

    def choose(self, waiting: deque[int]) -> list[int]:
        """Return the jobs to begin now, at most one for each idle actor: taken from `waiting`, else late ones again."""
        if waiting or len(self._seconds) < LEAST_DONE:
            return [waiting.popleft() for _ in range(min(len(self._idle), len(waiting)))]
        limit = time.monotonic() - LATE * statistics.median(self._seconds) - LOOK_SECONDS
        copies = Counter(each.number for each in self._running.values() if each.number in self._unsettled)
        late = [each.number for each in self._running.values() if each.begun < limit and copies[each.number] == 1]
        return late[: len(self._idle)]

    def begin(self, number: int) -> None:
        """Begin a job on an idle actor."""
        actor, node = self._idle.pop()
        self._unsettled.add(number)
        self._running[actor.run.remote(number)] = _Running(actor, node, number, time.monotonic())

    def next_result(self) -> JobResult | None:
        """Wait until an actor has started or ended a job, for a second at most. Return the result of the job."""
        references = [*self._running, *self._starting, *self._closing]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=LOOK_SECONDS)
        for reference in ready:
            if reference in self._starting:
                self._started(reference)
            elif reference in self._closing:
                self._end([self._closing.pop(reference)])
            else:
                return self._ended(reference)
        return None

    def _started(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            node = self._ray.get(reference)
        except self._lost as failure:
            self._end([actor])
            self._failed_starts += 1
            if self._failed_starts > FAILED_STARTS + len(self._starting) + len(self._running):
                raise WorkerError(f"expected actors of Ray to start, got none of the last few: {failure}") from failure
        else:
            self._failed_starts = 0
            self._keep(actor, node)

    def _keep(self, actor: Any, node: str) -> None:
        """Let an actor wait for a job, unless its node is at fault."""
        if node in self.faults:
            self._close(actor)
        else:
            self._idle.append(_Idle(actor, node))

    def _ended(self, reference: Any) -> JobResult | None:
        """Return the result of a job; None if another copy was quicker, or goes on where this one was lost."""
        actor, node, number, begun = self._running.pop(reference)
        try:
            result: JobResult = self._ray.get(reference)
        except self._lost as failure:
            self._end([actor])
            result = JobResult(number, None, type(failure).__name__, lost=True)
        else:
            if result.of_machine:
                result = self._without(node, result)
            else:
                self._seconds.append(time.monotonic() - begun)
            self._keep(actor, node)
        if result.lost and any(other.number == number for other in self._running.values()):
            return None
        if number not in self._unsettled:
            return None
        self._unsettled.remove(number)
        return result

    def _without(self, node: str, result: JobResult) -> JobResult:
        """Take a node at fault out of the work, if others fit, and return its failed result as lost.

        On the last node that fits, return it as an error of the job, with the errors of all nodes.
        """
        faults = {**self.faults, node: f"{self._name(node)}: {result.error}"}
        if not self.capacity(faults):
            return replace(result, error="; ".join(faults.values()))
        if node not in self.faults:
            self.faults = faults
            self._actor = self._on_nodes()
            idle, self._idle = self._idle, []
            for each in idle:
                self._keep(*each)
            warnings.warn(f"{faults[node]}; this node gets no more jobs, and others repeat them", stacklevel=2)
        return replace(result, error=f"{self._name(node)}: {result.error}", lost=True)

    def _on_nodes(self) -> Any:
        """Return the class of actors, which start on nodes that are not at fault."""
        needs = self._resources
        without = {"ray.io/node-id": f"!in({','.join(self.faults)})"} if self.faults else {}
        return self._actor_class.options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory, label_selector=without
        )

    def _name(self, node: str) -> str:
        """The name of a node for people."""
        for each in self._ray.nodes():
            if each["NodeID"] == node:
                return f"node {each['NodeManagerHostname']} ({each['NodeManagerAddress']})"
        return f"node {node}"

    def require_no_faults(self) -> None:
        """Raise an error if nodes are at fault."""
        if self.faults:
            errors = "; ".join(self.faults.values())
            raise WorkerError(f"expected a node that fits, got none but nodes at fault, which get no jobs: {errors}")

    def close(self) -> None:
        """Let idle actors close what they opened, such as environments."""
        while self._idle:
            self._close(self._idle.pop().actor)
        if self._closing:
            self._ray.wait(list(self._closing), num_returns=len(self._closing), timeout=CLOSE_SECONDS)

    def kill(self) -> None:
        """End all actors at once."""
        running = [each.actor for each in self._running.values()]
        idle = [each.actor for each in self._idle]
        self._end([*self._starting.values(), *idle, *running, *self._closing.values()])

    def _close(self, actor: Any) -> None:
        self._closing[actor.close.remote()] = actor

    def _end(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._ray.kill(actor)


class JobActor:
    """The actor of Ray that runs jobs of one work plan."""

    def __init__(self, plan: bytes, survey: bytes, threads: int) -> None:
        self._work = replace(WorkPlan.decode(plan), survey=survey)
        self._threads = threads

    def start(self, release: str) -> str:
        """Return the identifier of the node when the actor runs."""
        if (installed := version("penstock")) != release:
            raise StateError(f"expected penstock {release} on every node, got {installed}; install the same version")
        return require("ray", "ray", "penstock-cluster").get_runtime_context().get_node_id()

    def run(self, number: int) -> JobResult:
        """Run a job."""
        return run_job(self._work, number, self._threads)

    def close(self) -> None:
        """Close what the jobs opened."""
        OPENED.close()
