"""Names of functions for messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def name_of(fn: Callable[..., Any]) -> str:
    """Return the module and qualified name of a function, or the `repr` or class of another callable.

    Args:
        fn: Any callable.

    Example:
        >>> name_of(len), name_of(partial(int, base=2))
        ('builtins.len', "builtins.int(*(), **{'base': 2})")
    """
    if isinstance(fn, partial):
        return f"{name_of(fn.func)}(*{fn.args!r}, **{fn.keywords!r})"
    if not hasattr(fn, "__qualname__") and type(fn).__repr__ is not object.__repr__:
        return repr(fn)
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"
