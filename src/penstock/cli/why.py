"""`penstock why`: show the episodes and rows of a batch."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.fitted import Fitted
from penstock.cli.loaders import LOADER_HELP, find_loader
from penstock.cli.show import Json, print_json
from penstock.loading.ticket import Ticket


def why(
    ticket: Annotated[str, typer.Argument(metavar="TICKET", help="The 32 digits that print(batch.ticket) shows.")],
    loader: Annotated[
        str,
        typer.Argument(
            metavar="LOADER",
            help=LOADER_HELP,
        ),
    ],
    column: Annotated[str | None, typer.Option(help="Show the rows from which this output was read.")] = None,
    as_json: Json = False,
) -> None:
    """Show the episodes, files and rows of a batch, from its ticket.

    The rows are planned again. No data are read, except to build the loader.

    Example: penstock why 00000000000010000000004001d3f8a2 train.py:make_loader
    """
    parsed = Ticket.parse(ticket)
    reason = find_loader(loader).why(parsed, column)
    if as_json:
        rows = reason.table
        lines = [{name: rows[name][i] for name in rows} for i in range(len(reason))]
        about = {"position": parsed.position, "count": parsed.count, "plan": parsed.digest}
        print_json({"ticket": str(parsed), **about, "sources": reason.sources, "parts": reason.parts, "rows": lines})
    else:
        Console().print(Fitted(reason.__rich__()))
