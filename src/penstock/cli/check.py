"""`penstock check`: look for damage."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.findings import findings as of_any
from penstock.cli.fitted import Fitted
from penstock.cli.options import From, Opening, opened, pairs, placed, refuse
from penstock.cli.show import Json, print_json
from penstock.errors import FormatError
from penstock.formats.base.format import Finding, Format

STYLES = {"error": "red", "warning": "yellow"}


def check(
    location: Annotated[str, typer.Argument(metavar="PATH_OR_ID", help="A path, or an id that a format knows.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Check the values of all episodes, however large the data are.")
    ] = False,
    source: From = None,
    opening: Opening = None,
    as_json: Json = False,
) -> None:
    """Look for damage in a dataset; exit code 1 if there is any.

    Runs the format's own check, then looks for misplaced or missing episode ends, NaNs, values outside their spaces,
    and mismatched next observations. The exit code is 0 if there are only warnings, and 2 if the dataset cannot be
    opened.

    Example: penstock check ./cartpole --deep
    """
    found, path = placed(location, source)
    findings = list(of_the_format(found, path, pairs(opening, "--open")))
    if all(finding.level != "error" for finding in findings):
        findings += values(location, opening, source, deep=deep)
    sound = all(finding.level != "error" for finding in findings)
    if as_json:
        listed = [asdict(finding) for finding in findings]
        print_json({"path": str(path), "format": found.name, "sound": sound, "findings": listed})
    else:
        Console(soft_wrap=not findings).print(render(found.name, path, findings))
    if not sound:
        raise typer.Exit(1)


def of_the_format(found: Format, path: Path, options: dict[str, Any]) -> Iterator[Finding]:
    """Run the format's own check, with the options if it takes them; skip it if opening the data checks the same."""
    takes = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(found.check).parameters.values())
    given = options if takes else {}
    try:
        if not found.opening_checks(path, **given):
            yield from found.check(path, **given)
    except TypeError as error:
        refuse(found, given, error)


def values(location: str, opening: list[str] | None, format: str | None, *, deep: bool) -> list[Finding]:
    """Return the findings in the values, which are checked in the same way for every format."""
    try:
        found, _, source = opened(location, opening, format)
        with source:
            return list(of_any(source, found.name, deep=deep))
    except FormatError as error:
        return [Finding("error", error.where or str(error.path or location), str(error))]


def render(name: str, path: Path, findings: list[Finding]) -> RenderableType:
    """Return the findings as a table for people, or as one line if there are none."""
    if not findings:
        return Text(f"{path} is sound ({name})", style="green")
    table = Table(Column("where", overflow="fold"), "level", "message", title=f"{path} ({name})", title_justify="left")
    for finding in findings:
        table.add_row(Text(finding.where), Text(finding.level, style=STYLES[finding.level]), Text(finding.message))
    return Fitted(table)
