"""Runners: where jobs run. A runner maps integers to threads, processes or actors of Ray, and knows no operation.

The contract: `run` takes numbers from `waiting`, and yields one `JobResult` for each, in any order. A job may run more
than once, for example because a machine was lost, and only one of its results is used. A result whose worker died is
`lost`; the coordinator adds its number to `waiting` again. Closing the generator ends the workers.
"""

from __future__ import annotations

import importlib.metadata
import os
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.errors import MissingExtraError, PlanError
from penstock.flow.limits import PrefetchLimits, cores, free_memory
from penstock.flow.ordered_map import OrderedMap
from penstock.jobs.work_plan import WorkPlan

HEAD_START = 0.5
"""Seconds of work of the caller before processes are started, which costs each of them about a second of CPU time."""


@dataclass(frozen=True)
class JobResources:
    """Resources of one job.

    Args:
        cpus: Cores, and threads of a job. The default is 1.
        memory: Bytes. Fewer jobs run at a time where the machine has less. The default is None: not bounded.
        gpus: GPUs, also fractions. Only Ray schedules them. The default is 0.

    Raises:
        PlanError: A number is out of range.

    Example:
        >>> JobResources(cpus=2).threads, JobResources(cpus=1).threads
        (2, 0)
    """

    cpus: int = 1
    memory: int | None = None
    gpus: float = 0

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0 or (self.memory is not None and self.memory < 1):
            raise PlanError(f"expected cpus and memory of at least 1 and gpus of at least 0, got {self}")

    @property
    def threads(self) -> int:
        """Threads of a job; 0 works in the caller."""
        return self.cpus if self.cpus > 1 else 0


@dataclass(frozen=True)
class JobResult:
    """What became of a job.

    Args:
        number: Number of the job.
        result: Its result, or None.
        error: Why there is none, or `""`.
        lost: Whether the worker died, so that the job is repeated.
        seconds: Time that the job took.

    Example:
        >>> JobResult(3, None, "the process died (signal 9)", lost=True).lost
        True
    """

    number: int
    result: bytes | None
    error: str = ""
    lost: bool = False
    seconds: float = 0.0


def run_job(work: WorkPlan, number: int, threads: int) -> JobResult:
    """Run a job. An error of the job is part of the result."""
    begin = time.perf_counter()
    try:
        result, error = work.run(number, threads=threads), ""
    except Exception as failure:  # noqa: BLE001 - reported with the range of the job
        result, error = None, _with_cause(failure)
    return JobResult(number, result, error, seconds=time.perf_counter() - begin)


def _with_cause(failure: BaseException) -> str:
    """The error in words, with the error of the system that caused it, such as a full disk."""
    text, cause = f"{type(failure).__name__}: {failure}", failure
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return text if cause is None or cause is failure else f"{text} (after {type(cause).__name__}: {cause})"


class Runner(ABC):
    """Where jobs run.

    Args:
        resources: Resources of one job. The default is one core.

    Example:
        >>> runner: Runner = ThreadRunner(2, JobResources(cpus=2))
        >>> runner.resources.threads
        2
    """

    def __init__(self, resources: JobResources | None = None) -> None:
        self.resources = resources or JobResources()

    @abstractmethod
    def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        """Yield the result of each job, in any order, until none waits or runs.

        Args:
            work: The work plan.
            waiting: Numbers of the jobs, which are taken from it. The caller may add others after each result.
        """

    def isolated(self) -> Runner:
        """Return a runner that runs no job in this process, if this one needs not do so; else this one."""
        return self


class ThreadRunner(Runner):
    """Jobs on threads of this process, or in the caller. Results come in the order of the numbers.

    Args:
        jobs: Jobs at a time. 0 works in the caller. The default is None: all cores.
        resources: Resources of one job. The default is one core.

    Raises:
        PlanError: `jobs` is below 0.

    Example:
        >>> ThreadRunner(4).jobs
        4
    """

    def __init__(self, jobs: int | None = None, resources: JobResources | None = None) -> None:
        super().__init__(resources)
        self.jobs = _at_a_time(jobs, self.resources)

    def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        """Yield the results in the order of the numbers."""
        threads = self.resources.threads

        def work_on(number: int) -> JobResult:
            return run_job(work, number, threads)

        def numbers() -> Generator[int]:
            while waiting:
                yield waiting.popleft()

        with OrderedMap(work_on, numbers(), PrefetchLimits(self.jobs)) as results:
            yield from results


class ProcessRunner(Runner):
    """Jobs on processes of this machine.

    The processes are started with the interpreter of this one and do not import its main module. They end when this
    process ends, also if it is killed. A process that dies is replaced.

    A process needs a second for imports and kernels. Meanwhile the caller runs jobs, unless they run code of the user
    (`Operation.runs_user_code`), and the processes are started when it has done so for half a second. So short work is
    as quick as without processes.

    Args:
        jobs: Jobs at a time, and processes. The default is None: all cores, if there is enough memory.
        resources: Resources of one job. The default is one core.
        meanwhile: Whether the caller runs jobs until the processes have started. A job that ends its process then ends
            the caller; when `run_work` is called again, it runs jobs in processes alone. The default is True.

    Raises:
        PlanError: `jobs` is below 0.

    Example:
        >>> ProcessRunner(2).jobs
        2
    """

    def __init__(
        self, jobs: int | None = None, resources: JobResources | None = None, *, meanwhile: bool = True
    ) -> None:
        super().__init__(resources)
        self.jobs = max(_at_a_time(jobs, self.resources), 1)
        self.meanwhile = meanwhile

    @override
    def isolated(self) -> Runner:
        return ProcessRunner(self.jobs, self.resources, meanwhile=False)

    def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        """Yield the results in the order in which they are ready. Lost jobs run on new processes, after the others."""
        while waiting:
            numbers = deque(waiting)
            waiting.clear()
            yield from self._run(work, numbers)

    def _run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        threads = self.resources.threads
        here = self.meanwhile and not work.opened().runs_user_code
        with closing(_Workers(work, threads)) as workers:
            workers.start(min(self.jobs, len(waiting) - here), HEAD_START if here else 0)  # the caller does one job
            while waiting or workers.busy:
                free = workers.busy < self.jobs
                if here and waiting and free and not wait(workers.connections, 0):
                    yield run_job(work, waiting.popleft(), threads)
                    continue
                for worker in workers.ready():
                    if (result := worker.result(waiting)) is not None:
                        yield result
                    if worker.alive and waiting:  # after `yield`: the caller may publish weights for the next job
                        worker.begin(waiting.popleft())
                workers.restart(min(self.jobs, len(waiting) + workers.busy))


class _Workers:
    """The processes of a run. They may be started later, by another thread, while the caller runs a job."""

    def __init__(self, work: WorkPlan, threads: int) -> None:
        self._work, self._threads = work, threads
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._later: threading.Timer | None = None
        self._closed = False

    def start(self, count: int, seconds: float) -> None:
        """Start some processes after some seconds. 0 starts them now."""
        if not seconds:
            self._add(count)
        elif count > 0:
            self._later = threading.Timer(seconds, self._add, (count,))
            self._later.daemon = True
            self._later.start()

    def restart(self, count: int) -> None:
        """Replace dead processes by new ones, up to `count` processes in all."""
        with self._lock:
            gone = [worker for worker in self._workers if not worker.alive]
            self._workers = [worker for worker in self._workers if worker.alive]
        for worker in gone:
            worker.stop()
        if gone:
            self._add(count)

    def _add(self, count: int) -> None:
        with self._lock:
            while len(self._workers) < count and not self._closed:
                self._workers.append(_Worker(self._work, self._threads))

    @property
    def busy(self) -> int:
        """How many processes have a job."""
        return sum(worker.busy for worker in self._workers)

    @property
    def connections(self) -> list[Connection]:
        return [worker.connection for worker in self._workers]

    def ready(self) -> list[_Worker]:
        """Wait for messages, and return the processes that sent one."""
        workers = list(self._workers)
        ready = wait([worker.connection for worker in workers])
        return [worker for worker in workers if worker.connection in ready]

    def close(self) -> None:
        """End the processes at once."""
        if self._later is not None:
            self._later.cancel()
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.stop()


class _Worker:
    """A process that runs one job after the other, and a connection to it. It says when it has started."""

    def __init__(self, work: WorkPlan, threads: int) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": _python_path()}
        command = [sys.executable, "-m", "penstock.jobs.worker", str(theirs.fileno()), str(threads)]
        with theirs:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        self.connection = Connection(ours.detach())
        self.alive = True
        self._number: int | None = None
        with suppress(BrokenPipeError, ConnectionResetError):  # the process died already: `result` says so
            self.connection.send_bytes(work.encode())
            self.connection.send_bytes(work.survey)

    @property
    def busy(self) -> bool:
        """Whether the process has a job."""
        return self._number is not None

    def begin(self, number: int) -> None:
        self._number = number
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(str(number).encode())

    def result(self, waiting: deque[int]) -> JobResult | None:
        """Wait for the result of the job. None if the process says that it has started.

        If the process died, its job is lost. A process that died before it had a job loses the next waiting job, which
        bounds how often processes are started that cannot run.
        """
        number, self._number = self._number, None
        try:
            seconds = float(self.connection.recv_bytes())
            if number is None:
                return None
            error = self.connection.recv_bytes().decode()
            result = None if error else self.connection.recv_bytes()
        except (EOFError, OSError):  # OSError without a number also means an end in the middle of a message
            self.alive = False
            code = self.process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if number is None and waiting:
                number = waiting.popleft()
            return None if number is None else JobResult(number, None, f"the process died ({how})", lost=True)
        return JobResult(number, result, error, False, seconds)

    def stop(self) -> None:
        """End the process at once."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def _python_path() -> str:
    """The path by which a new process finds this package, before what the environment has."""
    package = str(Path(__file__).parents[2])
    return os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


def _at_a_time(jobs: int | None, resources: JobResources) -> int:
    """How many jobs run at a time: `jobs` or all cores, within the free memory."""
    if jobs is not None and jobs < 0:
        raise PlanError(f"expected jobs >= 0, got {jobs}")
    count = max(cores() // resources.cpus, 1) if jobs is None else jobs
    return count if resources.memory is None else max(min(count, free_memory() // resources.memory), min(count, 1))


RUNNERS: dict[str, Callable[..., Runner]] = {"threads": ThreadRunner, "processes": ProcessRunner}
"""Runners of this distribution. The entry points `penstock.runners` name others, such as `ray` of penstock-cluster."""


def runner_of(name: str, jobs: int | None = None, resources: JobResources | None = None, **options: Any) -> Runner:
    """Return a runner by its name.

    Args:
        name: `"threads"`, `"processes"` or `"ray"`.
        jobs: Jobs at a time. The default is None: all cores.
        resources: Resources of one job. The default is one core.
        options: Options of the runner, such as `address` of Ray.

    Returns:
        The runner.

    Raises:
        PlanError: No runner has that name.
        MissingExtraError: Ray is not installed.

    Example:
        >>> runner_of("threads", 2).jobs
        2
    """
    others = {point.name: point for point in importlib.metadata.entry_points(group="penstock.runners")}
    if name == "ray" and name not in others:
        raise MissingExtraError(
            "the runner 'ray' is not installed; install it with: pip install 'penstock-cluster[ray]'"
        )
    if name not in RUNNERS and name not in others:
        raise PlanError(f"expected a runner among {[*RUNNERS, *others]}, got {name!r}")
    kind = RUNNERS[name] if name in RUNNERS else others[name].load()
    return kind(jobs, resources, **options)
