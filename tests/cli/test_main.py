"""What all commands share: help, version, errors."""

from __future__ import annotations

import errno
import json
import re
import runpy
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import COMMANDS, ELSEWHERE, all_commands, app, described, warnings_as_lines
from penstock.errors import DamageWarning, DataError, FormatError, UnknownFormatError
from tests.cli.conftest import Call


def test_help_lists_every_command_with_its_summary(call: Call) -> None:
    answer = call("--help")
    assert answer.code == 0
    for name, (_, summary) in all_commands().items():
        assert name in answer.out
        assert summary in answer.out


@pytest.mark.parametrize("name", all_commands())
def test_help_of_a_command_has_an_example_and_json(call: Call, name: str) -> None:
    answer = call(name, "--help")
    assert answer.code == 0
    assert f"Example: penstock {name}" in answer.out
    assert "--json" in answer.out


@pytest.mark.parametrize("name", all_commands())
def test_the_summary_is_the_first_line_of_the_help(call: Call, name: str) -> None:
    assert all_commands()[name][1] in call(name, "--help").out


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
    assert answer.err.startswith("UnknownFormatError: expected a dataset, got an empty folder")
    assert answer.err.count("\n") == 1


def test_a_warning_is_one_line_without_a_place_in_the_source() -> None:
    usual = warnings.formatwarning
    for wanted in (True, False):
        with warnings_as_lines(wanted=wanted):
            said = warnings.formatwarning("a cell is empty", DamageWarning, "convert.py", 165)
            other = warnings.formatwarning("old", DeprecationWarning, "theirs.py", 3)
        assert (said == "DamageWarning: a cell is empty\n") == wanted
        assert other.startswith("theirs.py:3: DeprecationWarning: old")
    assert warnings.formatwarning is usual


NAMES = "public datasets have names, OWNER/NAME on Hugging Face and ids with a version on Minari's hub"


@pytest.mark.parametrize("name", ["info", "check"])
def test_nothing_at_the_path_is_code_2(call: Call, name: str, tmp_path: Path) -> None:
    answer = call(name, tmp_path / "nothing")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("FileNotFoundError: nothing at")


@pytest.mark.parametrize(
    ("arguments", "error", "where", "hint"),
    [
        (("info", "nothing"), "FileNotFoundError", None, NAMES),
        (("info", "EMPTY"), "UnknownFormatError", "EMPTY", "penstock.record(env, path) fills one"),
        (("info",), "MissingParameter", "penstock info", "penstock info --help lists all options"),
        (("info", "EMPTY", "--form", "x"), "NoSuchOption", "penstock info", "penstock info --help lists all options"),
        (("infos",), "UsageError", "penstock", "penstock --help lists all options"),
        (("--deep",), "NoSuchOption", "penstock", "penstock --help lists all options"),
        (("record", "toy/reach"), "BadParameter", "penstock record", "penstock record --help lists all options"),
    ],
)
def test_errors_under_json_are_one_object(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], error: str, where: str | None, hint: str | None
) -> None:
    given = [str(tmp_path) if argument == "EMPTY" else argument for argument in arguments]
    answer = call(*given, "--json")
    assert (answer.code, answer.err) == (2, "")
    assert answer.json.keys() == {"error", "what", "where", "hint"}
    expected = str(tmp_path) if where == "EMPTY" else where
    assert (answer.json["error"], answer.json["where"], answer.json["hint"]) == (error, expected, hint)
    assert answer.json["what"]


def test_the_hint_is_the_part_of_a_message_that_says_what_to_do() -> None:
    error = FormatError("expected 3 rows, got 2; copy the file; or read it in parts", path="a.tar", where="row 2")
    assert described(error) == {
        "error": "FormatError",
        "what": "expected 3 rows, got 2",
        "where": "row 2 in a.tar",
        "hint": "copy the file; or read it in parts",
    }


@pytest.mark.parametrize("command", [[], *([name] for name in all_commands())])
@pytest.mark.parametrize("width", [80, 30])
def test_help_fits_the_terminal(call: Call, monkeypatch: pytest.MonkeyPatch, command: list[str], width: int) -> None:
    wide = set(re.findall(r"--[a-z][a-z-]+", call(*command, "--help").out))
    monkeypatch.setenv("COLUMNS", str(width))
    answer = call(*command, "--help")
    assert max(map(len, answer.out.splitlines())) <= width
    assert set(re.findall(r"--[a-z][a-z-]+", answer.out)) == wide


@pytest.mark.parametrize(
    ("words", "found"),
    [("penstock in", ["info", "index"]), ("penstock info --fr", ["--from"]), ("penstock info x --from q", [])],
)
def test_shells_complete_commands_and_options(words: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    if words.count(" ") == 1:
        monkeypatch.setattr("pkgutil.resolve_name", None)  # no command is imported
    answer = CliRunner().invoke(app, [], env=environment, prog_name="penstock")
    assert (answer.exit_code, answer.stdout.split()) == (0, found)


def test_shells_complete_names_of_formats() -> None:
    environment = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock info --from rl", "COMP_CWORD": "3"}
    assert CliRunner().invoke(app, [], env=environment, prog_name="penstock").stdout.split() == ["rlds"]


def test_completion_is_installed_for_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the shell is named instead
    answer = CliRunner().invoke(app, ["--install-completion", "bash"], prog_name="penstock")
    assert answer.exit_code == 0, answer.output
    script = tmp_path / ".bash_completions" / "penstock.sh"
    assert "_PENSTOCK_COMPLETE=complete_bash" in script.read_text("utf-8")
    assert str(script) in (tmp_path / ".bashrc").read_text("utf-8")


def refuse(observation: object) -> object:
    raise DataError(f"no action for a {type(observation).__name__}")


def on_screen(written: str) -> list[str]:
    """The lines of a terminal after some output: line feeds, carriage returns, cursor up, erased lines."""
    lines, row = [""], 0
    for text in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written):
        if text == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif text.endswith("A") and text.startswith("\x1b"):
            row -= 1
        elif text == "\x1b[2K":
            lines[row] = ""
        elif text[0] not in "\x1b\r":
            lines[row] = text
    return [line for line in lines if line.strip()]


def test_an_error_leaves_no_progress_bar(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # for rich, whatever pytest captures is a terminal
    answer = call("record", "CartPole-v1", "-o", tmp_path / "out", "--policy", f"{__name__}:refuse")
    assert "0/10" in answer.err
    assert (answer.code, len(on_screen(answer.err))) == (2, 1)
    assert "DataError: no action" in on_screen(answer.err)[0]


def test_a_pipe_that_closes_is_no_error_of_the_command(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(json, "dumps", broken)
    answer = call("formats", "--json")
    assert (answer.code, answer.err) == (1, "")


def test_debug_keeps_the_traceback(call: Call, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError):
        call("--debug", "info", tmp_path)


def test_the_installed_command_prints_json_alone(recording: Path) -> None:
    script = "from penstock.cli.main import main; main()"
    command = [sys.executable, "-c", script, "info", str(recording), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["episodes"] == 4
    assert done.stderr == ""


def test_the_package_is_a_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["penstock", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("penstock", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, penstock.__version__)


def test_a_command_of_a_distribution_that_is_missing_says_what_to_install(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {name for name, package in ELSEWHERE.items() if find_spec(package.replace("-", "_")) is not None}
    assert installed == all_commands().keys() - COMMANDS.keys()
    monkeypatch.setattr("penstock.cli.main.all_commands", lambda: COMMANDS)
    answer = call("serve", "x")
    assert answer.code == 2
    assert "pip install penstock-studio" in " ".join(answer.err.split())
