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
from penstock.formats.mapping.kinds import READABLE, suffix_of
from penstock.formats.mapping.rules import NAME, EpisodeMapping, Pattern

DEEPEST = 16  # levels of folders


@dataclass(frozen=True)
class Unit:
    """Files that belong together: one file with an episode or some, and files of other columns with its names.

    `files` has the files of each pattern; the empty pattern is the file itself. `group` is the group in the file.
    """

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
    """Return the files below a folder by their paths in it, in natural order. A Zarr store is one name.

    Links to folders are followed, except to those above. Cost: lists all folders, up to `most` files.
    """
    return in_natural_order(islice(_below(folder, "", frozenset()), most))


def _below(folder: Path, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[str]:
    status = os.stat(folder)
    place = status.st_dev, status.st_ino
    if place in above:
        return
    if len(above) > DEEPEST:
        raise FormatError(f"expected at most {DEEPEST} levels of folders", path=folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.name.lower().endswith(".zarr") or not entry.is_dir():
                yield name
            else:
                yield from _below(folder / entry.name, f"{name}/", above | {place})


def found_files(root: Path, mapping: EpisodeMapping) -> FoundFiles:
    """Return the units of a mapping at a path, in natural order of their files.

    Raises `FormatError` where a pattern matches nothing, with the files instead.
    """
    if root.is_file() or root.suffix.lower() == ".zarr":
        return FoundFiles([Unit({}, {"": (root,)})], [])
    names = names_below(root)
    patterns = {"": mapping.files or _common_pattern(names, root)}
    patterns |= {text: text for text in mapping.other_files}
    units: list[Unit] = []
    used: set[str] = set()
    main = Pattern(patterns.pop(""))
    others = {key: _by_texts(Pattern(text), main, names) for key, text in patterns.items()}
    shared = {key: [name for name in main.names if name in Pattern(text).names] for key, text in patterns.items()}
    for texts, chosen in _by_texts(main, main, names).items():
        for name in chosen:
            files: dict[str, tuple[Path, ...]] = {"": (root / name,)}
            used.add(name)
            for key, table in others.items():
                mine = table.get(tuple(pair for pair in texts if pair[0] in shared[key]))
                if not mine:
                    shown = Pattern(key).filled(dict(texts)).text
                    raise FormatError(f"expected files {shown!r} next to {name}, got none", path=root)
                files[key] = tuple(root / each for each in mine)
                used.update(mine)
            units.append(Unit(dict(texts), files))
    if not units:
        raise FormatError(f"expected files {main.text!r}, got {_shown(names)}", path=root)
    rest = [name for name in names if name not in used and not mapping.leaves_out(name) and name != NAME]
    return FoundFiles(units, unused_files(rest, f"files {main.text!r}"))


def _by_texts(pattern: Pattern, main: Pattern, names: Sequence[str]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Files that a pattern matches, by the texts of the names that it shares with the main pattern."""
    shared = [name for name in main.names if name in pattern.names]
    table: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in names:
        if (texts := pattern.match(name)) is not None:
            table.setdefault(tuple((each, texts[each]) for each in shared), []).append(name)
    return table


def _common_pattern(names: Sequence[str], root: Path) -> str:
    """All files of the kind that a folder has, where it has one."""
    suffixes = {suffix: 0 for name in names if (suffix := suffix_of(name)) is not None}
    for name in names:
        if (suffix := suffix_of(name)) is not None:
            suffixes[suffix] += 1
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
