"""The order of names that have numbers in them."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key that sorts names with their numbers as numbers, 2 before 10.

    >>> sorted(["demo_10", "demo_2", "demo_02", "a"], key=natural)
    ['a', 'demo_02', 'demo_2', 'demo_10']
    """
    parts = _DIGITS.split(name)
    return [(int(part[:400]), "") if i % 2 else (-1, part) for i, part in enumerate(parts)], name
