"""`penstock check`: look for damage."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.show import Json, print_json
from penstock.formats.base.format import Finding, recognise

STYLES = {"error": "red", "warning": "yellow"}


def check(
    location: Annotated[str, typer.Argument(metavar="PATH_OR_ID", help="A path, or an id that a format knows.")],
    as_json: Json = False,
) -> None:
    """Look for damage in a dataset; exit code 1 if there is any.

    Reads everything once. Warnings alone are exit code 0; 2 means that it cannot be opened at all.

    Example: penstock check ./cartpole
    """
    found, path = recognise(location)
    findings = list(found.check(path))
    sound = all(finding.level != "error" for finding in findings)
    if as_json:
        listed = [asdict(finding) for finding in findings]
        print_json({"path": str(path), "format": found.name, "sound": sound, "findings": listed})
    else:
        Console(soft_wrap=True).print(render(found.name, path, findings))
    if not sound:
        raise typer.Exit(1)


def render(name: str, path: Path, findings: list[Finding]) -> RenderableType:
    """The findings for people: a table, or one line if there are none."""
    if not findings:
        return Text(f"{path} is sound ({name})", style="green")
    table = Table("level", "where", "message", title=f"{path} ({name})", title_justify="left")
    for finding in findings:
        table.add_row(Text(finding.level, style=STYLES[finding.level]), Text(finding.where), Text(finding.message))
    return table
