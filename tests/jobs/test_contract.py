"""The contract of work in parts: a command gives the bytes of its run without jobs, by every runner, under faults."""

# pyright: basic

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest

from penstock.jobs.coordinator import finish_work, run_share, run_work
from penstock.jobs.runners import JobResult, ProcessRunner, Runner, ThreadRunner, run_job
from penstock.jobs.work_plan import WorkPlan
from tests.jobs.cases import CASES, Inputs


def run_array(work: WorkPlan, folder: Path, plan: Path) -> None:
    """Run the tasks of an array job in another order, one of them twice, each with what the files say."""
    work.write(plan)
    for index in (2, 0, 1, 1):
        assert run_share(WorkPlan.read(plan), folder, index, 3).failures == {}


Expected = Callable[[str], Mapping[str, bytes]]
RUNNERS = {
    "caller": lambda: ThreadRunner(0),
    "threads": lambda: ThreadRunner(3),
    "processes": lambda: ProcessRunner(2, meanwhile=False),
}


# A result without files, parts on disk, a library that must not break in a forked process, and data that grow. What
# arrives late, twice or not at all is tested for each command below, and plans from a file in `test_crashes.py`.
FEW = ["stats", "convert to columns", "convert to lerobot", "record --grow"]


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("runner", [*RUNNERS, "array"])
def test_each_runner_gives_the_bytes_of_a_run_without_jobs(
    name: str, runner: str, inputs: Inputs, expected: Expected, tmp_path: Path
) -> None:
    work = CASES[name].plan(inputs, tmp_path)
    if runner == "array":
        run_array(work, tmp_path / "results", tmp_path / "plan.json")
    else:
        report = run_work(work, tmp_path / "results", RUNNERS[runner]())
        assert (report.done, report.failures) == (len(work), {})
    result = finish_work(work, tmp_path / "results")
    assert CASES[name].outcome(result, tmp_path) == expected(name)


class Unreliable(Runner):
    """Runs jobs in a random order, each twice; loses results of some, after the work was done."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def run(self, work: WorkPlan, waiting: deque[int]) -> Generator[JobResult]:
        rounds = 0
        while waiting:
            order = [*waiting, *waiting]
            lost = self.random.sample(list(waiting), (len(waiting) + 1) // 2) if rounds < 2 else []
            self.random.shuffle(order)
            waiting.clear()
            rounds += 1
            for number in order:
                result = run_job(work, number, 0)
                if number in lost:
                    lost.remove(number)
                    yield JobResult(number, None, "the process died (signal 9)", lost=True)
                else:
                    yield result


@pytest.mark.parametrize("name", CASES)
def test_lost_doubled_and_late_jobs_change_nothing(
    name: str, inputs: Inputs, expected: Expected, tmp_path: Path
) -> None:
    work = CASES[name].plan(inputs, tmp_path)
    report = run_work(work, tmp_path / "results", Unreliable(name))
    assert report.lost > 0
    assert report.failures == {}
    late = run_job(work, len(work) - 1, 0)  # a straggler, when all results are there
    assert late.error == ""
    result = finish_work(work, tmp_path / "results")
    assert CASES[name].outcome(result, tmp_path) == expected(name)
    assert not list(tmp_path.glob("*.parts"))
