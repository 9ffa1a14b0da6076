"""Files and arrays at a path that no format knows, as a table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.fitted import Fitted
from penstock.formats.mapping.sketch import Sketch

ARRAYS = 24  # rows of a table of arrays


def sketch_table(sketch: Sketch) -> RenderableType:
    """Return the files and arrays at a path as a table."""
    files = Table("files", "number", box=None, header_style="bold", pad_edge=False)
    for kind, number in sketch.kinds.items():
        files.add_row(kind, f"{number:,}")
    parts: list[RenderableType] = [Fitted(files)]
    for look in sketch.looks:
        arrays = Table(
            Column(look.name, overflow="fold"), "type and shape", box=None, header_style="bold", pad_edge=False
        )
        rows = look.rows()
        for name, shown in rows[:ARRAYS]:
            arrays.add_row(Text(name, style="cyan"), shown)
        if len(rows) > ARRAYS:
            arrays.add_row(f"and {len(rows) - ARRAYS:,} more", "")
        if look.error is not None:
            arrays.add_row(Text("cannot be read", style="yellow"), look.error)
        parts += [Text(), Fitted(arrays)]
    return Panel(Group(*parts), title=Text(str(sketch.path)), title_align="left", border_style="cyan", expand=False)
