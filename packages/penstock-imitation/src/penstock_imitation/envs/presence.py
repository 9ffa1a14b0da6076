"""Whether a benchmark's libraries are installed, without importing them: an import may load an OpenGL driver."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable

from penstock.errors import MissingExtraError


def demand(modules: Iterable[str], how: str) -> None:
    """Raise `MissingExtraError` unless all modules can be found; `how` tells the user what to do about it."""
    missing = [module for module in modules if module not in sys.modules and importlib.util.find_spec(module) is None]
    if missing:
        names, verb = ", ".join(missing), "is" if len(missing) == 1 else "are"
        raise MissingExtraError(f"{names} {verb} not installed; {how}")
