"""`penstock top`: watch a running loader and its bottleneck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from penstock.cli.show import Json, print_json
from penstock.errors import FormatError
from penstock_live.endpoint import look
from penstock_live.stage_table import COLUMNS, LookWindow, as_json, rows, sentences

Look = Callable[[], Mapping[str, Any]]
PORT = "9470"


def top(
    address: Annotated[
        str,
        typer.Argument(metavar="[PORT_OR_ADDRESS]", help="The port or address at which the loader serves its figures."),
    ] = PORT,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two updates.")] = 1.0,
    as_json_: Json = False,
) -> None:
    """Watch a running loader: busy share, rates and queue of each stage, bottleneck.

    Rates are means over the last ten updates. The last line counts all games by outcome. To serve the figures, run
    `penstock live --metrics-port`, or use `penstock_live.endpoint.MetricsEndpoint` in a program. `--json` reads the
    figures twice and prints the rates in between.

    Example: penstock top 9470
    """
    before = look(address)
    if as_json_:
        time.sleep(interval)
        print_json(as_json(before, look(address)))
        return
    make_app(lambda: look(address), interval, address).run()


def make_app(look: Look, interval: float, name: str) -> Any:
    """Return a Textual application that shows the figures of `look`."""
    from textual import app as app_module
    from textual import widgets

    class Top(app_module.App[None]):
        """A table of stages, and a line that names the bottleneck or says why there are no figures."""

        TITLE = f"penstock top {name}"
        BINDINGS = [("q", "quit", "Quit"), ("space", "pause", "Pause")]  # noqa: RUF012  Textual's own form
        CSS = "#says { height: auto; padding: 1 2; text-style: bold; }"

        _window = LookWindow()
        _paused = False

        def compose(self) -> Any:
            yield widgets.Header()
            yield widgets.DataTable(cursor_type="none", zebra_stripes=True)
            yield widgets.Static("the first rates appear at the second update", id="says")
            yield widgets.Footer()

        async def on_mount(self) -> None:
            self.query_one(widgets.DataTable).add_columns(*COLUMNS)
            await self.take_look()
            self.set_interval(interval, self.take_look)

        def action_pause(self) -> None:
            self._paused = not self._paused

        async def take_look(self) -> None:
            """Show the rates of the last updates."""
            if self._paused:
                return
            says = self.query_one("#says", widgets.Static)
            try:
                after = await asyncio.to_thread(look)
            except (OSError, FormatError) as error:
                says.update(f"no figures: {error}")
                return
            before = self._window.add(after)
            if after["time"] > before["time"]:
                fill(self.query_one(widgets.DataTable), before, after)
                says.update(sentences(before, after) or "no stages yet")

    return Top()


def fill(table: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Fill a Textual table with the rates between two updates."""
    table.clear()
    for row in rows(before, after):
        table.add_row(*row)
