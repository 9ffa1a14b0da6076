"""`penstock check`: look for damage and mistakes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.fitted import Fitted
from penstock.cli.options import IN_HELP, From, Opening, Storage, pairs
from penstock.cli.show import Json, print_json
from penstock.data.located import locate
from penstock.doctor.check import check as checked
from penstock.doctor.examine import Report, leaks
from penstock.formats.base.findings import Finding

STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}


def check(
    locations: Annotated[list[str], typer.Argument(metavar="LOCATION...", help=IN_HELP)],
    deep: Annotated[
        bool, typer.Option("--deep", help="Check the values of all episodes, however large the data are.")
    ] = False,
    thresholds: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A threshold, such as gap_factor=4; can be repeated."),
    ] = None,
    fail_on: Annotated[
        Literal["error", "warning", "note"], typer.Option("--fail-on", help="Lowest level that makes the exit code 1.")
    ] = "error",
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Look for damage and mistakes in datasets; exit code 1 if there are errors.

    Runs the check of the format, then looks at the values: episode ends, NaN, values outside their spaces, timestamps,
    frozen sensors and pictures, actions, duplicate episodes. With several datasets and --deep, also for episodes that
    are in more than one. Each finding has a name, which the page "Findings" explains. The exit code is 2 if a dataset
    cannot be opened.

    Example: penstock check ./train ./test --deep --set frozen_steps=30
    """
    limits = pairs(thresholds, "--set")
    options = pairs(opening, "--open")
    stores = pairs(storage, "--storage")
    reports: dict[str, Report] = {}
    shown: list[dict[str, Any]] = []
    tables: list[RenderableType] = []
    found: dict[str, list[Finding]] = {}
    for location in locations:
        reports[location] = checked(
            location, deep=deep, format=source, thresholds=limits, storage_options=stores, **options
        )
        found[location] = list(reports[location].findings)
    for location, finding in leaks(reports):
        found[location].append(finding)
    for location, findings in found.items():
        located = locate(location, format=source, storage_options=stores)
        listed = [finding.to_json() for finding in findings]
        sound = reports[location].sound
        shown.append({"path": str(located), "format": located.format, "sound": sound, "findings": listed})
        tables.append(render(located.format, str(located), findings))
    if as_json:
        print_json(shown[0] if len(shown) == 1 else shown)
    else:
        Console(soft_wrap=not any(found.values())).print(Group(*tables))
    failing = list(STYLES)[: list(STYLES).index(fail_on) + 1]
    if any(finding.level in failing for findings in found.values() for finding in findings):
        raise typer.Exit(1)


def render(name: str, path: str, findings: list[Finding]) -> RenderableType:
    """Return the findings as a table for people, or as one line if there are none."""
    if not findings:
        return Text(f"{path} is sound ({name})", style="green")
    columns = (Column("where", overflow="fold"), "level", "name", "message")
    table = Table(*columns, title=f"{path} ({name})", title_justify="left")
    for finding in findings:
        level = Text(finding.level, style=STYLES[finding.level])
        message = Text(finding.message)
        if finding.repair is not None:
            message.append(f" (penstock repair: {finding.repair})", style="green")
        table.add_row(Text(finding.where), level, Text(finding.name), message)
    return Fitted(table)
