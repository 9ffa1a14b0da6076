"""Names that stand for several files: braces such as `{000..009}` and `{a,b}`, and globs such as `*.tar`."""

from __future__ import annotations

import glob
import re
from itertools import pairwise
from pathlib import Path

from penstock.core.order import natural
from penstock.errors import DataError

MOST = 1 << 20
"""Names that one pattern may stand for."""

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?")


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern with braces stands for, as a shell does.

    Args:
        pattern: Any text. `{000..012}` counts, in steps with `{0..12..4}`; `{a,b}` lists, and may have braces inside.
            Other braces stay.

    Raises:
        DataError: The pattern stands for more than `MOST` names.

    Example:
        >>> expand_braces("shard-{08..10}.tar"), expand_braces("{train,test-{a,b}}"), expand_braces("{x}")
        (['shard-08.tar', 'shard-09.tar', 'shard-10.tar'], ['train', 'test-a', 'test-b'], ['{x}'])
    """
    names, done = [""], 0
    while (begin := pattern.find("{", done)) >= 0:
        parts = _parts(pattern, begin)
        choices = ["{"] if parts is None else _choices(parts, pattern)
        if len(names) * len(choices) > MOST:
            raise _too_many(pattern)
        names = [name + pattern[done:begin] + choice for name in names for choice in choices]
        done = begin + (1 if parts is None else sum(map(len, parts)) + len(parts) + 1)
    return [name + pattern[done:] for name in names]


def _parts(pattern: str, begin: int) -> list[str] | None:
    """Return the text between the brace at `begin` and its partner, split at commas, or None without a partner."""
    depth = 0
    cuts = [begin]
    for i in range(begin, len(pattern)):
        depth += (pattern[i] == "{") - (pattern[i] == "}")
        if depth == 0 or (depth == 1 and pattern[i] == ","):
            cuts.append(i)
        if depth == 0:
            return [pattern[a + 1 : b] for a, b in pairwise(cuts)]
    return None


def _choices(parts: list[str], pattern: str) -> list[str]:
    if len(parts) > 1:
        return [name for part in parts for name in expand_braces(part)]
    counted = _RANGE.fullmatch(parts[0])
    if counted is None:
        return [f"{{{name}}}" for name in expand_braces(parts[0])]
    first, last, step = counted.groups()
    low = int(first)
    high = int(last)
    by = int(step or 1) or 1
    if abs(high - low) // by >= MOST:
        raise _too_many(pattern)
    width = max(len(first), len(last)) if any(re.match(r"-?0\d", text) for text in (first, last)) else 0
    numbers = range(low, high + 1, by) if low <= high else range(low, high - 1, -by)
    return [f"{number:0{width}d}" for number in numbers]


def _too_many(pattern: str) -> DataError:
    return DataError(f"expected a pattern of at most {MOST:,} names, got {pattern!r}")


def local_glob(pattern: str) -> list[Path]:
    """Return the files and folders that match a glob, in natural order (2 before 10).

    Args:
        pattern: `*`, `?` and `[...]` match within a name, `**` matches any number of folders. Names that begin with a
            dot match only where the pattern has the dot.

    Raises:
        FileNotFoundError: Nothing matches.
    """
    found = sorted(glob.glob(pattern, recursive=True), key=natural)
    if not found:
        raise FileNotFoundError(f"nothing matches the pattern {pattern}")
    return [Path(name) for name in found]
