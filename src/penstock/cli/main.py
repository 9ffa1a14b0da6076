"""`penstock`: the commands by name, each imported when it is called, so that `penstock --help` is quick."""

from __future__ import annotations

import pkgutil
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import penstock
from penstock.errors import PenstockError

COMMANDS = {
    "info": ("penstock.cli.info:info", "What a dataset holds: columns, spaces, episodes, returns, metadata."),
    "check": ("penstock.cli.check:check", "Look for damage in a dataset; exit code 1 if there is any."),
    "convert": (
        "penstock.cli.convert:convert",
        "Write any dataset as any format; reports what the target could not hold.",
    ),
    "reshard": (
        "penstock.cli.reshard:reshard",
        "Write tar shards as shards of another size, compression or layout.",
    ),
    "index": (
        "penstock.cli.index:index",
        "Make the index of a dataset ahead of time, so that opening it is quick.",
    ),
    "film": (
        "penstock.cli.film:film",
        "Draw an episode: frames with actions and rewards, or curves of its observations.",
    ),
    "view": ("penstock.cli.view:view", "Draw a scene of a driving log from above: pictures, or a film."),
    "record": ("penstock.cli.record:record", "Record episodes of an environment into a new dataset."),
    "formats": ("penstock.cli.formats:formats", "The formats there are, and what each can do."),
    "live": ("penstock.cli.live:live", "Read a folder of training games that grows, and show what each stage does."),
    "top": (
        "penstock.cli.top:top",
        "Watch a running loader: busy share, rates and queue of each stage, and the bottleneck.",
    ),
    "why": ("penstock.cli.why:why", "Which episodes, files and rows are behind a batch, from its ticket."),
    "demo": ("penstock.cli.demo.command:demo", "Record, train, stop, resume and evaluate, from end to end."),
}

EXAMPLE = "Example: penstock info ./cartpole --json"


class Deferred(TyperCommand):
    """A command of which only name and summary are known until it is called."""

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._target = target

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which is imported here."""
        app = typer.Typer(add_completion=False)
        app.command(self.name)(pkgutil.resolve_name(self._target))
        return typer.main.get_command(app).make_context(info_name, args, parent, **extra)


class Commands(TyperGroup):
    """All commands; what penstock or the file system refuses becomes one red line and exit code 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: Deferred(name, *about) for name, about in COMMANDS.items()}

    def invoke(self, ctx: Any) -> Any:
        """Run one command. With `--debug` errors keep their traceback."""
        try:
            return super().invoke(ctx)
        except (PenstockError, OSError) as error:
            if ctx.params["debug"]:
                raise
            Console(stderr=True, soft_wrap=True).print(Text(f"{type(error).__name__}: {error}", style="red"))
            raise typer.Exit(2) from error


app = typer.Typer(cls=Commands, add_completion=False, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(penstock.__version__)
        raise typer.Exit


@app.callback(epilog=EXAMPLE)
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Open, record and check datasets of sequential experience."""


def main() -> None:
    """Run the command line on the arguments of the process."""
    app()
