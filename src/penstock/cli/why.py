"""`penstock why`: show the episodes and rows of a batch."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Protocol, cast

import typer
from rich.console import Console

from penstock.cli.fitted import Fitted
from penstock.cli.show import Json, print_json
from penstock.errors import PlanError
from penstock.load.ticket import Ticket
from penstock.load.why import Why


class Explains(Protocol):
    """A `Loader`, or an adapter of one."""

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return the rows that a ticket names."""
        ...


def why(
    ticket: Annotated[str, typer.Argument(metavar="TICKET", help="The 32 digits that print(batch.ticket) shows.")],
    loader: Annotated[
        str,
        typer.Argument(
            metavar="LOADER",
            help="Where the loader is: file.py:name or package.module:name. The name is that of a Loader, of an "
            "adapter such as a TorchLoader, or of a function without arguments that returns one. The code is run.",
        ),
    ],
    column: Annotated[str | None, typer.Option(help="Show the rows from which this output was read.")] = None,
    as_json: Json = False,
) -> None:
    """Show the episodes, files and rows of a batch, from its ticket.

    The rows are planned again. No data are read, except to build the loader.

    Example: penstock why 00000000000010000000004001d3f8a2 train.py:loader
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


def find_loader(place: str) -> Explains:
    """Return the loader at `file.py:name` or `package.module:name`; a function is called to return it.

    Raises `PlanError` if the name does not exist or is not a loader.
    """
    where, colon, name = place.rpartition(":")
    if not (colon and where and name):
        raise PlanError(f"expected a loader as file.py:name or package.module:name, got {place!r}")
    value: Any = _module(where)
    for part in name.split("."):
        if not hasattr(value, part):
            raise PlanError(f"expected {name!r} in {where}, got no {part!r} there")
        value = getattr(value, part)
    target = value() if callable(value) and not hasattr(value, "why") else value
    if isinstance(target, type) or not hasattr(target, "why"):
        raise PlanError(
            f"expected a Loader, a TorchLoader or a function that returns one at {place}, got {type(target).__name__}"
        )
    return cast(Explains, target)


def _module(where: str) -> ModuleType:
    """Import a module by its file or by its name."""
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise  # something that the module needs is missing
            raise PlanError(f"expected a module or a .py file, got {where!r}, which cannot be imported") from error
    path = Path(where)
    if not path.is_file():
        raise PlanError(f"expected a Python file, got {where!r}, which does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"expected a Python file, got {where!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that what the file defines can be pickled
    sys.path.insert(0, str(path.parent.resolve()))  # and it finds its neighbours, as when it is run
    spec.loader.exec_module(module)
    return module
