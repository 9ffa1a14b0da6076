"""Tables of the commands on terminals of 80 and 30 columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Column, Table

import penstock
from penstock.cli.show import Fitted
from penstock.formats.base.format import available
from tests.cli.conftest import Call


def printed(table: Table, width: int) -> list[str]:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(Fitted(table))
    return [line.rstrip() for line in capture.get().splitlines()]


def columns() -> Table:
    table = Table("name", Column("path", overflow="fold"), "rows", title="Columns", caption="the end", box=None)
    table.add_row("observations", "/data/" + "x" * 40, "1,000")
    table.add_row("[bold]rewards[/bold]", "", "7")
    return table


@pytest.mark.parametrize("width", [200, 80, 60, 45, 30, 12])
def test_no_text_is_lost_at_any_width(width: int) -> None:
    lines = printed(columns(), width)
    assert max(map(len, lines)) <= width
    text = "".join("".join(lines).split())
    assert "…" not in text
    for word in ("Columns", "observations", "1,000", "rewards", "7", "theend"):
        assert word in text
    assert text.count("x") == 40


def test_a_wide_terminal_has_a_table_and_a_narrow_one_has_blocks() -> None:
    assert printed(columns(), 80)[1].split() == ["name", "path", "rows"]
    assert printed(columns(), 30)[:2] == ["Columns", "observations"]
    assert printed(columns(), 30)[-3:] == ["rewards", "  rows: 7", "the end"]


@pytest.mark.parametrize("width", [80, 30])
def test_the_tables_of_commands_fit(
    call: Call, monkeypatch: pytest.MonkeyPatch, recording: Path, tmp_path: Path, width: int
) -> None:
    rewards = np.array([0.0, np.nan, 0.0])
    penstock.convert(penstock.from_arrays({"rewards": rewards}, lengths=[2, 1]), tmp_path / "damaged")
    monkeypatch.setenv("COLUMNS", str(width))
    for command in (["formats"], ["info", recording], ["check", tmp_path / "damaged"]):
        lines = call(*command).out.splitlines()
        assert lines
        if command[0] != "check":  # a path may be one long word
            assert max(map(len, lines)) <= width, lines
        assert not any("…" in line for line in lines)
    assert all(name in call("formats").out for name in available())
