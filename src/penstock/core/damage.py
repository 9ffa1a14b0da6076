"""Warn of damaged data, or collect the messages where they become findings.

`warnings.catch_warnings` changes the filters of the whole process. If two threads enter and leave such blocks in turn,
the filters of one block stay for ever, and a warning or an error that another thread expects does not come. So code
that opens damaged data without a warning asks for the messages of its own thread instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.errors import DamageWarning

_collected: ContextVar[list[str] | None] = ContextVar("penstock_damage", default=None)
"""The messages of the innermost block that collects them, in this thread."""


def warn_damage(message: str, *, stacklevel: int = 1) -> None:
    """Issue a `DamageWarning`, or add the message to those that the caller collects.

    Args:
        message: The damage, and what was left out.
        stacklevel: As of `warnings.warn`, seen from the function that calls this one.

    Example:
        >>> with collected_damage() as messages:
        ...     warn_damage("a.tar was cut off")
        >>> messages
        ['a.tar was cut off']
    """
    messages = _collected.get()
    if messages is None:
        warnings.warn(DamageWarning(message), stacklevel=stacklevel + 1)
    else:
        messages.append(str(DamageWarning(message)))


@contextmanager
def collected_damage() -> Generator[list[str]]:
    """Collect messages of damage within the block, instead of warning. Other threads warn as before.

    Returns:
        The messages so far, in their order.
    """
    messages: list[str] = []
    token = _collected.set(messages)
    try:
        yield messages
    finally:
        _collected.reset(token)
