"""Every benchmark runs in a short form, so that no command of the docs ends in an error. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.forking import Forks
from tests.test_figures import measure

SHORT = [command for command in measure.COMMANDS if command.short is not None]
# Those that need other libraries alone, Ray, or half a minute in their shortest form.
LONG = {
    *("many_files", "simulation", "cheetah", "small", "image", "cross_read_minari", "billion", "video", "video_cpu"),
    *("viewer", "collect_workers", "ray_kill", "cross_read_lerobot", "cross_read_shards"),
    *("kill_reshape", "rivals", "cross_read_l5kit", "jobs", "simulated_hosts", "scenarios"),
}


@pytest.fixture(scope="module")
def forks() -> Generator[Forks]:
    forks = Forks("tests.short_benchmarks")
    yield forks
    forks.close()


@pytest.mark.parametrize("command", SHORT, ids=lambda command: command.name)
def test_a_benchmark_runs_in_its_short_form(command: Any, forks: Forks, tmp_path: Path) -> None:
    code = forks.run({"words": measure.short_words(command), "printed": str(tmp_path / "printed")})
    printed = (tmp_path / "printed").read_text()
    assert (code, "failed with" in printed) == (0, False), printed
    assert printed.strip()


def test_benchmarks_without_a_short_form_are_listed() -> None:
    assert {command.name for command in measure.COMMANDS} - {command.name for command in SHORT} == LONG
