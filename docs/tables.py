"""Tables of the site that follow from the code: mkdocs replaces the marker `<!-- formats -->` in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cli.formats import describe
from penstock.formats.base.format import Format, available

MARKER = "<!-- formats -->"
PAGES = Path(__file__).parent / "formats"


def formats_table() -> str:
    """A row for each format that is installed. The data links to the page of the format, if it has one."""
    header = "| format | data | reads | writes | appends | extras |\n|---|---|---|---|---|---|\n"
    return header + "\n".join(_row(entry) for entry in available().values())


def _row(entry: Format) -> str:
    found = describe(entry)
    page = f"{entry.name}.md"
    data = f"[{entry.description}]({page})" if (PAGES / page).exists() else entry.description
    abilities = ["yes" if found[ability] else "no" for ability in ("writes", "appends")]
    extras = ", ".join(f"`{extra}`" for extra in entry.extras) or "none"
    return " | ".join([f"| `{entry.name}`", data, "yes", *abilities, extras]) + " |"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    return markdown.replace(MARKER, formats_table()) if MARKER in markdown else markdown
