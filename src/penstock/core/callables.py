"""Functions of users: found by `module:function`, and asked for their arguments."""

from __future__ import annotations

import inspect
import os
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

from penstock.errors import DataError


def named_function(name: str, what: str, folder: str | os.PathLike[str] | None = None) -> Callable[..., Any]:
    """Return the function or class `module:function`. `folder` is looked at too, and `what` names it in the error."""
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        function = pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise DataError(f"expected {what}, got {name!r}: {error}") from error
    if not callable(function) or ":" not in name:
        raise DataError(f"expected {what}, got {name!r}")
    return function


def takes_argument(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of C, or one without a signature
        return False


def takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
