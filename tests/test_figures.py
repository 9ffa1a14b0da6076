"""Figures that pages quote: each has its command and its entry in `figures.json`. Nothing is measured here."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script(name: str) -> Any:
    """A script of `benchmarks`, which is no package; `measure` imports `figures` by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


figures: Any = script("figures")
measure: Any = script("measure")
STORED, RUNS = figures.load()
KNOWN = STORED | figures.of_runs(RUNS)
PAGES = figures.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_quote_figures_as_they_are_stored(page: Path) -> None:
    """`python benchmarks/measure.py --only NAME --keep` writes them."""
    quotations = list(figures.quotations(page))
    assert [quote.name for quote in quotations if quote.name not in KNOWN] == []
    assert [quote for quote in quotations if quote.text != figures.shown(KNOWN[quote.name])] == []
    assert page.read_text("utf-8").count("<!--figure") == len(quotations)
    assert "\n<!--figure" not in page.read_text("utf-8")  # a line that begins with a comment is HTML, not Markdown


def test_every_figure_has_a_command_and_every_run_its_text() -> None:
    commands = {command.name: command.text for command in measure.COMMANDS}
    assert {figure.run for figure in STORED.values()} <= RUNS.keys() <= commands.keys()
    assert {name: run.command for name, run in RUNS.items()} == {name: commands[name] for name in RUNS}
    assert [name for name, figure in STORED.items() if not name.startswith(f"{figure.run}.")] == []


def test_every_benchmark_has_a_command_and_every_command_its_benchmark() -> None:
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")} - {
        "figures.py",
        "lengths_only.py",
        "measure.py",
        "raster_config.py",
    }
    helpers = {"minari_reference.py", "packing_grain.py"}
    helpers |= {"minari_suite.py", "slurm.py", "trainers.py"}  # a checkout of Minari, a running Slurm, `make trainers`
    helpers |= {"lerobot_for_python_311.py", "tests_of_lerobot.py"}  # for `.build/lerobot`, and a checkout of LeRobot
    assert {command.words.split()[0] for command in measure.COMMANDS} == scripts - helpers


def test_the_page_of_benchmarks_names_commands_that_exist() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    commands = {command.text for command in measure.COMMANDS}
    named = re.findall(r"`(python benchmarks/(?!measure\.py)[^`]*)`", page)
    assert named != []
    assert set(named) <= commands
    assert all((ROOT / "benchmarks" / name).exists() for name in re.findall(r"benchmarks/(\w+\.py)", page))


@pytest.mark.parametrize("quoted", [random.Random(3).uniform(1e-6, 1e9) for _ in range(5)])
def test_more_than_a_third_is_off(quoted: float) -> None:
    assert not figures.is_off(quoted, quoted * 1.33)
    assert not figures.is_off(quoted, quoted * 0.67)
    assert figures.is_off(quoted, quoted * 1.34)
    assert figures.is_off(quoted, quoted * 0.66)
    assert figures.is_off(0, quoted)
    assert not figures.is_off(0, 0)
    assert not figures.is_off("a machine", "another")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (209_300, "/s", "209 k/s"),
        (4_512_345, "/s", "4.5 M/s"),
        (12, "/s", "12 /s"),
        (0.00000312, "s", "3.1 µs"),
        (0.0123, "s", "12 ms"),
        (10.54, "s", "11 s"),
        (185, "B", "185 B"),
        (0.89e9, "B", "890 MB"),
        (16_234.2, "x", "16,000 x"),
        (377.4, "x", "377 x"),
        (0.93, "x", "0.93 x"),
        (0, "x", "0 x"),
        (0.0093, "%", "0.0093 %"),
        (6999, "count", "6,999"),
        ("two cores", "text", "two cores"),
    ],
)
def test_figures_are_shown_with_two_digits(value: Any, unit: str, text: str) -> None:
    assert figures.shown(figures.Figure(value, unit, "run")) == text


def test_what_a_benchmark_records_gets_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, page = tmp_path / "records", tmp_path / "README.md"
    figures.record("lost", 1, "count")  # alone: nobody listens
    monkeypatch.setenv(figures.RECORDS, str(records))
    figures.record("speed", 12_500.0, "/s")
    found = figures.recorded(records, "gather")
    assert found == {"gather.speed": figures.Figure(12_500.0, "/s", "gather")}

    page.write_text("Rows come at <!--figure gather.speed-->1 /s<!--/-->, or <!--figure plan.x-->?<!--/-->.")
    figures.requote(page, found)
    assert [quote.text for quote in figures.quotations(page)] == ["12 k/s", "?"]

    run = figures.Run("python benchmarks/gather.py", "one machine", 300, 9.5)
    figures.save(found, {"gather": run}, tmp_path / "figures.json")
    assert figures.load(tmp_path / "figures.json") == (found, {"gather": run})
    shown = figures.shown(figures.of_runs({"gather": run})["gather.run"])
    assert shown == "`python benchmarks/gather.py` on one machine (zlib 300 MB/s, copies 9.5 GB/s)"


def test_the_comparison_marks_what_is_off_missing_or_edited() -> None:
    stored = {name: figures.Figure(10.0, "x", "gather") for name in ("gather.a", "gather.b", "gather.c", "gather.d")}
    found = {"gather.a": 12.0, "gather.b": 14.0, "gather.d": 10.0}
    measured = {name: figures.Figure(value, "x", "gather") for name, value in found.items()}
    texts = {"gather.a": "10 x", "gather.b": "10 x", "gather.c": "10 x", "gather.d": "99 x", "gather.e": "1 x"}
    quotations = [figures.Quotation(Path("README.md"), name, text) for name, text in {**texts, "plan.a": "1 x"}.items()]
    rows = measure.compared(quotations, stored, measured, ["gather"])
    assert [off for _, off in rows] == [False, True, True, True, True]
    assert [line.endswith("OFF") for line, _ in rows] == [False, True, True, True, True]
    assert "1.20" in rows[0][0]
    assert "not measured" in rows[2][0]
    assert "not stored" in rows[4][0]


def test_commands_are_chosen_by_name_or_by_what_they_need() -> None:
    assert [command.name for command in measure.chosen(["plan", "cheetah"], peers=False)] == ["plan", "cheetah"]
    assert measure.chosen([], peers=True) == list(measure.COMMANDS)
    assert [command for command in measure.chosen([], peers=False) if ".build" in command.text] == []
    with pytest.raises(SystemExit, match="no command is named nothing"):
        measure.chosen(["nothing"], peers=False)
