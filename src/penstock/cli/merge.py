"""`penstock merge`: several datasets as one new dataset."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.options import IN_HELP, NewFormat, Storage, pairs, stores
from penstock.cli.show import Json, print_json
from penstock.conversion.merge import merge as merged
from penstock.data.open import open
from penstock.locations.location import Location


def merge(
    locations: Annotated[list[str], typer.Argument(metavar="LOCATION...", help=IN_HELP)],
    out: Annotated[Path, typer.Option("--out", metavar="TARGET", help="Path of the new dataset.")],
    missing: Annotated[
        Literal["refuse", "fill"], typer.Option("--missing", help="What to do with columns that a dataset lacks.")
    ] = "refuse",
    fill: Annotated[
        list[str] | None, typer.Option("--fill", metavar="COLUMN=VALUE", help="Value of a missing column.")
    ] = None,
    format: NewFormat = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the writer.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over.")] = False,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write the episodes of several datasets to one new dataset.

    It has all columns, merged statistics and the names of the sources.

    Example: penstock merge ./monday ./tuesday --out ./week
    """
    values = pairs(fill, "--fill")
    how = {"options": pairs(options, "--option"), "overwrite": overwrite}
    with ExitStack() as datasets:
        named = {
            str(Location.of(location)): datasets.enter_context(open(location, storage_options=options_of_store))
            for location, options_of_store in zip(locations, stores(storage, *locations), strict=True)
        }
        report = merged(named, out, missing=missing, fill=values, format=format, **how)
    if as_json:
        print_json(report.to_json())
    else:
        counts = f"{report.episodes:,} episodes, {report.steps:,} steps"
        Console(soft_wrap=True).print(Text(f"{report.out}: {counts} of {len(locations)} datasets"))
