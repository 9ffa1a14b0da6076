"""`penstock serve`: look at datasets in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.loaders import LOADER_HELP, find_plan
from penstock.cli.options import From, Opening, Storage, pairs, stores
from penstock.cli.show import Json, print_json
from penstock.errors import StateError
from penstock.loading.ticket import Ticket
from penstock_studio.commands.export import ViewOptions
from penstock_studio.viewer.server import ViewerServer


def serve(
    locations: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LOCATION...]", help="Paths, URLs, ids or patterns; with --loader also a ticket."),
    ] = None,
    loader: Annotated[str | None, typer.Option("--loader", metavar="FILE:NAME", help=LOADER_HELP)] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Samples of a batch, if FILE:NAME is a MapDataset.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; by default a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    curation: Annotated[
        Path | None,
        typer.Option("--curation", metavar="FILE", help="File for tags and ratings; by default next to the dataset."),
    ] = None,
    predictions: Annotated[
        str | None,
        typer.Option(
            "--predictions", metavar="LOCATION", help="What a policy predicts at each step, drawn over the curves."
        ),
    ] = None,
    view: ViewOptions = None,
    live: Annotated[
        str | None,
        typer.Option("--live", metavar="PORT_OR_ADDRESS", help="Show the stages of a running loader, as penstock top."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Pages for others: nothing can be marked, measured or changed.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="HOST", help="With --read-only: name of the server, as a proxy has it."),
    ] = None,
    password: Annotated[
        Path | None,
        typer.Option("--password", metavar="FILE", help="With --read-only: file with a password for others."),
    ] = None,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Look at datasets in the browser: findings, episodes, pictures and curves. Tag, rate and exclude episodes.

    With --loader, a page shows what the loader will serve, and another one the rows of a batch in their episodes. With
    --live, a page shows the stages of a running loader over time, and what limits it. The pages are for this machine
    only (127.0.0.1), and the address has a secret token. For others, --read-only with --password and --name goes behind
    a proxy or a tunnel. End the server with Ctrl-C.

    Example: penstock serve ./cartpole ./kitchen
    """
    places, ticket = _places(locations or [], with_loader=loader is not None)
    given = next(filter(None, stores(storage, *places)), None)
    with ViewerServer(
        places,
        format=source,
        port=port,
        curation=curation,
        storage_options=given,
        view=pairs(view, "--view"),
        loader=None if loader is None else find_plan(loader, batch_size),
        place=loader or "",
        ticket=ticket,
        live=live,
        read_only=read_only,
        name=name,
        password=None if password is None else password.read_text("utf-8").strip(),
        predictions=predictions,
        **pairs(opening, "--open"),
    ) as server:
        if as_json:
            print_json({"address": server.start})
        else:
            Console(soft_wrap=True).print(Text(f"the viewer is at {server.start}"))
        if browser:
            webbrowser.open(server.start)
        server.run()


def _places(locations: list[str], *, with_loader: bool) -> tuple[list[str], Ticket | None]:
    """Locations, and the ticket among them: with a loader, what looks like one and is no file."""
    places: list[str] = []
    ticket: Ticket | None = None
    for location in locations:
        try:
            named = Ticket.parse(location) if with_loader and not Path(location).exists() else None
        except StateError:
            named = None
        if named is None:
            places.append(location)
        ticket = named or ticket
    return places, ticket
