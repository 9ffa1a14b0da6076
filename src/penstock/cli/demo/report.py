"""What the demo shows at the end: three tables, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.demo.road import Result
from penstock.cli.fitted import Fitted
from penstock.cli.info import bytes_at
from penstock.cli.show import size, sparkline
from penstock.errors import require

PLAYERS = {"random": "#9aa0a6", "clone": "#00897b", "expert": "#f9a825"}


def tables(results: Sequence[Result]) -> RenderableType:
    """What was recorded, what was learned, and what the checks say, a row a task."""
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


def draw(results: Sequence[Result], file: Path) -> None:
    """Four panels as PNG: returns of all players, losses, samples a second, share of the time spent waiting."""
    figure: Any = require("matplotlib.figure", "demo").Figure(figsize=(11, 7), layout="constrained")
    returns, losses, speed, waiting = figure.subplots(2, 2).ravel()
    names = [result.task.name for result in results]
    _draw_returns(returns, results, names)
    for result in results:
        losses.plot(np.array(result.straight.losses) / result.straight.losses[0], label=result.task.name)
    losses.set(title="Loss, as a share of the first", xlabel="batch", yscale="log")
    losses.legend(frameon=False)
    speed.bar(names, [result.straight.rate for result in results], color=PLAYERS["clone"])
    speed.set(title="Samples a second while training")
    waiting.bar(names, [100 * result.straight.waiting_share for result in results], color=PLAYERS["clone"])
    waiting.set(title="Time spent waiting for data, %", ylim=(0, 100))
    for axes in (returns, losses, speed, waiting):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def _draw_returns(axes: Any, results: Sequence[Result], names: Sequence[str]) -> None:
    """Returns, scaled so that chance is 0 and the expert is 1."""
    for i, (player, color) in enumerate(PLAYERS.items()):
        means = np.array([np.mean(result.returns[player]) for result in results])
        low, high = (np.array([np.mean(r.returns[other]) for r in results]) for other in ("random", "expert"))
        bars = axes.bar(np.arange(len(names)) + (i - 1) * 0.27, (means - low) / (high - low), 0.25, color=color)
        axes.bar_label(bars, [f"{mean:,.1f}" for mean in means], padding=2, fontsize=8)
        bars.set_label(player)
    axes.set(
        title="Mean return (chance 0, expert 1)", xticks=np.arange(len(names)), xticklabels=names, ylim=(None, 1.3)
    )
    axes.legend(frameon=False, ncols=len(PLAYERS), loc="upper left")
