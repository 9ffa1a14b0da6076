"""The episodes that files hold before any mark of ends is read: files that a pattern matches, or groups in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from penstock.core.order import in_natural_order
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.mapping.kinds import READABLE, refusal, suffix_of
from penstock.formats.mapping.rules import NAME, EpisodeMapping, Pattern

DEEPEST = 16  # levels of folders
LEFT_BEHIND = (".", "._", "Thumbs.db", "desktop.ini", ".DS_Store")
"""How names begin of files that systems write into folders, after that of all hidden files."""


@dataclass(frozen=True)
class Unit:
    """One file or its part `group`, and files of other columns with its names, by pattern; its own is empty."""

    texts: Mapping[str, str]
    files: Mapping[str, tuple[Path, ...]]
    group: str = ""

    def __str__(self) -> str:
        first = next(iter(self.files.values()))[0]
        return f"{first}:{self.group}" if self.group else str(first)


@dataclass(frozen=True)
class FoundFiles:
    """The units of a folder or a file, and the files that belong to none."""

    units: Sequence[Unit]
    left_out: Sequence[LeftOut]


def names_below(folder: Path, most: int | None = None) -> list[str]:
    """Return the files below a folder by their paths in it, in natural order. A Zarr store is one name."""
    return in_natural_order(islice(names_within(folder), most))


def names_within(folder: Path) -> Iterator[str]:
    """Yield the files below a folder as `names_below` does, in no order."""
    return _below(folder, "", frozenset())


def _below(folder: Path, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    status = os.stat(folder)
    place = status.st_dev, status.st_ino
    if place in above:
        return
    if len(above) > DEEPEST:
        raise FormatError(f"expected at most {DEEPEST} levels of folders", path=folder)
    inner: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.lower().endswith(".zarr") or not entry.is_dir():
                yield prefix + entry.name
            else:
                inner.append(entry.name)
    for name in inner:  # after the files, so that a look at some names sees those of all kinds
        yield from _below(folder / name, f"{prefix}{name}/", above | {place})


def found_files(root: Path, mapping: EpisodeMapping) -> FoundFiles:
    """Return the units of a mapping at a path, in natural order of their files."""
    if root.is_file() or root.suffix.lower() == ".zarr":
        return FoundFiles([Unit({}, {"": (root,)})], [])
    names = names_below(root)
    wanted = [name for name in names if not mapping.leaves_out(name) and not _is_hidden(name)]
    main = Pattern(mapping.files or _common_pattern(wanted, root))
    needs = {rule.files: False for rule in mapping.rules() if rule.files is not None}
    needs |= {rule.files: True for rule in (mapping.columns or {}).values() if rule.files and not rule.optional}
    needs |= dict.fromkeys(mapping.files_of_times, True)
    keys = [name for name in main.names if name != mapping.rows]
    tables = {files: _by_texts(Pattern(files), keys, mapping.rows, wanted) for files in needs}
    shared = {files: [name for name in keys if name in Pattern(files).names] for files in needs}
    units: list[Unit] = []
    used: set[str] = set()
    for texts, chosen in _by_texts(main, keys, mapping.rows, wanted).items():
        for mine in [chosen] if mapping.rows is not None else [[name] for name in chosen]:
            files = {"": tuple(root / name for name in mine)}
            used.update(mine)
            for key, table in tables.items():
                others = table.get(tuple(pair for pair in texts if pair[0] in shared[key]), [])
                if needs[key] and not others:
                    shown = Pattern(key).filled(dict(texts)).text
                    raise FormatError(f"expected files {shown!r} next to {mine[0]}, got none", path=root)
                files |= {key: tuple(root / name for name in others)} if others else {}
                used.update(others)
            units.append(Unit(dict(texts), files))
    if not units:
        raise FormatError(f"expected files {main.text!r}, got {_shown(names)}", path=root)
    rest = [name for name in names if name not in used and not mapping.leaves_out(name) and name != NAME]
    return FoundFiles(units, unused_files(rest, f"files {main.text!r}", LEFT_BEHIND))


def _is_hidden(name: str) -> bool:
    """Whether a file is one that copies and file managers leave behind."""
    return name.rpartition("/")[2].startswith(LEFT_BEHIND[1:])


def _by_texts(
    pattern: Pattern, keys: Sequence[str], rows: str | None, names: Sequence[str]
) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Files that a pattern matches, by the texts of some of its names; in the order of the numbers of `rows`."""
    shared = [name for name in keys if name in pattern.names]
    table: dict[tuple[tuple[str, str], ...], list[tuple[int, str]]] = {}
    for name in names:
        if (texts := pattern.match(name)) is not None:
            number = row_number(texts[rows], name) if rows is not None and rows in texts else 0
            table.setdefault(tuple((each, texts[each]) for each in shared), []).append((number, name))
    order = {key: sorted(some, key=lambda each: each[0]) for key, some in table.items()}  # stable: names are in order
    return {key: [name for _, name in some] for key, some in order.items()}


def row_number(text: str, name: str) -> int:
    if not text.isdecimal():
        raise FormatError(f"expected a number in the name of a file of one row, got {text!r} in {name}")
    return int(text)


def _common_pattern(names: Sequence[str], root: Path) -> str:
    """All files of the kind that a folder has, where it has one."""
    suffixes = {suffix: 0 for name in names if (suffix := suffix_of(name)) is not None}
    for name in names:
        if (suffix := suffix_of(name)) is not None:
            suffixes[suffix] += 1
    if not suffixes and (hint := refusal(names)) is not None:
        raise FormatError(hint, path=root)
    if not suffixes:
        raise FormatError(f"expected files that end in one of {list(READABLE)}, got {_shown(names)}", path=root)
    if len(suffixes) > 1:
        kinds = ", ".join(f"{counted(n, 'file')} *{suffix}" for suffix, n in suffixes.items())
        message = f'expected files of one kind, got {kinds}; say which are episodes, as in files = "*{min(suffixes)}"'
        raise FormatError(message, path=root)
    return f"**/*{next(iter(suffixes))}"


def _shown(names: Sequence[str]) -> str:
    if not names:
        return "an empty folder"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def grouped(unit: Unit, pattern: Pattern, leaves: Iterable[str]) -> list[Unit]:
    """Return a unit for each group of its file that a pattern matches, in natural order."""
    depth = pattern.text.count("/") + 1
    groups = dict.fromkeys("/".join(parts[:depth]) for leaf in leaves if len(parts := leaf.split("/", depth)) > depth)
    named = [(group, texts) for group in in_natural_order(groups) if (texts := pattern.match(group)) is not None]
    if not named:
        shown = in_natural_order(groups) or in_natural_order(leaves)
        message = f"expected groups {pattern.text!r}, got {_shown(shown)}"
        raise FormatError(message, path=unit.files[""][0])
    return [Unit({**unit.texts, **texts}, unit.files, group) for group, texts in named]
