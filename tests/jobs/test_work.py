"""Work plans, results and coordinators: equal to one run, whatever dies, is doubled or comes late."""

# pyright: basic

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import DataError, FormatError, LockedError, PlanError, StateError, WorkerError
from penstock.jobs.coordinator import JOURNAL, ResultFolder, finish_work, missing_jobs, run_share, run_work
from penstock.jobs.operation import pack, unpack
from penstock.jobs.runners import JobResources, JobResult, ProcessRunner, Runner, ThreadRunner, _Worker, run_job
from penstock.jobs.work_plan import WorkPlan, WorkRange, cut_ranges
from tests.threads import threads_before, wait_for_others

SMALL = 500_000


@pytest.fixture
def work(recording: Path) -> WorkPlan:
    arguments = {"location": str(recording), "by": "task"}
    return WorkPlan.make("stats", arguments, range_bytes=SMALL)


@pytest.fixture
def expected(recording: Path) -> object:
    return penstock.statistics(penstock.open(recording), by="task")


class Unreliable(Runner):
    """Runs jobs in a random order, some twice; loses the first attempts of some."""

    def __init__(self, seed: int, losses: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.losses = losses
        self.lost = 0

    def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        while waiting:
            order = [*waiting, *self.random.sample(list(waiting), len(waiting) // 2)]
            waiting.clear()
            self.random.shuffle(order)
            for number in order:
                if self.losses and self.random.random() < 0.5:
                    self.losses -= 1
                    self.lost += 1
                    yield JobResult(number, None, "the process died (signal 9)", lost=True)
                else:
                    yield run_job(work, number, 0)


@pytest.mark.parametrize("seed", range(3))
def test_lost_and_doubled_jobs_change_nothing(seed: int, work: WorkPlan, expected: object, tmp_path: Path) -> None:
    runner = Unreliable(seed, 4)
    report = run_work(work, tmp_path, runner)
    assert report.lost == runner.lost > 0
    assert finish_work(work, tmp_path) == expected


@pytest.mark.parametrize(
    "runner",
    [ThreadRunner(0), ThreadRunner(3), ProcessRunner(2, meanwhile=False), ProcessRunner(2)],
    ids=["caller", "threads", "processes", "caller and processes"],
)
def test_runners_are_equal(
    runner: Runner, work: WorkPlan, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.jobs.runners.HEAD_START", 0.001)  # so that processes are started at all
    seen: list[tuple[int, int]] = []
    report = run_work(work, tmp_path, runner, on_job=lambda *counts: seen.append(counts))
    assert (report.done, report.earlier, report.failures) == (len(work), 0, {})
    assert seen == [(i, len(work)) for i in range(len(work) + 1)]
    assert finish_work(work, tmp_path) == expected


def children() -> list[int]:
    pid = os.getpid()
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_processes_that_are_killed_are_replaced(work: WorkPlan, expected: object, tmp_path: Path) -> None:
    kills = [4, 1]  # once each: a lost job does not change how many are done

    def kill(done: int, _: int) -> None:
        if kills and done == kills[-1]:
            kills.pop()
            for child in set(children()) - set(before):
                os.kill(child, signal.SIGKILL)

    before = children()  # processes of other tests, such as the tracker of shared memory
    report = run_work(work, tmp_path, ProcessRunner(2, meanwhile=False), on_job=kill)
    assert report.lost >= 2
    assert kills == []
    assert report.failures == {}
    assert children() == before
    assert finish_work(work, tmp_path) == expected


def test_a_process_that_dies_anywhere_in_its_answer_loses_the_job() -> None:
    messages = [struct.pack("!i", len(text)) + text for text in (b"0.5", b"", b"a result of some bytes")]
    answer = b"".join(messages)
    for sent in range(len(answer) + 1):
        ours, theirs = socket.socketpair()
        worker = object.__new__(_Worker)
        worker.connection, worker._number, worker.alive = Connection(ours.detach()), 7, True
        worker.process = subprocess.Popen(["true"])
        theirs.sendall(answer[:sent])
        theirs.close()
        result = worker.result(deque())
        worker.stop()
        assert result is not None
        assert (result.number, result.lost, worker.alive) == (7, sent < len(answer), sent == len(answer))
        assert result.result == (b"a result of some bytes" if sent == len(answer) else None)


def test_short_work_starts_no_processes(work: WorkPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobs.runners.HEAD_START", 3600)
    before = children()
    seen: list[list[int]] = []
    threads = threads_before()
    report = run_work(work, tmp_path, ProcessRunner(2), on_job=lambda *_: seen.append(children()))
    assert report.done == len(work)
    assert seen == [before] * (len(work) + 1)
    wait_for_others(threads)  # also the one that would have started processes


BLOCKED = """
import sys, threading
from multiprocessing.connection import Connection
from penstock.jobs.worker import end_with_parent
threading.Thread(target=end_with_parent, args=(Connection(int(sys.argv[1])),), daemon=True).start()
threading.Event().wait()
"""


def test_a_worker_in_the_middle_of_a_job_ends_with_its_coordinator() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", BLOCKED, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    ours.close()
    assert process.wait(120) == 1


@pytest.mark.parametrize("chained", ["directly", "as the cause", "as the context", "hidden"])
def test_an_error_of_a_job_names_the_error_of_the_system_that_caused_it(
    chained: str, work: WorkPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = OSError(errno.ENOSPC, "No space left on device")

    def fail(*_: object, **__: object) -> bytes:
        if chained == "directly":
            raise cause
        try:
            raise cause
        except OSError:
            if chained == "as the context":
                raise ValueError("of the job")  # noqa: B904
            raise ValueError("of the job") from (cause if chained == "as the cause" else None)

    monkeypatch.setattr(WorkPlan, "run", fail)
    result = run_job(work, 3, 0)
    assert (result.number, result.result, result.lost) == (3, None, False)
    assert ("No space left" in result.error) == (chained != "hidden")
    assert ("ValueError: of the job" in result.error) == (chained != "directly")


def test_a_job_that_always_kills_its_worker_fails_with_its_range(work: WorkPlan, tmp_path: Path) -> None:
    class Deadly(Runner):
        def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
            while waiting:
                if (number := waiting.popleft()) == 1:
                    yield JobResult(1, None, "the process died (signal 9)", lost=True)
                else:
                    yield run_job(work, number, 0)

    with pytest.raises(WorkerError, match=r"1 failed job: job 1 \(blocks \d+ to \d+ of .*signal 9"):
        run_work(work, tmp_path, Deadly())
    report = run_work(work, tmp_path, Deadly(), max_failures=1)
    assert list(report.failures) == [1]
    assert missing_jobs(work, tmp_path) == [1]
    with pytest.raises(DataError, match=r"missing are job 1 \(blocks"):
        finish_work(work, tmp_path)
    events = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()[1:]]
    assert sum(event["event"] == "lost" for event in events) == 8


CRASHING = """
import os, signal, sys
from pathlib import Path
from penstock.jobs import WorkPlan, run_work, JobResult
from penstock.jobs.runners import ProcessRunner
work, folder, last = WorkPlan.read(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
def on_job(done, total):
    if done >= last:
        os.kill(os.getpid(), signal.SIGKILL)
run_work(work, folder, ProcessRunner(2, meanwhile=False), on_job=on_job)
"""


def test_a_killed_coordinator_goes_on(work: WorkPlan, expected: object, tmp_path: Path) -> None:
    plan, folder = tmp_path / "plan.json", tmp_path / "results"
    work.write(plan)
    for last in (0, 2, 5):
        command = [sys.executable, "-c", CRASHING, str(plan), str(folder), str(last)]
        # The call ends when every process has closed its standard error: no worker outlives its coordinator.
        done = subprocess.run(command, capture_output=True, timeout=600, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert len(work) - len(missing_jobs(work, folder)) >= last
    with (folder / JOURNAL).open("ab") as journal:
        journal.write(b'{"event": "do')  # half a line
    report = run_work(work, folder)
    assert 5 <= report.earlier < len(work)
    assert finish_work(work, folder) == expected
    assert all(json.loads(line) for line in (folder / JOURNAL).read_text().splitlines())


DEADLY = """
import os, signal, sys
from pathlib import Path
from penstock.jobs import WorkPlan, run_work, runners
run = WorkPlan.run
def deadly(work, number, *, threads=0):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(work, number, threads=threads)
WorkPlan.run = deadly
runners.HEAD_START = 3600
run_work(WorkPlan.read(sys.argv[1]), Path(sys.argv[2]), runners.ProcessRunner(2))
"""


def test_a_job_that_ends_its_coordinator_runs_in_a_process_the_next_time(
    work: WorkPlan, expected: object, tmp_path: Path
) -> None:
    work.write(tmp_path / "plan.json")
    for code in (-signal.SIGKILL, 0):  # job 2 ends whoever runs it, except for the processes of a runner
        command = [sys.executable, "-c", DEADLY, str(tmp_path / "plan.json"), str(tmp_path / "results")]
        done = subprocess.run(command, capture_output=True, timeout=600, check=False)
        assert done.returncode == code, done.stderr
    assert finish_work(work, tmp_path / "results") == expected
    events = [json.loads(line)["event"] for line in (tmp_path / "results" / JOURNAL).read_text().splitlines()[1:]]
    assert [event for event in events if event in ("begun", "ended")] == ["begun", "begun", "ended"]


def test_tasks_of_an_array_need_nothing_of_each_other(work: WorkPlan, expected: object, tmp_path: Path) -> None:
    for index in (2, 0, 1, 1):
        run_share(work, tmp_path, index, 3)
    assert finish_work(work, tmp_path) == expected
    assert run_share(work, tmp_path, 0, 1).earlier == len(work)
    with pytest.raises(PlanError, match="index within 0:3, got 3"):
        run_share(work, tmp_path, 3, 3)


def test_damaged_results_are_made_again(work: WorkPlan, expected: object, tmp_path: Path) -> None:
    run_work(work, tmp_path)
    results = ResultFolder(tmp_path, work)
    results.path(0).write_bytes(results.path(0).read_bytes()[:-1])
    results.path(1).write_bytes(results.path(2).read_bytes())  # of another job
    assert missing_jobs(work, tmp_path) == [0, 1]
    assert run_work(work, tmp_path).done == 2
    assert finish_work(work, tmp_path) == expected


def test_one_coordinator_at_a_time(work: WorkPlan, tmp_path: Path) -> None:
    def again(done: int, _: int) -> None:
        if done == 0:
            with pytest.raises(LockedError, match="another run of the same work plan"):
                run_work(work, tmp_path)

    run_work(work, tmp_path, on_job=again)


def test_changed_data_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "data"
    penstock.convert(penstock.from_arrays({"rewards": np.arange(3.0)}, [3]), place)
    work = WorkPlan.make("stats", {"location": str(place)})
    penstock.convert(penstock.from_arrays({"rewards": np.arange(4.0)}, [4]), place, overwrite=True)
    for run in (run_work, lambda *given: run_share(*given, 0, 1)):
        with pytest.raises(StateError, match="got what changed since; make a new plan"):
            run(work, tmp_path / "results")


def test_plans_are_files(work: WorkPlan, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    work.write(plan)
    work.write(plan)
    assert WorkPlan.read(plan) == work
    with pytest.raises(FileExistsError):
        WorkPlan.make("stats", {"location": work.arguments["location"]}).write(plan)
    for wrong in (b"{}", b"[", b'{"penstock_work": 1}', work.encode().replace(b"[0, ", b"[1, ", 1)):
        plan.write_bytes(wrong)
        with pytest.raises(FormatError):
            WorkPlan.read(plan)
    other = work.encode().replace(version("penstock").encode(), b"0.0.1", 1)
    with pytest.raises(FormatError, match=r"of penstock \S+, got one of 0.0.1, which may cut"):
        WorkPlan.decode(other)
    longer = replace(work, ranges=(*work.ranges, WorkRange(work.ranges[-1].last, work.ranges[-1].last + 1)))
    for run in (longer.opened, replace(work, ranges=work.ranges[:-1]).opened):
        with pytest.raises(FormatError, match=r"expected ranges over \d+ blocks, got \d+; make a new plan"):
            run()
    with pytest.raises(DataError, match="did you mean 'stats'"):
        WorkPlan.make("stat", {})


def test_ranges_cover_all_blocks_by_bytes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        weights = rng.integers(0, 1000, rng.integers(0, 40))
        size = int(rng.integers(1, 3000))
        ranges = cut_ranges(weights, size)
        assert [block for first, last in ranges for block in range(first, last)] == list(range(len(weights)))
        assert all(weights[a:b].sum() <= size or b - a == 1 for a, b in ranges)
    assert 256 <= len(cut_ranges(np.full(100_000, 1 << 20))) <= 258
    with pytest.raises(PlanError):
        cut_ranges(np.ones(1), 0)


def test_resources() -> None:
    with pytest.raises(PlanError):
        JobResources(cpus=0)
    assert ProcessRunner(8, JobResources(memory=1 << 60)).jobs == 1
    assert ThreadRunner(0, JobResources(memory=1 << 60)).jobs == 0


def test_packed_values_are_equal() -> None:
    value = {"a": np.arange(6, dtype="<f4").reshape(2, 3), "b": [None, "x", float("inf"), {"c": np.zeros((0, 2))}]}
    again = unpack(pack(value))
    assert again["a"].tolist() == value["a"].tolist()
    assert again["b"][3]["c"].shape == (0, 2)
    assert again["b"][:3] == value["b"][:3]
    for wrong in (b"", b"\xff" * 20, pack(value)[:9]):
        with pytest.raises(FormatError):
            unpack(wrong)


def test_results_are_deleted_by_name_and_plans_share_a_folder(work: WorkPlan, expected: object, tmp_path: Path) -> None:
    """A folder of the user, such as `--results .`, has other files, also with names like ours; and two plans."""
    mine = {"thesis.tex": b"a", "00000000.result": b"b", "finished": b"c", "x-00000000.result": b"d"}
    for name, content in mine.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "figures").mkdir()
    other = WorkPlan.make("check", {"location": work.arguments["location"]}, range_bytes=20_000)
    assert len(other) > 1
    run_share(work, tmp_path, 0, 1)
    run_work(other, tmp_path)
    assert run_work(work, tmp_path).earlier == len(work)
    assert missing_jobs(other, tmp_path) == []
    finish_work(other, tmp_path)
    ResultFolder(tmp_path, other).finish(1)
    assert finish_work(work, tmp_path) == expected
    ResultFolder(tmp_path, work).finish(0)
    assert [ResultFolder(tmp_path, plan).exit_code for plan in (work, other)] == [0, 1]
    for plan in (work, other):
        ResultFolder(tmp_path, plan).remove()
        assert {name: (tmp_path / name).read_bytes() for name in mine} == mine
    assert {path.name for path in tmp_path.iterdir()} == {*mine, "figures", JOURNAL}
    for name in ("thesis.tex", "00000000.result", "finished", "x-00000000.result"):
        (tmp_path / name).unlink()
    (tmp_path / "figures").rmdir()
    (tmp_path / JOURNAL).write_bytes(b"a journal of somebody else\n")
    ResultFolder(tmp_path, work).remove()
    assert (tmp_path / JOURNAL).exists()
    (tmp_path / JOURNAL).unlink()
    ResultFolder(tmp_path, work).remove()
    assert not tmp_path.exists()
    tmp_path.mkdir()


def test_a_plan_does_not_replace_what_is_there(work: WorkPlan, tmp_path: Path) -> None:
    other = WorkPlan.make("check", {"location": work.arguments["location"]})
    other = replace(other, survey=b"what the other plan learned")
    other.write(tmp_path / "plan.json")
    (tmp_path / "notes.json").write_text("[1, 2]")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "nothing")
    for name, got in [
        ("plan", "the work plan of another `check`"),
        ("notes", "another file"),
        ("folder", "a folder"),
        ("link", "a link"),
    ]:
        with pytest.raises(FileExistsError, match=f"or this work plan, got {got}.*remove it, or choose another place"):
            replace(work, survey=b"x").write(tmp_path / f"{name}.json")
    assert WorkPlan.read(tmp_path / "plan.json").survey == other.survey
