"""Commands in parts, and `penstock work`, print and write the same as in one run."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.jobs.work_plan import WorkPlan
from tests.cli.conftest import Call

REPORTS = [
    ("convert", "--require", "lossless"),
    ("convert", "--format", "webdataset", "--episodes", "1:", "--drop", "rewards"),
]
COMMANDS = [("stats", "--by", "seed"), ("check", "--deep")]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_in_parts(call: Call, recording: Path, cache: Path, command: tuple[str, ...]) -> None:
    alone = call(command[0], recording, *command[1:], "--json")
    parts = call(command[0], recording, *command[1:], "--json", "--runner", "threads", "--range-bytes", "1kB")
    assert parts == alone
    assert list((cache / "work").iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_as_an_array_job(
    call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(recording.parent)
    command = (command[0], recording.name, *command[1:])  # reports name the dataset as it was given
    alone = call(*command)
    plan = tmp_path / "plans" / "work.json"
    answer = call(*command, "--plan", plan)
    monkeypatch.chdir(tmp_path)  # tasks may run in another folder
    assert f"penstock work {plan} --index I --count N" in answer.out
    status = call("work", plan, "--json").json
    assert status["missing"] == list(range(status["jobs"]))
    assert "missing: job 0 (" in call("work", plan).out
    refused = call("work", plan, "--finish")
    assert (refused.code, "missing are job 0 (" in refused.err) == (2, True)
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    for index in range(2):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(index))
        assert call("work", plan).code == 0
    again = call("work", plan, "--index", "1", "--json").json
    assert (again["done"], again["failures"]) == (0, [])
    assert call("work", plan, "--finish") == alone
    (left,) = (tmp_path / "plans/work.json.results").iterdir()
    assert left.name == f"{WorkPlan.read(plan).digest[:16]}.finished"
    again = call("work", plan, "--finish")  # of a job that was requeued
    assert (again.code, again.out, "finished before; to work again, remove " in again.err) == (alone.code, "", True)
    assert call("work", plan).out.endswith(" done before\n")
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    monkeypatch.delenv("SLURM_ARRAY_TASK_COUNT")
    assert call("work", plan).out == f"{command[0]}: finished\n"
    assert call("work", plan, "--index", "0", "--count", "1", "--json").json["done"] == 0
    monkeypatch.chdir(recording.parent)
    call(*command, "--plan", plan)
    assert len(call("work", plan, "--json").json["missing"]) == status["jobs"]


@pytest.mark.parametrize(
    ("numbers", "step"), [(range(2, 5), 1), (range(4, 13, 4), 4), (range(0, 3), 1)], ids=["2-4", "4-12:4", "0-2"]
)
def test_arrays_of_slurm_begin_anywhere(
    call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: range, step: int
) -> None:
    plan = tmp_path / "work.json"
    jobs = call("convert", recording, tmp_path / "out", "--plan", plan, "--range-bytes", "1", "--json").json["jobs"]
    variables = {"COUNT": len(numbers), "MIN": numbers[0], "MAX": numbers[-1], "STEP": step}
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    done: list[int] = []
    for number in numbers:
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        done.append(call("work", plan, "--json").json["done"])
    assert (sum(done), min(done) > 0) == (jobs, True)


def test_a_list_of_tasks_needs_the_number_of_all(
    call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "work.json"
    jobs = call("convert", recording, tmp_path / "out", "--plan", plan, "--range-bytes", "1", "--json").json["jobs"]
    for name, value in {"ID": 3, "COUNT": 2, "MIN": 3, "MAX": 7, "STEP": 1}.items():  # --array=3,7
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    assert "got 2 tasks from 3 to 7; to repeat some tasks" in call("work", plan).err
    assert call("work", plan, "--count", "4", "--json").json["jobs"] == len(range(3, jobs, 4))
    for name in ("ID", "COUNT"):
        monkeypatch.delenv(f"SLURM_ARRAY_TASK_{name}")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")  # of an indexed Job of Kubernetes
    assert call("work", plan, "--count", "3", "--json").json["jobs"] == len(range(1, jobs, 3))


def test_refusals(call: Call, recording: Path, tmp_path: Path) -> None:
    plan = tmp_path / "work.json"
    assert call("stats", recording, "--plan", plan, "--json").json["jobs"] == 1
    assert "expected both --index and --count" in call("work", plan, "--index", "1").err
    assert "expected an index within 0:2, got 2" in call("work", plan, "--index", "2", "--count", "2").err
    assert "expected --resource among" in call("stats", recording, "--resource", "disks=1").err
    assert (
        "expected --address with --runner ray"
        in call("stats", recording, "--runner", "threads", "--address", "auto").err
    )
    assert "expected one LOCATION with --plan" in call("check", recording, recording, "--plan", plan).err
    assert "--address" in call("check", "--help").out


@pytest.mark.parametrize("command", REPORTS, ids=lambda command: "-".join(command[:3]))
def test_conversion_in_parts(
    call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = call("convert", recording, "alone", *command[1:], "--json").json
    parts = call("convert", recording, "out", *command[1:], "--json", "--runner", "threads").json
    assert parts == {**alone, "out": "out"}
    assert call("diff", tmp_path / "alone", tmp_path / "out").code == 0
    again = call("convert", recording, "out", *command[1:], "--json", "--jobs", "1").json
    assert again == {**parts, "status": "complete", "resumed_at": parts["episodes"]}
    assert "expected nothing at" in call("convert", recording, tmp_path / "out", "--episodes", "1:", "--jobs", "1").err
    assert "expected neither --overwrite" in call("convert", recording, tmp_path / "a", "--overwrite", "-j", "1").err


def test_verification_in_parts(call: Call, recording: Path, tmp_path: Path) -> None:
    call("convert", recording, tmp_path / "copy")
    for places in ((), (recording,)):
        alone = call("certificate", tmp_path / "copy", *places, "--verify")
        assert call("certificate", tmp_path / "copy", *places, "--verify", "--runner", "threads") == alone
    assert "expected --verify" in call("certificate", tmp_path / "copy", "--jobs", "1").err


def test_shards_in_parts(call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call("convert", recording, "shards", "--format", "webdataset")
    parts = ("--runner", "threads", "--range-bytes", "1")
    assert call("index", "shards", "--force", *parts) == call("index", "shards", "--force")
    alone = call("reshard", "shards", "alone", "--shard-episodes", "1").out
    assert alone.startswith("alone: 4 shards, 4 episodes")
    for _ in range(2):  # the second call finds the same archives, and says so with the same words
        shown = call("reshard", "shards", "out", "--shard-episodes", "1", *parts)
        assert (shown.code, shown.out) == (0, alone.replace("alone", "out"))
    archive = tmp_path / "out" / "shard-000002.tar"
    archive.write_bytes(archive.read_bytes()[:-512] + b"x" * 512)
    refused = call("reshard", "shards", "out", "--shard-episodes", "1", *parts)
    assert (refused.code, "expected nothing at" in refused.err) == (2, True)
