"""Show the arrays in files that no format recognises."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.show import Fitted
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
            arrays.add_row(Text(name, style="cyan"), Text(shown))
        if len(rows) > ARRAYS:
            arrays.add_row(f"and {len(rows) - ARRAYS:,} more", "")
        if look.error is not None:
            arrays.add_row(Text("cannot be read", style="yellow"), Text(look.error))
        parts += [Text(), Fitted(arrays)]
    return Panel(Group(*parts), title=Text(str(sketch.path)), title_align="left", border_style="cyan", expand=False)


def show_unknown(location: str) -> str | None:
    """Print the arrays at a path and return what to do with them; None if there are none."""
    sketch = Sketch.of(Path(location))
    if not sketch.looks:
        return None
    Console().print(sketch_table(sketch))
    lacking = any("not installed" in (look.error or "") for look in sketch.looks)
    then = "install what the table names, then call" if lacking else "call"
    return f"{then} `penstock adopt {location}`, which guesses how to read them"
