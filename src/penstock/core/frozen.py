"""Normalize the fields of a frozen dataclass while it is created.

A frozen dataclass whose arguments have several forms (a list or a tuple, a name or a dtype) stores one form. Only
`__post_init__`, and functions that it calls, may use `set_fields`; a test checks that nothing else does.
"""

from __future__ import annotations

from typing import Any


def set_fields(instance: object, **values: Any) -> None:
    """Set fields of a frozen dataclass in its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
