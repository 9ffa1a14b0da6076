"""`penstock`: the commands by name. A command is imported when it is called, so that `penstock --help` is quick."""

from __future__ import annotations

import contextlib
import inspect
import json
import pkgutil
import re
import shutil
import textwrap
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache, partial
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import penstock
from penstock.errors import MissingExtraError, PenstockError

USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # typer exports only this subclass of its errors of usage
PLACE = re.compile(r" - (?:at|in) ")


@contextlib.contextmanager
def reported(*, as_json: bool, debug: bool) -> Generator[None]:
    """Report what penstock, the file system or the command line refuses, and exit with code 2."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of a pipe, such as `head`, has left: typer ends the command without a word
    except (PenstockError, OSError) as error:
        if debug:
            raise
        if as_json:
            typer.echo(json.dumps(described(error), indent=2, ensure_ascii=False))
        else:
            Console(stderr=True, soft_wrap=True).print(Text(f"{type(error).__name__}: {error}", style="red"))
        raise typer.Exit(2) from error
    except USAGE_ERROR as error:
        if not as_json:
            raise
        typer.echo(json.dumps(described(error), indent=2, ensure_ascii=False))
        raise typer.Exit(error.exit_code) from error


@contextlib.contextmanager
def warnings_as_lines(*, wanted: bool) -> Generator[None]:
    """Print warnings of penstock as one line each, without a place in the source, which is not the user's."""
    usual = warnings.formatwarning

    def line(message: Any, category: type[Warning], *place: Any) -> str:
        if not category.__module__.startswith("penstock"):
            return usual(message, category, *place)
        return f"{category.__name__}: {message}\n"

    warnings.formatwarning = line if wanted else usual
    try:
        yield
    finally:
        warnings.formatwarning = usual


def described(error: Any) -> dict[str, str | None]:
    """Return an error as plain data: its type, the problem, where it is, and a hint."""
    usage = isinstance(error, USAGE_ERROR)
    message = error.format_message() if usage else str(error)
    place = PLACE.search(message)
    where = message[place.end() :] if place else getattr(error, "filename", None)
    what, _, hint = (message[: place.start()] if place else message).partition("; ")
    if usage and error.ctx is not None:
        where, hint = error.ctx.command_path, hint or f"{error.ctx.command_path} --help lists all options"
    return {
        "error": type(error).__name__,
        "what": what,
        "where": None if where is None else str(where),
        "hint": hint or None,
    }


COMMANDS = {
    "info": ("penstock.cli.info:info", "Show a dataset's columns, spaces, episodes, returns and metadata."),
    "check": ("penstock.cli.check:check", "Look for damage and mistakes in datasets; exit code 1 if there are errors."),
    "stats": (
        "penstock.cli.stats:stats",
        "Show means, deviations, quantiles and histograms of a dataset's columns.",
    ),
    "convert": (
        "penstock.cli.convert:convert",
        "Convert a dataset to another format; lists data that the target cannot store.",
    ),
    "map": ("penstock.cli.map:map_episodes", "Change every episode by a function of yours, and write a new dataset."),
    "certificate": (
        "penstock.cli.certificate:certificate",
        "Show what a conversion kept, changed and left out; --verify compares again.",
    ),
    "split": ("penstock.cli.split:split", "Split a dataset into parts without leakage."),
    "merge": (
        "penstock.cli.merge:merge",
        "Write the episodes of several datasets to one new dataset.",
    ),
    "merge-curations": (
        "penstock.cli.merge_curations:merge_curations",
        "Merge the curations of several people; exit code 1 if they conflict.",
    ),
    "repair": (
        "penstock.cli.repair:repair",
        "Mend what can be mended without loss, in a copy or in place.",
    ),
    "diff": ("penstock.cli.diff:diff", "Show which episodes, columns and rows of two datasets differ."),
    "reshard": (
        "penstock.cli.reshard:reshard",
        "Write tar shards again, with another size, compression or layout.",
    ),
    "index": (
        "penstock.cli.index:index",
        "Build the index of a dataset ahead of time, so that opening it is quick.",
    ),
    "cache": ("penstock.cli.cache:cache", "Decode columns, such as videos, into the user's cache."),
    "plan": ("penstock.cli.plan:plan", "Show the size of a plan."),
    "work": ("penstock.cli.work:work", "Run one task of an array job, or merge the results of all tasks."),
    "record": (
        "penstock.cli.record:record",
        "Record episodes of an environment into a new dataset, or add them to one.",
    ),
    "adopt": (
        "penstock.cli.adopt:adopt",
        "Guess and write the mapping that makes your files a dataset.",
    ),
    "formats": ("penstock.cli.formats:formats", "List the formats, and whether each can write, append and check."),
    "why": ("penstock.cli.why:why", "Show the episodes, files and rows of a batch, from its ticket."),
    "uses": ("penstock.cli.why:uses", "Show the batches that had an episode, and later ones that will."),
    "warmup": (
        "penstock.cli.warmup:warmup",
        "Compile all kernels now, where no wheel has them, so that first calls are fast.",
    ),
}

# Commands of other distributions, which offer theirs as entry points: what to install where one is missing.
ELSEWHERE = {
    "export": "penstock-studio",
    "film": "penstock-studio",
    "live": "penstock-chess",
    "serve": "penstock-studio",
    "simulate": "penstock-cluster",
    "top": "penstock-studio",
    "view": "penstock-driving",
}

PANELS = 60  # columns of a terminal that panels of help need
EXAMPLE = "Example: penstock info ./cartpole --json"


def convert_less(params: Iterable[Any], types: Mapping[str, Any]) -> None:
    """Leave texts and missing values as they are: to convert a value, typer loads pydantic."""
    for param in params:
        if "process_value" not in vars(param):
            param.process_value = partial(_processed, param, types.get(param.name), param.process_value)


def _processed(param: Any, kind: Any, usual: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    if value is None and not param.required:
        value = () if param.multiple or param.nargs == -1 else None
    elif not isinstance(value, str) or kind not in (str, str | None):
        return usual(ctx, value)
    return value if param.callback is None else param.callback(ctx, param, value)


class Described(TyperCommand):
    """A command whose help fits narrow terminals too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set the values of the context by the arguments."""
        convert_less(self.get_params(ctx), get_type_hints(inspect.unwrap(self.callback)) if self.callback else {})
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: in panels, or as plain lines on a narrow terminal."""
        if not written_narrow(self, ctx, formatter):
            super().format_help(ctx, formatter)


class Deferred(TyperCommand):
    """A command that is imported when it is called; until then only its name and summary are known."""

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._target = target

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the real command, which is imported here. Shell completion uses it too."""
        app = typer.Typer(add_completion=False)
        function = pkgutil.resolve_name(self._target)
        paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        summary = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        app.command(self.name, cls=Described, help=summary)(function)
        return typer.main.get_command(app).make_context(info_name, args, parent, **extra)


@cache
def all_commands() -> dict[str, tuple[str, str]]:
    """Target and summary of each command: of `COMMANDS`, and of the tables that installed distributions offer."""
    from importlib.metadata import entry_points  # heavy: commands of the core do without

    tables = [point.load() for point in entry_points(group="penstock.commands")]
    return COMMANDS | {name: entry for table in tables for name, entry in table.items()}


class Commands(TyperGroup):
    """All commands. Errors of penstock, the file system or the command line are reported with exit code 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: Deferred(name, *about) for name, about in COMMANDS.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, also of other distributions."""
        for name, about in all_commands().items():
            self.commands.setdefault(name, Deferred(name, *about))
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name. One of a distribution that is not installed is an error that names it."""
        if (
            cmd_name not in COMMANDS
            and cmd_name not in self.list_commands(ctx)
            and (distribution := ELSEWHERE.get(cmd_name))
        ):
            raise MissingExtraError(
                f"`penstock {cmd_name}` is a command of {distribution}, which is not installed; "
                f"install it with: pip install {distribution}"
            )
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set the values of the context by the arguments."""
        convert_less(self.get_params(ctx), {})
        return super().parse_args(ctx, args)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context. `--json` is read here, before any error can occur."""
        as_json = "--json" in args
        with reported(as_json=as_json, debug=False):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[__name__] = as_json
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run one command. With `--debug` errors keep their traceback, and warnings their place."""
        debug = ctx.params["debug"]
        with reported(as_json=ctx.meta[__name__], debug=debug), warnings_as_lines(wanted=not debug):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: in panels, or as plain lines on a narrow terminal."""
        if not written_narrow(self, ctx, formatter):
            super().format_help(ctx, formatter)


def written_narrow(command: Any, ctx: Any, formatter: Any) -> bool:
    """Write the help of a command as plain lines, and return True, if the terminal is too narrow for panels."""
    width = shutil.get_terminal_size().columns
    if width >= PANELS:
        return False

    def write(text: str, indent: int = 0) -> None:
        lines = textwrap.wrap(text, width - indent, break_on_hyphens=False)
        formatter.write("".join(" " * indent + line + "\n" for line in lines))

    write(" ".join(ctx.get_usage().split()))
    paragraphs = (text for text in (command.help, command.epilog) if text)
    for paragraph in "\n\n".join(paragraphs).split("\n\n"):
        formatter.write("\n")
        write(paragraph)
    options = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx))]
    names = command.list_commands(ctx) if isinstance(command, Commands) else []
    commands = [(name, command.commands[name].help) for name in names]
    for records in (options, commands):
        formatter.write("\n")
        for name, summary in records:
            write(name)
            write(summary or "", 4)
    return True


app = typer.Typer(cls=Commands, no_args_is_help=True)


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


def main(name: str | None = None) -> None:
    """Run the command line on the arguments of the process."""
    app(prog_name=name)
