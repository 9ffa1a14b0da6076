"""Commands in parts, and `penstock work`, print and write the same as in one run."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call

REPORTS = [
    ("convert", "--require", "lossless"),
    ("convert", "--to", "webdataset", "--episodes", "1:", "--drop", "rewards"),
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
    alone = call(command[0], recording, *command[1:])
    plan = tmp_path / "plans" / "work.json"
    answer = call(command[0], recording, *command[1:], "--plan", plan)
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
    assert [path.name for path in plan.parent.iterdir()] == ["work.json"]


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
def test_conversion_in_parts(call: Call, recording: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    alone = call("convert", recording, tmp_path / "alone", *command[1:], "--json").json
    parts = call("convert", recording, tmp_path / "out", *command[1:], "--json", "--runner", "threads").json
    assert parts == {**alone, "out": str(tmp_path / "out")}
    assert call("diff", tmp_path / "alone", tmp_path / "out").code == 0
    again = call("convert", recording, tmp_path / "out", *command[1:], "--json", "--jobs", "1").json
    assert again == {**parts, "status": "complete", "resumed_at": parts["episodes"]}
    assert "expected nothing at" in call("convert", recording, tmp_path / "out", "--episodes", "1:", "--jobs", "1").err
    assert "expected neither --overwrite" in call("convert", recording, tmp_path / "a", "--overwrite", "-j", "1").err


def test_verification_in_parts(call: Call, recording: Path, tmp_path: Path) -> None:
    call("convert", recording, tmp_path / "copy")
    for places in ((), (recording,)):
        alone = call("certificate", tmp_path / "copy", *places, "--verify")
        assert call("certificate", tmp_path / "copy", *places, "--verify", "--runner", "threads") == alone
    assert "expected --verify" in call("certificate", tmp_path / "copy", "--jobs", "1").err
