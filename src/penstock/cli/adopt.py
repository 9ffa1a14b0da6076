"""`penstock adopt`: look at files that no format knows, and write the mapping that makes them a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from penstock.cli.info import render, summarise
from penstock.cli.show import Json, print_json
from penstock.cli.sketch import sketch_table
from penstock.data.located import DatasetFiles, LocatedData
from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.format import named, nothing_at
from penstock.formats.mapping.rules import toml_of
from penstock.formats.mapping.sketch import Sketch
from penstock.formats.mapping.source import FilesSource
from penstock.locations.location import Location


def adopt(
    location: Annotated[Path, typer.Argument(metavar="PATH", help="A file or a folder.")],
    yes: Annotated[bool, typer.Option("--yes", help="Write the guessed mapping without asking.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file; by default penstock.toml in the folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Guess and write the mapping that makes your files a dataset.

    The file says which files are episodes and which of their arrays are which columns. Edit it where the guess is
    wrong. Nothing is converted or copied. With --json, nothing is asked, and --yes alone writes the file.

    Example: penstock adopt ./my_runs --yes
    """
    console = Console(quiet=as_json)
    if not location.exists():
        raise nothing_at(location)
    sketch = Sketch.of(location)
    console.print(sketch_table(sketch))
    if sketch.guess is None:
        raise UnknownFormatError(f"expected files with arrays, got none: {sketch.contents}", path=location)
    console.print(Panel(Text(toml_of(sketch.guess).strip()), title="guessed mapping", title_align="left", expand=False))
    error: FormatError | None = None
    try:
        with FilesSource(location, sketch.guess) as source:
            located = LocatedData(Location.of(location), (DatasetFiles(named("mapping"), (location,)),))
            lengths = np.diff(source.offsets)
            console.print(render(summarise(located, source, lengths, None), lengths, None))
    except FormatError as damaged:  # of some files: the mapping is written all the same, to be edited
        error = damaged
        Console(stderr=True, soft_wrap=True, quiet=as_json).print(Text(f"{type(error).__name__}: {error}", style="red"))
    target = sketch.target if out is None else out
    if not yes and not as_json and not typer.confirm(f"Write the mapping to {target}?"):
        raise typer.Exit(1)
    if yes or not as_json:
        sketch.write(target)
    if as_json:
        written = str(target) if yes else None
        print_json({"mapping": sketch.guess.to_json(), "written": written, "error": error and str(error)})
        if error is not None:
            raise typer.Exit(1)
        return
    if error is not None:
        Console(soft_wrap=True).print(Text(f"wrote {target}, which does not open the files yet; edit it"))
        raise typer.Exit(1)
    place = location if target == sketch.target and location.is_dir() else target
    Console(soft_wrap=True).print(Text(f"wrote {target}; penstock.open({str(place)!r}) opens it"))
