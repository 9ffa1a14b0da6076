"""Errors of commands: one red line for people, one JSON object under `--json`."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Generator
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from penstock.errors import PenstockError

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
