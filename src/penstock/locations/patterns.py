"""Names that stand for several files: braces such as `{000..009}` and `{a,b}`, and globs such as `*.tar`."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.core.order import natural
from penstock.errors import DataError
from penstock.locations.objects import shown
from penstock.locations.stores import object_store

MOST = 1 << 20
"""Names that one pattern may stand for."""

_BESIDE = ".certificate.json"
"""End of the names of files that are next to datasets and are none."""

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?")


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern with braces stands for, as a shell does."""
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


def _is_data(name: str, pattern: str) -> bool:
    return not name.endswith(_BESIDE) or pattern.endswith(_BESIDE)


def _too_many(pattern: str) -> DataError:
    return DataError(f"expected a pattern of at most {MOST:,} names, got {shown(pattern)!r}")


def local_glob(pattern: str) -> list[Path]:
    """Return the files and folders that match a glob, in natural order (2 before 10)."""
    names = glob.glob(pattern, recursive=True)
    matches = sorted((name for name in names if _is_data(name, pattern)), key=natural)
    if not matches:
        raise FileNotFoundError(f"nothing matches the pattern {pattern}")
    return [Path(name) for name in matches]


def url_glob(url: str, options: Mapping[str, Any] | None = None, commits: dict[str, str] | None = None) -> list[str]:
    """Return the URLs of the objects and folders that match a glob, in natural order. See `object_store`."""
    glob_parts = _url_glob(url)
    if glob_parts is None:
        return [url]
    before, base, pattern, after = glob_parts
    store = object_store(before + base + after, options, commits)
    names: set[str] = set()
    try:
        beginning = re.split(r"[*?\[]", pattern[0])[0]
        for info in store.list(beginning=beginning):
            parts = info.name.split("/")
            prefixes = (parts[:n] for n in range(1, len(parts) + 1))
            names.update("/".join(prefix) for prefix in prefixes if _matches(prefix, pattern))
    except FileNotFoundError as error:
        raise FileNotFoundError(_nothing(url)) from error
    names = {name for name in names if _is_data(name, pattern[-1])}
    if not names:
        raise FileNotFoundError(_nothing(url))
    quoted = quote if base.startswith("http") else str
    return [f"{before}{base.rstrip('/')}/{quoted(name)}{after}" for name in sorted(names, key=natural)]


def _nothing(url: str) -> str:
    hint = "; web servers that do not list folders need the names of all files" if url.startswith("http") else ""
    return f"nothing matches the pattern {shown(url)}{hint}"


def _url_glob(url: str) -> tuple[str, str, list[str], str] | None:
    """Return the text before the glob's URL, its folder without magic, the names of the pattern, and the text after."""
    links = url.split("::")
    place = next((i for i, link in enumerate(links) if "://" in link), len(links) - 1)
    scheme, mark, path = links[place].partition("://")
    query = ""
    if scheme in ("http", "https"):
        path, begins, rest = path.partition("?")
        query = begins + rest
    names = path.split("/")
    magic = "*[" if query or scheme in ("http", "https") else "*?["
    first = next((i for i, name in enumerate(names) if i and any(c in name for c in magic)), None)
    if first is None or not mark:
        return None
    before = "".join(f"{link}::" for link in links[:place])
    after = query + "".join(f"::{link}" for link in links[place + 1 :])
    return before, f"{scheme}://{'/'.join(names[:first])}", names[first:], after


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether names of folders and a file match the names of a glob."""
    if not pattern or not parts:
        return not pattern and not parts
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    hidden = parts[0].startswith(".") and not pattern[0].startswith(".")
    return not hidden and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
