"""Normalize the fields of a frozen dataclass while it is created.

A frozen dataclass whose arguments have several forms (a list or a tuple, a name or a dtype) stores one form. Only
`__post_init__`, and functions that it calls, may use `set_fields`; a test checks that nothing else does.
"""

from __future__ import annotations

from typing import Any


def set_fields(instance: object, **values: Any) -> None:
    """Set fields of a frozen dataclass in its `__post_init__`.

    Args:
        instance: The dataclass.
        values: New value of each field.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Point:
        ...     place: tuple[int, ...]
        ...     def __post_init__(self):
        ...         set_fields(self, place=tuple(self.place))
        >>> Point([1, 2])
        Point(place=(1, 2))
    """
    for name, value in values.items():
        object.__setattr__(instance, name, value)
