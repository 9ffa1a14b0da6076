"""Which files a dataset is: one archive, a folder of archives, or a pattern with braces."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.containers.tar.compress import is_archive
from penstock.errors import FormatError

SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tzst")
SHARDS = 1 << 20  # files that a pattern may stand for

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_DIGITS = re.compile(r"(\d+)")


def shards_of(path: Path) -> list[Path]:
    """The archives of a dataset, in natural order (2 before 10), or in the order of a pattern.

    Raises `FileNotFoundError` for a file that is not there, `FormatError` for a folder without archives.
    """
    if path.is_dir():
        found = sorted((p for p in path.iterdir() if _is_shard(p)), key=natural)
        if not found:
            raise FormatError(f"expected archives whose names end with {', '.join(SUFFIXES)}, found none", path=path)
        return found
    named = [Path(name) for name in expand(str(path))] if _BRACES.search(str(path)) and not path.exists() else [path]
    missing = [str(p) for p in named if not p.is_file()]
    if missing:
        raise FileNotFoundError(f"expected {len(named)} archives, {len(missing)} are not there, first {missing[0]}")
    return named


def has_shards(path: Path) -> bool:
    """Whether there is an archive at `path`, or in the folder there; never raises. Cost: a read of the first."""
    try:
        if not path.is_dir():
            return path.is_file() and is_archive(path)
        first = min((p for p in path.iterdir() if _is_shard(p)), key=natural, default=None)
    except OSError:
        return False
    return first is not None and is_archive(first)


def expand(pattern: str) -> Iterator[str]:
    """The names that a pattern with braces stands for: `{000..012}` counts, `{a,b}` lists.

    Raises `FormatError` for more than a million.

    >>> list(expand("shard-{08..10}.tar"))
    ['shard-08.tar', 'shard-09.tar', 'shard-10.tar']
    """
    parts = _BRACES.split(pattern)
    choices = [[part] if i % 2 == 0 else _choices(part, pattern) for i, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
        if count > SHARDS:
            raise FormatError(f"expected a pattern of at most {SHARDS} shards, got {pattern!r}")
    return ("".join(chosen) for chosen in itertools.product(*choices))


def natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """A sorting key by which numbers in names count as numbers.

    >>> sorted(map(Path, ["s-10.tar", "s-9.tar"]), key=natural)[0].name
    's-9.tar'
    """
    parts = _DIGITS.split(path.name)
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(parts)], path.name


def _choices(inside: str, pattern: str) -> list[str]:
    counted = _RANGE.fullmatch(inside)
    if counted is None:
        return inside.split(",")
    first, last = counted.groups()
    if int(last) - int(first) >= SHARDS:
        raise FormatError(f"expected a pattern of at most {SHARDS} shards, got {pattern!r}")
    return [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]


def _is_shard(path: Path) -> bool:
    return path.name.endswith(SUFFIXES) and not path.name.startswith(".") and path.is_file()
