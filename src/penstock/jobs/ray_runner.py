"""`RayRunner`: jobs as tasks of a Ray cluster.

The driver alone writes results and the journal, so nodes need no common folder for operations whose results are small.
Tasks are not retried by Ray: a lost task is reported to the coordinator, which counts attempts for all runners alike.
At the end, when no job waits and slots are free, jobs that take twice the usual time get a second copy; the result that
arrives first counts.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from typing_extensions import override

from penstock.errors import StateError, require
from penstock.jobs.runners import JobResources, JobResult, Runner, run_job
from penstock.jobs.work_plan import WorkPlan

LATE = 2.0  # times the median duration of a job, from which on it gets a second copy
LEAST_DONE = 5  # jobs whose durations are known before any job counts as late
LOOK_SECONDS = 1.0


class RayRunner(Runner):
    """Jobs as Ray tasks.

    If the process is connected to a cluster, that cluster is used. Every node needs the same version of penstock, and
    access to the data.

    Args:
        jobs: Tasks at a time. The default is None: twice the tasks that fit on the cluster, also when nodes join.
        resources: Resources of one job, which Ray reserves. The default is one core.
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
        self._ray: Any = require("ray", "ray")
        self.jobs = jobs
        self.address = address

    @override
    def run(self, work: WorkPlan, numbers: Sequence[int]) -> Generator[JobResult]:
        connected = self._ray.is_initialized()
        if not connected:
            self._connect()
        try:
            yield from self._run(work, numbers)
        finally:
            if not connected:
                self._ray.shutdown()

    def _connect(self) -> None:
        if self.address is None:
            self._ray.init(num_cpus=self.jobs or None, include_dashboard=False, log_to_driver=False)
        else:
            self._ray.init(address=self.address, log_to_driver=False)

    def _run(self, work: WorkPlan, numbers: Sequence[int]) -> Generator[JobResult]:
        ray, kinds = self._ray, self._ray.exceptions
        lost = (kinds.WorkerCrashedError, kinds.NodeDiedError, kinds.ObjectLostError, kinds.OutOfMemoryError)
        options = {"num_cpus": self.resources.cpus, "num_gpus": self.resources.gpus, "memory": self.resources.memory}
        task = ray.remote(run_task).options(**options, max_retries=0, name=f"penstock {work.operation}")
        plan, survey = ray.put(work.encode()), ray.put(work.survey)
        waiting = deque(numbers)
        running: dict[Any, tuple[int, float]] = {}  # task: its job, and when it began
        seconds: list[float] = []
        settled: set[int] = set()
        try:
            while len(settled) < len(numbers):
                for number in self._next(waiting, running, seconds):
                    reference = task.remote(plan, survey, number, self.resources.threads, version("penstock"))
                    running[reference] = (number, time.monotonic())
                ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
                for reference in ready:
                    number, begun = running.pop(reference)
                    if number in settled:
                        continue  # the other copy was quicker
                    try:
                        taken, error, payload = ray.get(reference)
                        result = JobResult(number, payload, error, False, taken)
                        seconds.append(time.monotonic() - begun)
                    except lost as failure:
                        if any(other == number for other, _ in running.values()):
                            continue  # another copy goes on
                        result = JobResult(number, None, f"{type(failure).__name__}", lost=True)
                    settled.add(number)
                    yield result
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _next(self, waiting: deque[int], running: dict[Any, tuple[int, float]], seconds: list[float]) -> list[int]:
        """The jobs to begin now: waiting ones, and once none waits, second copies of late ones."""
        fit = int(self._ray.cluster_resources().get("CPU", 1)) // self.resources.cpus
        free = (self.jobs or max(2 * fit, 1)) - len(running)
        if waiting or len(seconds) < LEAST_DONE:
            return [waiting.popleft() for _ in range(min(free, len(waiting)))]
        limit = time.monotonic() - LATE * statistics.median(seconds) - LOOK_SECONDS
        copies = [number for number, _ in running.values()]
        late = [number for number, begun in running.values() if begun < limit and copies.count(number) == 1]
        return late[: max(min(free, fit - len(running)), 0)]


def run_task(plan: bytes, survey: bytes, number: int, threads: int, release: str) -> tuple[float, str, bytes | None]:
    """Run a job on a node.

    Args:
        plan: Text of the work plan.
        survey: What its making learned about the data.
        number: Number of the job.
        threads: Threads that the job may use; 0 works in the caller.
        release: Version of penstock of the driver.

    Returns:
        Seconds, the error or `""`, and the result or None.

    Raises:
        StateError: This node has another version of penstock.
    """
    if (installed := version("penstock")) != release:
        raise StateError(f"expected penstock {release} on every node, got {installed}; install the same version")
    done = run_job(replace(WorkPlan.decode(plan), survey=survey), number, threads)
    return done.seconds, done.error, done.result
