"""The three tables that the demo prints at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.demo.road import Result
from penstock.cli.info import bytes_at
from penstock.cli.show import Fitted, size, sparkline

PLAYERS = ("random", "clone", "expert")


def tables(results: Sequence[Result]) -> RenderableType:
    """Return tables of recordings, returns and checks, with a row for each task."""
    return Group(Fitted(_recorded(results)), Text(), Fitted(_learned(results)), Text(), Fitted(_checked(results)))


def _recorded(results: Sequence[Result]) -> Table:
    shown = _table("Recorded", "task", "environment", "episodes", "steps", "columns", "minari")
    for result in results:
        task = result.task
        paths = {task.format: result.recorded.path, task.copy: result.recorded.copy}
        sizes = (size(bytes_at(paths[name])) for name in ("columns", "minari"))
        shown.add_row(task.name, task.env_id, f"{result.episodes:,}", f"{result.steps:,}", *sizes)
    return shown


def _learned(results: Sequence[Result]) -> Table:
    shown = _table("Learned (mean returns)", "task", *PLAYERS, "loss", "samples/s", "waiting")
    for result in results:
        means = (f"{np.mean(result.returns[player]):,.1f}" for player in PLAYERS)
        straight = result.straight
        speed = (f"{straight.rate:,.0f}", f"{straight.waiting_share:.1%}")
        shown.add_row(result.task.name, *means, sparkline(straight.losses, 16), *speed)
    return shown


def _checked(results: Sequence[Result]) -> Table:
    shown = _table("Checked", "", *(result.task.name for result in results))
    for check in results[0].checks:
        marks = (Text("yes", "green") if result.checks[check] else Text("NO", "bold red") for result in results)
        shown.add_row(check, *marks)
    return shown


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", title_style="bold cyan", box=SIMPLE_HEAD, pad_edge=False)
