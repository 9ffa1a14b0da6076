"""`penstock cache`: decode columns of a dataset into the user's cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.cli.chosen import chosen_dataset
from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import From, In, Opening, Storage, opened, pairs
from penstock.cli.show import Json, print_json, size
from penstock.data.cached import CachedSource, picture_columns
from penstock.files.user_cache import user_cache


@works_in_parts
def cache(
    location: In,
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="PATH", help="A column; by default all pictures.")
    ] = None,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Decode columns, such as videos, into the user's cache.

    Afterwards `penstock.open(LOCATION).cached(COLUMN)` reads them from there. Run an interrupted command again: it
    continues where it stopped.

    Example: penstock cache ./pusht --column observations/image --jobs 8
    """
    shown = {"json": as_json, "location": location}
    if work.wanted:
        dataset = chosen_dataset(location, opening, source, pairs(storage, "--storage"))
        folder = str(user_cache("derived").absolute())
        arguments = {**dataset.arguments(), "columns": column, "folder": folder, "show": shown}
        show_in_parts("cache", arguments, work, quiet=as_json)
        return
    _, data = opened(location, opening, source, pairs(storage, "--storage"))
    with data:
        done = {name: CachedSource(data, name).fill() for name in column or picture_columns(data.spec)}
    present(done, {"show": shown})


def present(done: Mapping[str, int], arguments: Mapping[str, Any]) -> None:
    """Print the bytes of each column."""
    location = arguments["show"]["location"]
    if arguments["show"]["json"]:
        print_json({"location": location, "columns": done})
        return
    console = Console(soft_wrap=True, highlight=False)
    for name, nbytes in done.items():
        console.print(f"{name}: {size(nbytes)} in the cache; open({location!r}).cached({name!r}) reads it")
    if not done:
        console.print("no column has pictures; name one with --column")
