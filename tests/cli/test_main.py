"""What all commands share: help, version, errors."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.cli.main import COMMANDS
from penstock.errors import UnknownFormatError
from tests.cli.conftest import Call


def test_help_lists_every_command_with_its_summary(call: Call) -> None:
    answer = call("--help")
    assert answer.code == 0
    for name, (_, summary) in COMMANDS.items():
        assert name in answer.out
        assert summary in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_an_example_and_json(call: Call, name: str) -> None:
    answer = call(name, "--help")
    assert answer.code == 0
    assert f"Example: penstock {name}" in answer.out
    assert "--json" in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_is_the_first_line_of_the_help(call: Call, name: str) -> None:
    assert COMMANDS[name][1] in call(name, "--help").out


def test_version(call: Call) -> None:
    assert call("--version").out.strip() == penstock.__version__


def test_an_unknown_command_is_a_usage_error(call: Call) -> None:
    answer = call("infos")
    assert answer.code == 2
    assert "info" in answer.err


@pytest.mark.parametrize("name", ["info", "check"])
def test_what_cannot_be_opened_is_one_line_and_code_2(call: Call, name: str, tmp_path: Path) -> None:
    answer = call(name, tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("UnknownFormatError: expected data of one of the formats")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("name", ["info", "check"])
def test_nothing_at_the_path_is_code_2(call: Call, name: str, tmp_path: Path) -> None:
    answer = call(name, tmp_path / "nothing", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("FileNotFoundError: nothing at")


def test_debug_keeps_the_traceback(call: Call, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError):
        call("--debug", "info", tmp_path)


def test_the_installed_command_prints_json_alone(recording: Path) -> None:
    script = "from penstock.cli.main import main; main()"
    command = [sys.executable, "-c", script, "info", str(recording), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["episodes"] == 4
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("module", "version"), [("penstock", penstock.__version__), ("penstock.compat.minari", "Minari version: 0.5.4")]
)
def test_packages_that_are_command_lines(
    module: str, version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, version)
