"""`penstock why` and `penstock uses`: what a batch was made of, and which batches have an episode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.loaders import LOADER_HELP, find_loader, find_plan
from penstock.cli.show import Fitted, Json, print_json
from penstock.errors import StateError
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


def uses(
    loader: Annotated[str, typer.Argument(metavar="LOADER", help=LOADER_HELP)],
    episodes: Annotated[list[int], typer.Argument(metavar="EPISODE...", help="Numbers of episodes in their source.")],
    source: Annotated[int | None, typer.Option(help="Number of the source, where there are several.")] = None,
    state: Annotated[Path | None, typer.Option(help="JSON file with the state_dict of the loader of the run.")] = None,
    since: Annotated[int | None, typer.Option(help="First position to look at.", min=0)] = None,
    until: Annotated[int | None, typer.Option(help="Position after the last one to look at.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Show the batches that had an episode, and later ones that will.

    Without --state, no batch was given yet. The rows are planned. No data are read, except to build the loader.

    Example: penstock uses train.py:make_loader 17 --state state.json
    """
    resumed = find_plan(loader)
    if state is not None:
        try:
            saved = json.loads(state.read_text("utf-8"))
        except ValueError as error:
            save = "json.dump(loader.state_dict(), file) writes it, also from the entry of a checkpoint of yours"
            raise StateError(
                f"expected a state_dict as JSON in {state}, got something else: {error}; {save}"
            ) from error
        resumed.load_state_dict(saved)
    answer = resumed.uses(episodes, source, since=since, until=until)
    if as_json:
        columns = {name: answer.table[name].tolist() for name in answer.table}
        tickets = [None if ticket is None else str(ticket) for ticket in answer.tickets]
        lines = [
            {**dict(zip(columns, line, strict=True)), "ticket": ticket}
            for line, ticket in zip(zip(*columns.values(), strict=True), tickets, strict=True)
        ]
        about = {"source": answer.source, "name": answer.name, "episodes": answer.episodes}
        print_json({**about, "position": answer.position, "until": answer.until, "samples": lines})
    else:
        Console().print(Fitted(answer.__rich__()))
