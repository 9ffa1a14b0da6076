"""Warn of damaged data, or collect the messages where they become findings.

`warnings.catch_warnings` changes the filters of the whole process. If two threads enter and leave such blocks in turn,
the filters of one block stay for ever, and a warning or an error that another thread expects does not come. So code
that opens damaged data without a warning collects the messages of its thread instead.
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
    """Issue a `DamageWarning`, or add the message to the list that the caller collects."""
    messages = _collected.get()
    if messages is None:
        warnings.warn(DamageWarning(message), stacklevel=stacklevel + 1)
    else:
        messages.append(str(DamageWarning(message)))


@contextmanager
def collected_damage() -> Generator[list[str]]:
    """Collect messages of damage within the block, instead of warning. Other threads warn as before."""
    messages: list[str] = []
    token = _collected.set(messages)
    try:
        yield messages
    finally:
        _collected.reset(token)
