"""The command line: what it prints and how it exits."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from penstock_mirrors import minari
from penstock_mirrors.minari import MinariDataset
from penstock_mirrors.minari.cli import app

Collect = Callable[..., MinariDataset]


def run(*arguments: str, typed: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), input=typed, env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_version() -> None:
    assert run("--version") == run("-v") == (0, f"Minari version: {minari.__version__}\n")


def test_list(collect: Collect) -> None:
    collect("toys/one-v0")
    collect("toys/one-v1", author={"a", "b"})
    code, text = run("list", "local")
    assert code == 0
    assert "toys/one-v1" in text
    assert "a, b" in text
    assert "toys/one-v0" not in text
    assert "Number of datasets: 1, total size: 0.0 MB" in text
    assert "Number of datasets: 0" in run("list", "local", "--prefix", "absent")[1]
    minari.upload_dataset("toys/one-v1")
    assert "toys/one-v1" in run("list", "remote", "--all")[1]
    assert "Number of datasets: 0" in run("list", "remote", "-p", "none")[1]
    code, text = run("list", "nonsense")
    assert (code, "Invalid remote path 'nonsense'" in text) == (1, True)


def test_large_groups_are_one_row(collect: Collect) -> None:
    for i in range(11):
        collect(f"toys/many/set-{i}-v0", 1)
    collect("other/one-v0")
    text = run("list", "local")[1]
    assert "toys/..." in text
    assert "Group with 11 datasets" in text
    assert "other/one-v0" in text


def test_show(collect: Collect) -> None:
    collect("toys/one-v0")
    code, text = run("show", "toys/one-v0")
    assert code == 0
    for part in ("toys/one-v0", "a test", "Box(", "Counting", "Environment Specs", "Evaluation", "CartPole-v1"):
        assert part in text
    minari.upload_dataset("toys/one-v0")
    minari.delete_dataset("toys/one-v0")
    assert run("show", "toys/one-v0")[0] == 0
    code, text = run("show", "toys/two-v0")
    assert (code, "can't be found locally" in text) == (1, True)


@pytest.mark.parametrize(("typed", "code", "left"), [("n", 1, 1), ("?\n", 1, 1), ("y", 0, 0)])
def test_delete_asks(collect: Collect, typed: str, code: int, left: int) -> None:
    collect("toys/one-v0")
    assert run("delete", "toys/one-v0", typed=typed)[0] == code
    assert len(minari.list_local_datasets()) == left


@pytest.mark.parametrize("command", [("delete",), ("upload", "--key-path", "k"), ("combine", "--dataset-id", "x-v0")])
def test_unknown_datasets_are_listed(command: tuple[str, ...]) -> None:
    code, text = run(*command, "../x", "toys/none-v0")
    assert code == 1
    assert "../x" in text
    assert "toys/none-v0" in text


def test_up_and_down(collect: Collect) -> None:
    collect("toys/one-v0")
    collect("toys/two-v0")
    assert run("upload", "toys/one-v0", "toys/two-v0", "--key-path", "key")[0] == 0
    code, text = run("upload", "toys/one-v0", "--key-path", "key")
    assert (code, "on the hub already" in text) == (1, True)
    assert run("download", "toys/one-v0", typed="n")[0] == 1
    assert run("download", "toys/one-v0", "toys/two-v0", "--force")[0] == 0
    code, text = run("download", "toys/three-v0")
    assert (code, "Couldn't find any version" in text) == (1, True)


def test_combine(collect: Collect) -> None:
    collect("toys/one-v0")
    collect("toys/two-v0")
    assert run("combine", "toys/one-v0", "--dataset-id", "toys/both-v0")[0] == 1
    assert run("combine", "toys/one-v0", "toys/two-v0", "--dataset-id", "toys/one-v0")[0] == 1
    assert run("combine", "toys/one-v0", "toys/two-v0", "--dataset-id", "../x")[0] == 1
    code, text = run("combine", "toys/one-v0", "toys/two-v0", "--dataset-id", "toys/both-v0")
    assert (code, "were combined into" in text) == (0, True)
    assert len(minari.load_dataset("toys/both-v0")) == 4


def test_the_package_is_a_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["penstock_mirrors.minari", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("penstock_mirrors.minari", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, "Minari version: 0.5.4")
