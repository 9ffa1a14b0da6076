"""`penstock formats`: what can be opened and written."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.cli.show import Fitted, Json, print_json
from penstock.formats.base.format import Format, available


def formats(as_json: Json = False) -> None:
    """List the formats, and whether each can write, append and check.

    The list includes formats of other packages that have an entry point in the group `penstock.formats`.

    Example: penstock formats --json
    """
    listed = [describe(entry) for entry in available().values()]
    if as_json:
        print_json(listed)
        return
    table = Table("format", "writes", "appends", "checks", "what it is", box=None, header_style="bold", pad_edge=False)
    for entry in listed:
        marks = ("yes" if entry[ability] else "-" for ability in ("writes", "appends", "checks"))
        table.add_row(entry["name"], *marks, entry["description"])
    Console().print(Fitted(table))


def describe(entry: Format) -> dict[str, Any]:
    """Name and description of a format, and which of the optional abilities of a `Format` it has."""
    kind = type(entry)
    return {
        "name": entry.name,
        "description": entry.description,
        "writes": kind.create is not Format.create,
        "appends": kind.append is not Format.append,
        "checks": kind.check is not Format.check,
    }
