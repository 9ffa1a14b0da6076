"""Loaders that a command names as `file.py:name` or `package.module:name`. The code is run, a function is called."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.loading.loader import Loader
from penstock.loading.ticket import Ticket
from penstock.loading.why import Why
from penstock.plan.batched import BatchedPlan

LOADER_HELP = (
    "Where the loader is: file.py:name or package.module:name. The name is that of a function "
    "without arguments that returns a loader, or of a loader. The file is run to its end: have `if __name__ == "
    "'__main__'` before the training."
)


class Explains(Protocol):
    """A `Loader`, or a replay, which explains its own tickets."""

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return the rows that a ticket names."""
        ...


def find_loader(place: str) -> Explains:
    """Return the loader at `file.py:name` or `package.module:name`; a function is called to return it."""
    target = _named(place)
    if callable(target) and not hasattr(target, "why"):
        target = target()
    if isinstance(target, type) or not hasattr(target, "why"):
        raise PlanError(f"expected a loader or a function that returns one at {place}, got {type(target).__name__}")
    return cast(Explains, target)


def find_plan(place: str, batch_size: int | None = None) -> Loader[Any]:
    """Return the loader at `file.py:name`: the object of this name, or a loader of it if it is a `MapDataset`.

    A function is called to return it. `batch_size` is for a `MapDataset` alone, by default 64.
    """
    target = _named(place)
    if callable(target) and not isinstance(target, type):
        target = target()
    if isinstance(target, MapDataset):
        planned = isinstance(target.plan, BatchedPlan)
        return target.loader(batch_size if planned else batch_size or 64, threads=0)
    if batch_size is not None:
        raise PlanError(f"expected no batch size for {place}, which has one; leave it out")
    if not isinstance(target, Loader):
        raise PlanError(
            f"expected a loader, a MapDataset or a function that returns one at {place}, got {type(target).__name__}"
        )
    return cast(Loader[Any], target)


def _named(place: str) -> Any:
    where, colon, name = place.rpartition(":")
    if not (colon and where and name):
        raise PlanError(f"expected a loader as file.py:name or package.module:name, got {place!r}")
    value: Any = _module(where)
    for part in name.split("."):
        if not hasattr(value, part):
            raise PlanError(f"expected {name!r} in {where}, got no {part!r} there")
        value = getattr(value, part)
    return value


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
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        message = f"expected a file that Python can read, got a mistake in line {error.lineno}: {error.msg}"
        raise PlanError(f"{message} - in {where}") from error
    return module
