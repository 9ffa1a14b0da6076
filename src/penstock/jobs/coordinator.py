"""Run the jobs of a work plan, keep a journal, and merge the results.

Results are files by the number of their job, each of which appears only when it is whole. The name of each file has the
digest of its work plan, so any number of plans may share a folder, and a folder may have other files: only the files of
the plan are read and deleted.

The state of the work is the folder of results. A coordinator that is killed at any moment loses only the jobs that were
running: the next one runs the jobs without a result. The journal is locked while a coordinator works, so there is one
at a time; it has a line of JSON for each job that was done, failed or lost, and for the start and the end of each run.
A run without an end was killed, perhaps by a job: later ones run no job in the process of the command.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.text import counted
from penstock.errors import DataError, PlanError, WorkerError
from penstock.files import AppendLog, read_checked, remove_folder, write_checked
from penstock.jobs.runners import JobResult, Runner, ThreadRunner, run_job
from penstock.jobs.work_plan import WorkPlan

HOLDER = "another run of the same work plan, or of one with the same folder of results"
ATTEMPTS = 4
"""How often a job runs whose worker dies, or whose node of a Ray cluster is at fault."""
LISTED = 20

OnJob = Callable[[int, int], object]
MAGIC = b"penstock result 1\n"
RESULT = ".result"
FINISHED = ".finished"
"""End of the name of the file that is left of the results of an array job when they are merged and shown."""
JOURNAL = "journal.jsonl"
"""Name of the journal of the commands that work in the folder; each line has the plan."""
JOURNAL_HEAD = b'{"penstock_journal": "work", "version": 1}\n'
DIGITS = 16  # of the digest of a work plan, in names


class ResultFolder:
    """Results of the jobs of a work plan. Any number of processes may write to it, also the same job twice.

    A file has the digest of its work plan, in its name too, and a checksum. A damaged or foreign file counts as no
    result.
    """

    def __init__(self, folder: Path, work: WorkPlan) -> None:
        self.folder = folder
        self._work = work
        self._prefix = work.digest[:DIGITS]

    def path(self, number: int) -> Path:
        return self.folder / f"{self._prefix}-{number:08d}{RESULT}"

    def publish(self, number: int, result: bytes) -> None:
        """Write a result, atomically."""
        write_checked(self.path(number), MAGIC, self._key(number), result)

    def get(self, number: int) -> bytes | None:
        content = read_checked(self.path(number), MAGIC, self._key(number))
        return None if content is None else bytes(content)

    def missing(self, has_part: Callable[[bytes], bool] | None = None) -> list[int]:
        """Return the numbers of jobs without a result. Cost: every file is read, to compare its checksum."""
        present = {path.name for path in self._results()}
        return [
            number
            for number in range(len(self._work))
            if self.path(number).name not in present
            or (result := self.get(number)) is None
            or (has_part is not None and not has_part(result))
        ]

    def in_order(self) -> Iterator[bytes]:
        for number in range(len(self._work)):
            result = self.get(number)
            if result is None:
                raise DataError(f"expected the result of {self._work.place(number)} in {self.folder}, got none")
            yield result

    def remove(self) -> None:
        """Delete the results, and the folder with its journal if nothing else is in it."""
        own = {*self._results(), self._finished}
        if _is_journal(journal := self.folder / JOURNAL):
            own.add(journal)
        if not self.folder.is_dir() or own.issuperset(self.folder.iterdir()):
            remove_folder(self.folder)
        else:
            self._delete(own - {journal})

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command that merged and showed the results, or None if none did."""
        content = read_checked(self._finished, MAGIC, self._key(FINISHED))
        return None if content is None else int(bytes(content))

    def finish(self, exit_code: int) -> None:
        """Delete the results, and leave a file that says so: tasks that start late, or again, have nothing to do."""
        write_checked(self._finished, MAGIC, self._key(FINISHED), str(exit_code).encode())
        self._delete(self._results())

    @property
    def _finished(self) -> Path:
        return self.folder / f"{self._prefix}{FINISHED}"

    def _results(self) -> list[Path]:
        """The files of results, whether they are sound or not."""
        return sorted(self.folder.glob(f"{self._prefix}-*{RESULT}"))

    def _delete(self, files: Iterable[Path]) -> None:
        for path in files:
            path.unlink(missing_ok=True)

    def _key(self, name: int | str) -> str:
        return f"{self._work.digest} {name}"


def _is_journal(path: Path) -> bool:
    """Whether a file is the journal of commands that work in its folder, and not somebody's file of that name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(JOURNAL_HEAD)) == JOURNAL_HEAD


@dataclass
class WorkReport:
    """What became of the jobs of a work plan.

    Args:
        total: Number of jobs.
        earlier: Jobs that had a result before.
        done: Jobs that were done now.
        lost: How often a worker died, or a node of a Ray cluster was at fault.
        failures: Error of each job that failed, by its number.
        seconds: Time of all jobs together.

    Example:
        >>> WorkReport(4, earlier=1, done=3).to_json()["failures"]
        []
    """

    total: int
    earlier: int = 0
    done: int = 0
    lost: int = 0
    failures: dict[int, str] = field(default_factory=dict[int, str])
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        failures = [{"job": number, "error": error} for number, error in sorted(self.failures.items())]
        return {
            "jobs": self.total,
            "earlier": self.earlier,
            "done": self.done,
            "lost": self.lost,
            "failures": failures,
            "seconds": self.seconds,
        }


class WorkJournal:
    """The journal of a coordinator: locked, appended to, never rewritten.

    `was_killed` says whether a run of the same plan before this one has no end.
    """

    def __init__(self, path: Path, plan: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._log = AppendLog(path, JOURNAL_HEAD, "the journal of a work plan", HOLDER)
        self._plan = plan[:DIGITS]
        content = self._log.read()
        self._log.truncate(content.rfind(b"\n") + 1)  # a killed coordinator may leave half a line
        self.was_killed = content.count(self._line("begun")) > content.count(self._line("ended"))
        self._begun = False

    def _line(self, event: str, **entries: object) -> bytes:
        return json.dumps({"event": event, "plan": self._plan, **entries}).encode() + b"\n"

    def begin(self) -> None:
        """Note that jobs begin to run."""
        self._log.append(self._line("begun"))
        self._begun = True

    def add(self, result: JobResult) -> None:
        event = "lost" if result.lost else "failed" if result.error else "done"
        error = {"error": result.error} if result.error else {}
        self._log.append(self._line(event, job=result.number, seconds=round(result.seconds, 6), **error))

    def close(self) -> None:
        """Note the end of the run, close the file and end the lock."""
        if self._begun:
            with suppress(OSError):  # a full disk: this run counts as killed, which costs later ones their quick start
                self._log.append(self._line("ended"))
        self._log.close()


def run_work(
    work: WorkPlan,
    folder: Path,
    runner: Runner | None = None,
    *,
    max_failures: int = 0,
    on_job: OnJob | None = None,
) -> WorkReport:
    """Run all jobs that have no result yet.

    A job that raises an error is not repeated. A job whose worker dies is repeated up to three times. So is a job on a
    node of a Ray cluster whose disk is full or fails, while other nodes fit. A job that the caller runs itself
    (`ThreadRunner`, and `ProcessRunner` until its processes have started) may end the caller. The next call then leaves
    all jobs to processes, if the runner has any.

    Args:
        work: The work plan.
        folder: Folder of the results and the journal. Other plans and other files may be in it.
        runner: Where jobs run. The default is None: the caller.
        max_failures: How many jobs may fail before the others are given up. The default is 0.
        on_job: Called as `on_job(done, total)` at the start and after each job. The default is None.

    Returns:
        Numbers of jobs, and at most `max_failures` failures. The jobs that failed have no result.

    Raises:
        PlanError: `max_failures` is below 0.
        WorkerError: More than `max_failures` jobs failed. The message lists them with their ranges.
        LockedError: Another coordinator works in the same folder.
        StateError: The data changed since the work plan was made.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> place = penstock.convert(data, tempfile.mkdtemp() + "/data").out
        >>> work = WorkPlan.make("stats", {"location": str(place)})
        >>> results = Path(tempfile.mkdtemp()) / "results"
        >>> run_work(work, results).done, run_work(work, results).earlier
        (1, 1)
        >>> finish_work(work, results) == penstock.statistics(data)
        True
    """
    if max_failures < 0:
        raise PlanError(f"expected max_failures >= 0, got {max_failures}")
    operation = work.opened()  # before anything is written: the data may have changed
    runner = runner or ThreadRunner(0)
    results = ResultFolder(folder, work)
    if results.missing(operation.has_part) and operation.finished() is not None:
        return WorkReport(len(work), len(work))
    with closing(WorkJournal(folder / JOURNAL, work.digest)) as journal:
        waiting = deque(results.missing(operation.has_part))
        report = WorkReport(len(work), len(work) - len(waiting))
        attempts, done = Counter[int](), set[int]()
        if waiting:
            journal.begin()
        if waiting and on_job is not None:
            on_job(report.earlier, report.total)
        runner = runner.isolated() if journal.was_killed else runner
        with closing(runner.run(work, waiting)) as stream:
            for result in stream:
                attempts[result.number] += 1
                _settle(result, results, report, done)
                journal.add(result)
                if result.lost and attempts[result.number] < ATTEMPTS:
                    waiting.append(result.number)
                elif result.error:
                    report.failures[result.number] = result.error
                if len(report.failures) > max_failures:
                    raise WorkerError(failures_of(work, report.failures))
                if on_job is not None:
                    on_job(report.earlier + report.done, report.total)
    return report


def _settle(result: JobResult, results: ResultFolder, report: WorkReport, done: set[int]) -> None:
    """Publish a result, and count it, unless another copy of the job is among the numbers that are done."""
    report.seconds += result.seconds
    report.lost += result.lost
    if result.result is not None:
        done.add(result.number)
        report.done = len(done)
        results.publish(result.number, result.result)


def run_share(work: WorkPlan, folder: Path, index: int, count: int, *, threads: int = 0) -> WorkReport:
    """Run the jobs of one of `count` array tasks: `index`, `index + count` and so on. Tasks need nothing of each other.

    Args:
        work: The work plan.
        folder: Folder of the results, which all tasks can reach.
        index: Number of this task, from 0.
        count: Number of tasks.
        threads: Threads of a job. The default is 0: work in the caller.

    Returns:
        Numbers of jobs, and the failures. A job that fails does not stop the others.

    Raises:
        PlanError: The task is out of range.
        StateError: The data changed since the work plan was made.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> place = penstock.convert(data, tempfile.mkdtemp() + "/data").out
        >>> work = WorkPlan.make("check", {"location": str(place)})
        >>> [run_share(work, place.with_name("results"), task, count=2).done for task in range(2)]
        [1, 1]
    """
    if not 0 <= index < count:
        raise PlanError(
            f"expected an index within 0:{count}, got {index}; the tasks of an array have numbers from 0 on"
        )
    results = ResultFolder(folder, work)
    numbers = range(index, len(work), count)
    report, done = WorkReport(len(numbers)), set[int]()
    if results.exit_code is not None or (operation := work.opened()).finished() is not None:
        return WorkReport(len(numbers), len(numbers))
    for number in numbers:
        if (earlier := results.get(number)) is not None and operation.has_part(earlier):
            report.earlier += 1
            continue
        result = run_job(work, number, threads)
        _settle(result, results, report, done)
        if result.error:
            report.failures[number] = result.error
    return report


def missing_jobs(work: WorkPlan, folder: Path) -> list[int]:
    """Return the numbers of the jobs that are to be run.

    Args:
        work: The work plan.
        folder: Folder of the results.

    Returns:
        Numbers in ascending order of the jobs without a result; none if the results were merged and shown.

    Example:
        >>> from penstock.jobs import WorkRange
        >>> missing_jobs(WorkPlan("stats", {}, "", (WorkRange(0, 5), WorkRange(5, 9))), Path("nothing"))
        [0, 1]
    """
    results = ResultFolder(folder, work)
    return [] if results.exit_code is not None else results.missing()


def finish_work(work: WorkPlan, folder: Path) -> Any:
    """Merge the results of all jobs.

    Args:
        work: The work plan.
        folder: Folder of the results.

    Returns:
        The result of the operation, as of a run without jobs.

    Raises:
        DataError: Jobs have no result. The message lists them with their ranges.
        StateError: The data changed since the work plan was made.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> place = penstock.convert(data, tempfile.mkdtemp() + "/data").out
        >>> work = WorkPlan.make("stats", {"location": str(place)})
        >>> _ = run_share(work, place.with_name("results"), 0, 1)
        >>> float(finish_work(work, place.with_name("results"))["rewards"].max)
        4.0
    """
    results = ResultFolder(folder, work)
    operation = work.opened()
    if missing := results.missing(operation.has_part):
        if (result := operation.finished()) is not None:
            return result
        raise DataError(
            f"expected results of all {counted(len(work), 'job')}, got {len(work) - len(missing)}; missing are "
            f"{_listed(work, missing)}; run these again"
        )
    return operation.finish(results.in_order())


def failures_of(work: WorkPlan, failures: dict[int, str]) -> str:
    """Return a message that lists failed jobs, with their ranges and errors."""
    lines = [f"{work.place(number)}: {error}" for number, error in sorted(failures.items())[:LISTED]]
    number = counted(len(failures), "failed job")
    return f"expected no failures, got {number}: {'; '.join(lines)}; jobs that did not run may fail too"


def _listed(work: WorkPlan, numbers: Sequence[int]) -> str:
    shown = ", ".join(work.place(number) for number in numbers[:LISTED])
    return shown if len(numbers) <= LISTED else f"{shown} and {len(numbers) - LISTED} others"
