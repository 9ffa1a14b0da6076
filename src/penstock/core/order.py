"""The order of names that have numbers in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_DIGITS = re.compile(r"0*([0-9]+)")
_ZEROS = str.maketrans("123456789", "000000000")
_END = "\0\0"  # behind a key: less than every character of a name, and than the mark of a number


def natural(name: str) -> str:
    """Return a key that sorts names with their numbers as numbers, 2 before 10.

    A number is its count of digits and its digits, behind a zero character, which no name has. So a number comes before
    all characters, as the end of a name does. Names with equal keys, such as `a2` and `a02`, are sorted as text.
    """
    return f"{_DIGITS.sub(_number, name)}{_END}{name}"


def _number(match: re.Match[str]) -> str:
    digits = match[1]
    return f"\0{chr(min(len(digits), 0xD7FF))}{digits}"


def in_natural_order(names: Iterable[str]) -> list[str]:
    """Return names sorted by `natural`. Names that differ in their digits alone are sorted as text, which is faster."""
    listed = list(names)
    alike = len({name.translate(_ZEROS) for name in listed}) == 1
    return sorted(listed) if alike else sorted(listed, key=natural)
