"""`penstock serve`: look at datasets in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.options import From, Opening, Storage, pairs, stores
from penstock.cli.scene import road_of
from penstock.cli.show import Json, print_json
from penstock.viewer.server import ViewerServer


def serve(
    locations: Annotated[list[str], typer.Argument(metavar="LOCATION...", help="Paths, URLs, ids or patterns.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; by default a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    curation: Annotated[
        Path | None,
        typer.Option("--curation", metavar="FILE", help="File for tags and ratings; by default next to the dataset."),
    ] = None,
    semantic_map: Annotated[
        Path | None, typer.Option("--map", help="The map of driving logs, semantic_map.pb.")
    ] = None,
    meta: Annotated[Path | None, typer.Option("--meta", help="The map's position in the world, meta.json.")] = None,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Look at datasets in the browser: findings, episodes, pictures and curves. Tag, rate and exclude episodes.

    The pages are for this machine only (127.0.0.1), and the address has a secret token. End the server with Ctrl-C.

    Example: penstock serve ./cartpole ./kitchen
    """
    given = next(filter(None, stores(storage, *locations)), None)
    with ViewerServer(
        locations,
        format=source,
        port=port,
        curation=curation,
        storage_options=given,
        road=road_of(semantic_map, meta),
        **pairs(opening, "--open"),
    ) as server:
        if as_json:
            print_json({"address": server.address})
        else:
            Console(soft_wrap=True).print(Text(f"the viewer is at {server.address}"))
        if browser:
            webbrowser.open(server.address)
        server.run()
