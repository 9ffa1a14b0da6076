"""The entries of the reference as Markdown, for readers that get pages as text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

ENTRY = re.compile(r"^::: (\S+)\n(?:    .*\n)*", re.MULTILINE)


def with_names(text: str) -> str:
    """The page with signature and docstring of each name in the place of `::: name`."""
    return ENTRY.sub(lambda match: "\n".join(described(match[1])), text)


def described(name: str, level: int = 2) -> Iterator[str]:
    """The lines of an entry, and of the public methods of a class."""
    value = resolve_name(name)
    yield f"{'#' * level} `{name}{signature(value)}`\n\n{inspect.getdoc(value) or ''}\n"
    if inspect.isclass(value):
        for inner, member in vars(value).items():
            if not inner.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                yield from described(f"{name}.{inner}", level + 1)


def signature(value: Any) -> str:
    """The arguments of a function or class, or nothing where Python does not tell."""
    try:
        return str(inspect.signature(value)) if callable(value) else ""
    except (ValueError, TypeError):
        return ""
