"""`penstock diff`: which episodes, columns and rows of two datasets differ."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.options import IN_HELP, Storage, stores
from penstock.cli.show import Fitted, Json, print_json
from penstock.conversion.difference import Difference, difference
from penstock.data.open import open


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=IN_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", help="Another dataset, of any format.")],
    match: Annotated[
        Literal["number", "content"],
        typer.Option("--match", help="Compare episodes of the same number, or sets of episodes by their content."),
    ] = "number",
    tolerance: Annotated[float, typer.Option("--tolerance", min=0, help="Largest difference that is none.")] = 0.0,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show which episodes, columns and rows of two datasets differ. The exit code is 1 if any do.

    Example: penstock diff ./cartpole ./cartpole-minari --tolerance 1e-6
    """
    read, compared = stores(storage, first, second)
    with open(first, storage_options=read) as one, open(second, storage_options=compared) as other:
        differences = difference(one, other, match=match, tolerance=tolerance)
    if as_json:
        print_json({"equal": not differences, "differences": [each.to_json() for each in differences]})
    else:
        Console(soft_wrap=True).print(render(differences))
    if differences:
        raise typer.Exit(1)


def render(differences: tuple[Difference, ...]) -> RenderableType:
    """Return the differences as a table for people."""
    if not differences:
        return Text("no difference", style="green")
    table = Table("", "what", "how", "largest", box=None, header_style="bold", pad_edge=False)
    for each in differences:
        largest = "" if each.largest is None else f"{each.largest:.6g}"
        table.add_row(Text(each.kind), Text(each.what), Text(each.message), largest)
    return Fitted(table)
