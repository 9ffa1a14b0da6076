"""`penstock stats`: statistics of a dataset's columns, as a table, as JSON, and as histograms in a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.chosen import chosen, chosen_dataset
from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import Episodes, From, In, Opening, Storage, Where, opened, pairs
from penstock.cli.show import BARS, Fitted, Json, print_json
from penstock.core.arrays import IntArray
from penstock.core.text import counted
from penstock.data.statistics import Statistics, elements
from penstock.data.summarize import statistics
from penstock.errors import DataError, require

BINS = 12
SHOWN = 8
"""Elements of a column in the table, unless all are asked for."""


@works_in_parts
def stats(
    location: In,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", help="A column, or a prefix such as observations; can be repeated. Default: all."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Group by a column with one value an episode, or by an entry of the episodes' metadata."),
    ] = None,
    final_observations: Annotated[
        bool, typer.Option("--final/--no-final", help="Count the observation after the last step of each episode too.")
    ] = True,
    episodes: Episodes = None,
    where: Where = None,
    every: Annotated[bool, typer.Option("--all", help=f"Show all elements of wide columns, not only {SHOWN}.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the statistics to a file, for penstock.normalize.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw a histogram of each element into a .png, .svg or .pdf file.")
    ] = None,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Show means, deviations, quantiles and histograms of a dataset's columns.

    Reads every value once. Quantiles are within 0.4 % of the value. Exit code 1 if there are no values.

    Example: penstock stats ./cartpole --by seed --output stats.json
    """
    if picture is not None and picture.suffix not in (".png", ".svg", ".pdf"):
        raise DataError(f"expected a picture that ends in .png, .svg or .pdf, got {picture}")
    shown = {
        "output": _absolute(output),
        "picture": _absolute(picture),
        "all": every,
        "json": as_json,
        "title": location,
    }
    if work.wanted:
        dataset = chosen_dataset(location, opening, source, pairs(storage, "--storage"), episodes, where)
        arguments = {**dataset.arguments(), "columns": columns, "by": by, "show": shown}
        arguments["final_observations"] = final_observations
        show_in_parts("stats", arguments, work, quiet=as_json)
        return
    located, dataset = opened(location, opening, source, pairs(storage, "--storage"))
    with dataset:
        result = statistics(
            chosen(dataset, episodes, where),
            columns,
            by=by,
            final_observations=final_observations,
            progress=False if as_json else None,
        )
    present(result, {"show": {**shown, "title": str(located)}})


def present(result: Statistics, arguments: Mapping[str, Any]) -> None:
    """Save, draw and print statistics as the arguments of `penstock stats` say. Exit code 1 if there are none."""
    shown = arguments["show"]
    if shown["output"] is not None:
        result.save(shown["output"])
    if shown["picture"] is not None:
        draw(result, Path(shown["picture"]), every=shown["all"])
    if shown["json"]:
        print_json(result.to_json())
    else:
        Console().print(render(result, shown["title"], every=shown["all"]))
    if not result:
        Console(stderr=True, soft_wrap=True).print(
            Text(f"{shown['title']} has no columns of numbers with values", style="red")
        )
        raise typer.Exit(1)


def _absolute(path: Path | None) -> str | None:
    """A path that another process understands too."""
    return None if path is None else str(path.absolute())


def render(result: Statistics, title: str, *, every: bool) -> RenderableType:
    """Return the statistics as tables for people, groups after the whole."""
    parts: list[RenderableType] = [Fitted(_table(result, title, every=every))]
    cut = [path for path, column in result.items() if column.count.size > SHOWN]
    if cut and not every:
        parts.append(Text(f"the first {SHOWN} elements of {', '.join(cut)}; --all shows the others", style="dim"))
    if result.skipped:
        why = "; ".join(f"{path}: {reason}" for path, reason in result.skipped.items())
        parts.append(Text(f"without numbers: {why}", style="dim"))
    for label, group in result.groups.items():
        parts += [Text(), Fitted(_table(group, str(label), every=every))]
    return Group(*parts)


def _table(result: Statistics, title: str, *, every: bool) -> Table:
    headers = ("mean", "std", "min", "median", "max")
    table = Table(
        Column("column", overflow="fold"),
        *(Column(header, justify="right") for header in headers),
        "histogram",
        title=Text(title),
        title_justify="left",
        caption=_counts(result),
        caption_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for path, column in result.items():
        mean = column.mean
        std = column.std
        median = column.quantile(0.5)
        histogram = column.histogram(BINS)[0]
        for each in elements(path, column, None if every else SHOWN):
            figures = (figure[each.place] for figure in (mean, std, column.min, median, column.max))
            numbers = (_number(float(figure)) for figure in figures)
            why = column.why_no_histogram(each.place)
            drawn = Text(why, style="dim") if why else Text(_bars(histogram[each.place]), style="cyan")
            table.add_row(Text(each.name, style="cyan"), *numbers, drawn)
    return table


def _counts(result: Statistics) -> str:
    """How many values the figures have, and how many they leave out."""
    counts = [int(n) for column in result.values() for n in column.count.ravel()]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    text = f"{counted(high, 'value')} an element" if low == high else f"{low:,} to {high:,} values an element"
    for what in ("nans", "infinities"):
        odd = {path: int(getattr(column, what).sum()) for path, column in result.items()}
        if any(odd.values()):
            named = ", ".join(f"{n:,} in {path}" for path, n in odd.items() if n)
            text += f"; left out: {'NaN' if what == 'nans' else 'infinities'}, {named}"
    return text


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _bars(counts: IntArray) -> str:
    """Counts as bars. A bin with a value has at least the lowest bar, and one without is empty."""
    most = max(int(counts.max()), 1)
    return "".join(BARS[math.ceil(n / most * len(BARS)) - 1] if n else " " for n in counts.tolist())


def draw(result: Statistics, file: Path, *, every: bool = False) -> None:
    """Draw a histogram of each element into a picture; groups have their own colours."""
    figures: Any = require("matplotlib.figure", "plot")
    shown = [
        (path, each) for path, column in result.items() for each in elements(path, column, None if every else SHOWN)
    ]
    if not shown:
        raise DataError("expected columns of numbers to draw, got none")
    across = min(4, len(shown))
    down = -(-len(shown) // across)
    figure = figures.Figure(figsize=(3.2 * across, 2.3 * down), layout="constrained")
    series = result.groups or {"": result}
    for i, (path, each) in enumerate(shown):
        axes = figure.add_subplot(down, across, i + 1)
        for label, group in series.items():
            if path in group:
                if why := group[path].why_no_histogram(each.place):
                    axes.plot([], [], label=f"{label}: {why}" if result.groups else why)
                else:
                    counts, edges = group[path].histogram(40)
                    axes.stairs(counts[each.place], edges[each.place], fill=True, alpha=0.75, label=str(label))
        axes.set_title(each.name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    if result.groups:
        figure.axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(file, dpi=150)
