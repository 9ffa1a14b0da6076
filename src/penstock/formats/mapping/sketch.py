"""A look at data that no format knows: the arrays of the first files, and a guess of the mapping that opens them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from penstock.core.order import in_natural_order
from penstock.core.text import counted
from penstock.errors import PenstockError
from penstock.files import write_atomic
from penstock.formats.mapping.columns import NAMES, known_name
from penstock.formats.mapping.kinds import IMAGES, VIDEOS, is_of_package, refusal, suffix_of, tree_of
from penstock.formats.mapping.rules import NAME, ColumnRule, EpisodeMapping, Pattern, toml_of
from penstock.formats.mapping.tree import TreeGuess, TreeLeaf
from penstock.formats.mapping.units import names_below

LOOKS = 5  # files whose content is looked at
MOST_FILES = 20_000  # names of a folder that a look takes in
SHOWN = 12  # arrays of a file that a sentence names
MOST = 64 << 20  # bytes of a file that a look decodes whole
STORED = (".npy", ".npz", ".h5", ".hdf5", ".hdf", ".he5", ".zarr", ".zarr.zip", ".safetensors", *IMAGES)
DOCUMENTS = (".json", ".yaml", ".yml")  # whose single values say what an episode is
_NUMBER = re.compile(r"\d+")
_LETTERS = "nmkabcdefgh"


@dataclass(frozen=True)
class Look:
    """The arrays of one file, or the reason why it cannot be read."""

    name: str
    leaves: Mapping[str, TreeLeaf]
    error: str | None = None
    guess: TreeGuess | None = None
    values: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def rank(self) -> tuple[bool, int]:
        """How likely it has the steps of an episode: arrays rather than media, and many of them."""
        return suffix_of(self.name) not in (*IMAGES, *VIDEOS), len(self.leaves)

    @property
    def steps(self) -> int:
        """Rows that most of its arrays have."""
        return Counter(leaf.rows for leaf in self.leaves.values()).most_common(1)[0][0] if self.leaves else 0

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.name} cannot be read: {self.error}"
        rows = self.rows()
        listed = ", ".join(f"{name}: {shown}" for name, shown in rows[:SHOWN])
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        single = f"the values {', '.join(self.values)}" if self.values else ""
        return f"{self.name} has {' and '.join(filter(None, (listed + more, single))) or 'no arrays'}"

    def rows(self) -> list[tuple[str, str]]:
        """Return names and types of the arrays; groups that are alike are shown once."""
        listed = [(name, str(leaf)) for name, leaf in self.leaves.items()]
        listed += [(name, f"one value, {value!r}"[:60]) for name, value in self.values.items()]
        if (group := _group_in(self.leaves)) is None:
            return listed
        template, first, number = group
        inside = [(name[len(first) :], shown) for name, shown in listed if name.startswith(first)]
        others = [row for row in listed if Pattern(template).match(_folder(row[0], template)) is None]
        return [(f"{template}/{name}", f"{shown} in the first of {number:,} groups") for name, shown in inside] + others


@dataclass(frozen=True)
class Sketch:
    """Files and arrays at a path that no format knows."""

    path: Path
    names: Sequence[str]
    looks: Sequence[Look]

    @classmethod
    def of(cls, path: Path) -> Sketch:
        """Look at a file, or at the first files of each kind in a folder. Cost: the headers of some files."""
        if not path.is_dir() or path.suffix.lower() == ".zarr":
            return cls(path, [path.name], [_look(path, path.name)])
        names = names_below(path, MOST_FILES)
        firsts: list[str] = []
        seen: Counter[str | None] = Counter()
        for name in names:
            folder, _, last = name.rpartition("/")
            key = f"{folder.count('/')} {_template(last)[0]}"  # folders of one depth hold the same
            if suffix_of(name) is not None and not seen[key] and len(firsts) < LOOKS:
                firsts.append(name)
            seen[key] += 1
        return cls(path, names, [_look(path / name, name) for name in firsts])

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """Number of files by the ending of their names."""
        counts = Counter(suffix_of(name) or Path(name).suffix.lower() or "no ending" for name in self.names)
        return dict(counts.most_common())

    @property
    def contents(self) -> str:
        """Sentences: how many files of which kinds, and the arrays of the first."""
        if not self.names:
            return "the folder is empty"
        counts = ", ".join(f"{n} {kind}" for kind, n in list(self.kinds.items())[:6])
        more = len(self.kinds) - 6
        number = (
            f"{len(self.names):,} files or more" if len(self.names) == MOST_FILES else counted(len(self.names), "file")
        )
        files = f"{number}: {counts}" + (f" and {more} other kinds" if more > 0 else "")
        looks = [str(look) for look in self.looks]
        return "; ".join([files, *looks] if self.path.is_dir() else looks)

    @property
    def advice(self) -> str:
        """The two ways out, with calls that are filled in."""
        arrays = 'penstock.from_arrays({"observations": ..., "actions": ...}, lengths=[...]) takes arrays of your own'
        if self.guess is None:
            hint = refusal(self.names)
            return arrays if hint is None else f"{hint}; or {arrays}"
        written = f"or write that to a file with `penstock adopt {self.path}`"
        return f"open it with a mapping, as {self.call}, {written}; {arrays}"

    @property
    def call(self) -> str:
        """The call of `penstock.open` with the guessed mapping."""
        entries = {} if self.guess is None else self.guess.to_json()
        given = "".join(f", {name}={value!r}" for name, value in entries.items())
        return f"penstock.open({str(self.path)!r}, format='mapping'{given})"

    @cached_property
    def guess(self) -> EpisodeMapping | None:
        """The mapping that opens the data, or None if nothing was read."""
        readable = [look for look in self.looks if look.leaves]
        if not readable:
            return None
        if not self.path.is_dir():
            return _guess_in_file(readable[0], None)
        return self._guess_in_folder(readable)

    def _guess_in_folder(self, readable: Sequence[Look]) -> EpisodeMapping:
        """The mapping of files of one kind; or of files that have a column each, next to each other."""
        templates: dict[str, list[str]] = {}
        for name in self.names:
            if suffix_of(name) is not None:
                templates.setdefault(_template(name)[0], []).append(name)
        single = {look.name: look for look in readable if len(look.leaves) == 1}
        per_column = {template: names for template, names in templates.items() if len({*names} & {*single}) == 1}
        if len(per_column) > 1 and len({_template(names[0])[1] for names in per_column.values()}) == 1:
            return _guess_of_pairs(per_column)
        main = max(readable, key=lambda look: look.rank)  # the first of those of the highest rank
        if main.guess is not None:
            return _guess_in_file(main, _pattern(templates))
        template = next(template for template, names in templates.items() if main.name in names)
        alike = {each: names for each, names in templates.items() if suffix_of(names[0]) == suffix_of(main.name)}
        files = template if len(templates[template]) > 1 else _pattern(alike)
        guess = _guess_in_file(main, files)
        return self._with_neighbours(guess, main, files) if files == template else guess

    def _with_neighbours(self, guess: EpisodeMapping, main: Look, files: str) -> EpisodeMapping:
        """Add what the files have that belong to the same episodes: pictures, video, and values of documents."""
        columns, metadata = dict(guess.columns or {}), dict(guess.metadata)
        for look in self.looks:
            neighbour = _template(look.name)[0]
            folder, slash, last = neighbour.rpartition("/")
            if look is main or folder != files.rpartition("/")[0]:
                continue
            stem = "_".join(re.findall(r"[A-Za-z]+", re.sub(r"\{\w\}", "", last.partition(".")[0]))) or "pictures"
            names = (known_name(stem), stem, f"{stem}_files", look.name)
            column = next(each for each in names if each not in columns)
            if suffix_of(look.name) in IMAGES:
                row = ColumnRule(files=f"{folder}{slash}" + re.sub(r"\{\w\}", "*", last))
                beside = Pattern(f"{look.name.rpartition('/')[0]}{slash}" + re.sub(r"\{\w\}", "*", last))
                if sum(beside.match(name) is not None for name in self.names) in (main.steps, main.steps + 1):
                    columns[column] = row
            elif set(Pattern(neighbour).names) <= set(Pattern(files).names):
                if suffix_of(look.name) in VIDEOS and look.steps in (main.steps, main.steps + 1):
                    columns[column] = ColumnRule(files=neighbour)
                elif look.values:
                    metadata["{key}"] = ColumnRule(("{key}",), files=neighbour)
        return replace(guess, columns=columns, metadata=metadata)

    def write(self, target: Path) -> None:
        """Write the guess to a file. Raises `FileExistsError` if there is one."""
        if target.exists():
            raise FileExistsError(f"expected no file at {target}; edit it, or name another with --out")
        if self.guess is not None:
            write_atomic(target, toml_of(self.guess).encode())

    @property
    def target(self) -> Path:
        """Where `penstock adopt` writes the mapping: into the folder, or next to the file."""
        return self.path / NAME if self.path.is_dir() else self.path.with_suffix(".toml")


def _look(path: Path, name: str) -> Look:
    try:
        suffix = suffix_of(name)
        if suffix not in STORED and not is_of_package(suffix) and path.is_file() and path.stat().st_size > MOST:
            return Look(name, {}, f"it is larger than {MOST >> 20} MB, and is not decoded for a look")
        tree = tree_of([path])
        return Look(name, tree.leaves, guess=tree.guess, values=tree.values if suffix in DOCUMENTS else {})
    except (PenstockError, OSError) as error:
        return Look(name, {}, str(error).partition(" - at ")[0][:200])


def _template(name: str) -> tuple[str, int]:
    """The path with a letter for each number but those in its ending, as in `run_{n}.csv`, and how many there are."""
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.partition(".")
    numbers = _NUMBER.findall(f"{folder}{slash}{stem}")[: len(_LETTERS)]
    letters = iter(_LETTERS)
    filled = _NUMBER.sub(lambda _: f"{{{next(letters)}}}", f"{folder}{slash}{stem}", count=len(numbers))
    return (filled if numbers else f"{folder}{slash}{stem}") + dot + ending, len(numbers)


def _pattern(templates: Mapping[str, Sequence[str]]) -> str:
    """The pattern of files with a template in common, or of all files of the commonest kind."""
    template, names = max(templates.items(), key=lambda item: len(item[1]))
    if len(names) > 1:
        return template
    kinds = Counter(suffix_of(name) for some in templates.values() for name in some)
    kind = kinds.most_common(1)[0][0]
    nested = any("/" in name for some in templates.values() for name in some)
    return names[0] if len(templates) == 1 else f"{'**/' if nested else ''}*{kind}"


def _guess_of_pairs(per_column: Mapping[str, Sequence[str]]) -> EpisodeMapping:
    """Files with one array each, which belong together by their numbers: the main one has the actions."""
    columns: dict[str, ColumnRule] = {}
    main = ""
    for template in per_column:
        words = [word for word in re.split(r"[^A-Za-z]+", re.sub(r"\{\w\}", "", template.partition(".")[0])) if word]
        column = next(
            (known for word in reversed(words) if (known := known_name(word)) in NAMES.values()), "_".join(words)
        )
        columns[column] = ColumnRule(files=template)
        main = template if column == "actions" or not main else main
    return EpisodeMapping(files=main, columns=columns)


def _guess_in_file(look: Look, files: str | None) -> EpisodeMapping:
    if look.guess is not None:
        return EpisodeMapping.of({"files": files, **look.guess.entries})
    group = _group_in(look.leaves)
    prefix = len(group[1]) if group is not None else 0
    leaves = {name[prefix:]: leaf for name, leaf in look.leaves.items() if group is None or name.startswith(group[1])}
    return EpisodeMapping(files=files, group=None if group is None else group[0], columns=_guess_columns(leaves))


def _folder(name: str, template: str) -> str:
    """As many of the first parts of a path as a pattern has."""
    return "/".join(name.split("/")[: template.count("/") + 1])


def _group_in(leaves: Mapping[str, TreeLeaf]) -> tuple[str, str, int] | None:
    """The pattern of groups that each have an episode, the path of the first of them, and how many there are."""
    folders: dict[str, set[str]] = {}
    for name in leaves:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folders.setdefault("/".join(parts[:depth]), set()).add("/".join(parts[depth:]))
    templates: dict[str, list[str]] = {}
    for folder in folders:
        templates.setdefault(_NUMBER.sub("{n}", folder, count=1), []).append(folder)
    for template, alike in templates.items():
        if template.count("{n}") == 1 and len(alike) > 1 and len({frozenset(folders[each]) for each in alike}) == 1:
            return template, f"{in_natural_order(alike)[0]}/", len(alike)
    return None


def _guess_columns(leaves: Mapping[str, TreeLeaf]) -> dict[str, ColumnRule]:
    """Arrays by the names that are known; numbered arrays of one number a row together; others by their own names."""
    columns: dict[str, ColumnRule] = {}
    families: dict[str, list[str]] = {}
    for name, leaf in leaves.items():
        numbered = re.fullmatch(r"(.*?[^\d])[._\[ -]?(\d+)\]?", _without_unit(name))
        if numbered is not None and leaf.field.kind == "array" and leaf.field.shape == ():
            families.setdefault(numbered[1].rstrip("._[ -"), []).append(name)
    together = {name for family in families.values() if len(family) > 1 for name in family}
    for name in leaves:
        if name not in together:
            column = name if (known := known_name(_without_unit(name))) not in NAMES.values() else known
            columns[name if column in columns else column] = ColumnRule((name,))
    for stem, family in families.items():
        if len(family) > 1:
            column = known_name(stem)
            columns[stem if column in columns else column] = ColumnRule(tuple(family))
    return columns


def _without_unit(name: str) -> str:
    """`time [s]` and `J1 (rad)` without what stands in brackets at the end."""
    return re.sub(r"\s+(\[[^\]]*\]|\([^)]*\))$", "", name)
