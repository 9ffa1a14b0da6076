"""Names of a package that are loaded at their first use. The stub of the package lists them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

import lazy_loader

Lookup = Callable[[str], Any]


def lazy_names(package: str, file: str) -> tuple[Lookup, Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`."""
    load, names, exported = cast("tuple[Lookup, Any, list[str]]", lazy_loader.attach_stub(package, file))

    def get(name: str) -> Any:
        if name not in exported:
            if name.startswith("_"):  # Python asks for these: no answer is worth an import
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            raise importlib.import_module("penstock.core.other_names").no_name(package, name)
        try:
            return load(name)
        except ModuleNotFoundError as error:
            if error.name != "gymnasium":
                raise
            missing = importlib.import_module("penstock.errors").MissingExtraError
            raise missing("gymnasium is not installed; install it with: pip install 'penstock[gymnasium]'") from error

    return get, names, exported
