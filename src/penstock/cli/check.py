"""`penstock check`: look for damage and mistakes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.chosen import chosen_dataset
from penstock.cli.jobs import WorkOptions, run_in_parts, works_in_parts
from penstock.cli.options import IN_HELP, From, Opening, Storage, pairs
from penstock.cli.show import Fitted, Json, print_json
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.located import locate
from penstock.doctor.check import check as checked
from penstock.doctor.examine import Report, leaks
from penstock.errors import DataError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format, named

NAMED = 20  # episodes that a command leaves out one by one
STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}


@works_in_parts
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
    *,
    work: WorkOptions,
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
    shown = {"fail_on": fail_on, "json": as_json}
    if work.plan is not None and len(locations) > 1:
        raise DataError(f"expected one LOCATION with --plan, got {len(locations)}; write a plan for each")
    reports: dict[str, Report] = {}
    with ExitStack() as shown_first:
        for location in locations:
            if work.wanted:
                dataset = chosen_dataset(location, opening, source, stores)
                title = {"title": str(dataset.locate())}
                arguments = {**dataset.arguments(), "deep": deep, "thresholds": limits, "show": {**shown, **title}}
                results = run_in_parts("check", arguments, work, quiet=as_json)
                reports[location] = shown_first.enter_context(results)
            else:
                reports[location] = checked(
                    location, deep=deep, format=source, thresholds=limits, storage_options=stores, **options
                )
        located = {location: locate(location, format=source, storage_options=stores) for location in locations}
        _show(reports, {location: (str(each), each.format) for location, each in located.items()}, shown)


def present(result: Report, arguments: Mapping[str, Any]) -> None:
    """Print the report of one dataset as the arguments of `penstock check` say."""
    shown = arguments["show"]
    _show({"": result}, {"": (shown["title"], ChosenDataset.of(arguments).locate().format)}, shown)


def _show(reports: Mapping[str, Report], titles: Mapping[str, tuple[str, str]], shown: Mapping[str, Any]) -> None:
    """Print the reports by location, under a title and the name of the format.

    Exit code 1 if a finding has the level `fail_on` or a higher one.
    """
    findings_of = {location: list(report.findings) for location, report in reports.items()}
    for location, finding in leaks(reports):
        findings_of[location].append(finding)
    entries: list[dict[str, Any]] = []
    tables: list[RenderableType] = []
    for location, findings in findings_of.items():
        title, format = titles[location]
        listed = [finding.to_json() for finding in findings]
        entries.append({"path": title, "format": format, "sound": reports[location].sound, "findings": listed})
        tables.append(render(format, title, findings))
    if shown["json"]:
        print_json(entries[0] if len(entries) == 1 else entries)
    else:
        Console(soft_wrap=not any(findings_of.values())).print(Group(*tables))
        for location, findings in findings_of.items():
            if (said := _next_step(*titles[location], findings)) is not None:
                Console(soft_wrap=True).print(Text(said))
    failing = list(STYLES)[: list(STYLES).index(shown["fail_on"]) + 1]
    if any(finding.level in failing for findings in findings_of.values() for finding in findings):
        raise typer.Exit(1)


def _next_step(path: str, format: str, findings: list[Finding]) -> str | None:
    """Which episodes have errors, and the command that leaves them out; None without any."""
    with_errors = [finding.episodes for finding in findings if finding.level == "error" and finding.episodes]
    bad = sorted({episode for episodes in with_errors for episode in episodes})
    if not bad or len(bad) > NAMED:
        return None
    condition = " and ".join(f"id != {episode}" for episode in bad)
    writes = f" --format {format}" if type(named(format)).create is not Format.create else ""
    command = f"penstock convert {shlex.quote(path)} OUT{writes} --where {shlex.quote(condition)}"
    return f"without {counted(len(bad), 'episode')} that ha{'s' if len(bad) == 1 else 've'} errors: {command}"


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
