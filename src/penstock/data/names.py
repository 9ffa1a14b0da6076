"""Names of functions for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any

from penstock.core.text import counted
from penstock.formats.base.source import Source

LONGEST = 60  # characters of the value of an argument


def name_of(fn: Callable[..., Any]) -> str:
    """Return the module and qualified name of a function, or the `repr` or class of another callable."""
    if isinstance(fn, partial):
        return f"{name_of(fn.func)}(*{fn.args!r}, **{fn.keywords!r})"
    if not hasattr(fn, "__qualname__") and type(fn).__repr__ is not object.__repr__:
        return repr(fn)
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"


def step_text(step: object) -> str:
    """Return a transform as it would be written, without arguments that have their default."""
    if not is_dataclass(step) or not hasattr(type(step).__repr__, "__wrapped__"):
        return repr(step)  # a class that prints itself
    return f"{type(step).__name__}({', '.join(_arguments(step))})"


def _arguments(step: Any) -> Iterator[str]:
    for each in fields(step):
        value = getattr(step, each.name)
        default = each.default if each.default_factory is MISSING else each.default_factory()
        text = repr(value)
        if each.repr and text != repr(default):
            yield f"{each.name}={text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'}"


def source_text(source: Source) -> str:
    """Return the class of a source, and its path or number of episodes."""
    place = counted(len(source), "episode") if source.location is None else repr(str(source.location))
    return f"{type(source).__name__}({place})"
