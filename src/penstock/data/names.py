"""What a function is called where it is part of a fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def name_of(fn: Callable[..., Any]) -> str:
    """The module and the qualified name of a function; of an object that is called, those of its class.

    The name is all that can be known: a function that was changed keeps it.

    >>> name_of(len), name_of(dict.get)
    ('builtins.len', 'builtins.dict.get')
    """
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"
