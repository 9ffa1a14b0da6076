"""`Mapping` in a file or as keyword arguments: which files are episodes, and which of their arrays are which columns.

A pattern names files, groups in files, or arrays. `*` is any text without `/`, and `{name}` is the same with a name:
equal names are equal texts; `{**name}/` is any folders. The file of a mapping is TOML, and says its version:
`penstock_mapping = 1`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.narrowing import is_list, is_listed, is_mapping, is_tuple
from penstock.core.spec import ALIGNS, Align
from penstock.errors import ArgumentError, FormatError
from penstock.files.remote import read_text
from penstock.formats.base.ends import MEANINGS, Meaning
from penstock.formats.mapping.clocks import Clock, JoinRule, TimesRule, check_names, check_rule, is_seconds
from penstock.formats.mapping.held import CsvOptions

VERSION = "penstock_mapping"
NAME = "penstock.toml"
TABLES = ("columns", "metadata", "ends", "clock", "csv", "notes")
_GROUP = re.compile(r"\{(\w+)\}|\{\*\*(\w+)\}/|(\*\*/)|(\*)|(\?)")


class Pattern:
    """Text with `{name}`, `*`, `**/` and `?`. Names match text without `/`; `**/` and `{**name}/` any folders."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def names(self) -> list[str]:
        """Names, each once, in order."""
        named = (match[1] or match[2] for match in _GROUP.finditer(self.text))
        return list(dict.fromkeys(name for name in named if name))

    @property
    def is_plain(self) -> bool:
        """Whether it matches itself alone."""
        return _GROUP.search(self.text) is None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        parts: list[str] = []
        seen: set[str] = set()
        end = 0
        for match in _GROUP.finditer(self.text):
            parts.append(re.escape(self.text[end : match.start()]))
            end = match.end()
            if match[1] in seen:
                parts.append(f"(?P={match[1]})")
            elif match[1]:
                seen.add(match[1])
                parts.append(f"(?P<{match[1]}>[^/]+)")
            elif match[2]:
                parts.append(f"(?:(?P<{match[2]}>[^/]+(?:/[^/]+)*)/)?")
            else:
                parts.append("(?:[^/]+/)*" if match[3] else "[^/]*" if match[4] else "[^/]")
        return re.compile("".join([*parts, re.escape(self.text[end:])]))

    def match(self, text: str) -> dict[str, str] | None:
        """Return the text of each name, or None if the pattern does not match all of a text."""
        matches = self._expression.fullmatch(text)
        return None if matches is None else matches.groupdict("")

    def filled(self, texts: Mapping[str, str]) -> Pattern:
        """Return the pattern with the texts of some names in their places."""

        def text(match: re.Match[str]) -> str:
            if match[2] in texts:
                return f"{texts[match[2]]}/" if texts[match[2]] else ""
            return texts.get(match[1], match[0])

        return Pattern(_GROUP.sub(text, self.text))


Dropped = int | Mapping[str, str]
"""Rows; or one row in episodes where the text of a name sorts before another, as in `{date = "2021-07-23"}`."""


@dataclass(frozen=True)
class ColumnRule:
    """Where the rows of a column are, and what becomes of them. docs/howto/own_data.md describes the entries."""

    arrays: tuple[str, ...] = ()
    otherwise: str | None = None
    files: str | None = None
    align: Align | None = None
    dtype: str | None = None
    unit: str | None = None
    at: int | tuple[int, ...] | None = None
    bits: str | tuple[int, ...] | None = None
    rgb: str | None = None
    scale: float | None = None
    drop_first: Dropped = 0
    drop_last: Dropped = 0
    without: str | None = None
    optional: bool = False
    times: TimesRule | None = None
    rule: JoinRule | None = None
    within: float | None = None

    @classmethod
    def of(cls, column: str, given: object) -> ColumnRule:
        """Return the rule that a text, a list of texts or a table states. Raises `ArgumentError`."""
        if isinstance(given, ColumnRule):
            return given
        if isinstance(given, str):
            return cls((given,))
        if is_list(given) and given and all(isinstance(name, str) for name in given):
            return cls(tuple(given))
        if not is_mapping(given):
            example = f'"{column}" = "obs", ["x", "y"] or {{from = "obs", dtype = "float32"}}'
            raise ArgumentError(f"expected the arrays of the column {column!r}, as in {example}, got {given!r}")
        entries: dict[str, Any] = {str(key): value for key, value in given.items()}
        known = ["from", *(each.name for each in fields(cls) if each.name != "arrays")]
        check_names(entries, known, f"the column {column!r}")
        names = entries.pop("from", [])
        arrays = [names] if isinstance(names, str) else names
        texts = [entries.get(name, "") for name in ("files", "dtype", "unit", "otherwise", "without")]
        if not is_list(arrays) or not all(isinstance(text, str) for text in (*arrays, *texts)):
            raise ArgumentError(f'expected texts for the column {column!r}, as in {{from = "obs"}}, got {given!r}')
        if entries.get("times") is not None:
            entries["times"] = TimesRule.of(entries["times"], f"the column {column!r}")
        rule = cls(tuple(arrays), **_with_tuples(entries))
        rule._check(column)
        return rule

    @property
    def is_timed(self) -> bool:
        """Whether it says something for a clock."""
        return self.times is not None or self.rule is not None or self.within is not None

    def _check(self, column: str) -> None:
        if self.align is not None and self.align not in ALIGNS:
            raise ArgumentError(f"expected align of the column {column!r} among {list(ALIGNS)}, got {self.align!r}")
        if self.dtype is not None:
            try:
                np.dtype(self.dtype)
            except TypeError as error:
                raise ArgumentError(f"expected a dtype for the column {column!r}, got {self.dtype!r}") from error
        if self.rule is not None:
            check_rule(self.rule, f"the column {column!r}")
        if self.within is not None and not is_seconds(self.within, or_zero=True):
            message = f"expected within of the column {column!r}: the seconds that a row may be away from its step"
            raise ArgumentError(f"{message}, got {self.within!r}")
        if not self.arrays and self.files is None:
            raise ArgumentError(f'expected `from` or `files` for the column {column!r}, as in {{from = "obs"}}')
        if self.rgb not in (None, "big", "little"):
            raise ArgumentError(f"expected rgb of the column {column!r} 'big' or 'little', got {self.rgb!r}")
        if isinstance(self.bits, str) and self.bits != "square":
            raise ArgumentError(f"expected bits of the column {column!r} 'square' or a shape, got {self.bits!r}")
        for name in ("at", "bits", "scale"):
            value: Any = getattr(self, name)
            numbers: Any = value if is_tuple(value) else (value,)
            kinds = (int, float) if name == "scale" else (int,)
            if value not in (None, "square") and not all(isinstance(number, kinds) for number in numbers):
                raise ArgumentError(f"expected numbers for {name} of the column {column!r}, got {value!r}")
        for name in ("drop_first", "drop_last"):
            rows: Any = getattr(self, name)
            if not (isinstance(rows, int) and rows >= 0) and not (is_mapping(rows) and len(rows) == 1):
                example = f'{name} = 1 or {{date = "2021-07-23"}}'
                raise ArgumentError(f"expected {example} in the column {column!r}, got {rows!r}")

    def dropped(self, texts: Mapping[str, str]) -> tuple[int, int]:
        """Return how many rows at both ends of each episode are none, in files with these texts of names."""
        return _dropped(self.drop_first, texts), _dropped(self.drop_last, texts)


def _with_tuples(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if is_list(value) else value for name, value in entries.items()}


def _dropped(rows: Dropped, texts: Mapping[str, str]) -> int:
    if not is_mapping(rows):
        return int(rows)
    return int(any(name in texts and texts[name] < str(limit) for name, limit in rows.items()))


@dataclass(frozen=True)
class EpisodeMapping:
    """Which files are episodes, and which of their arrays are which columns. See docs/howto/own_data.md."""

    files: str | None = None
    rows: str | None = None
    group: str | None = None
    id: str | None = None
    ends: Mapping[str, Meaning] = field(default_factory=dict[str, Meaning])
    lengths: int | tuple[int, ...] | None = None
    ranges: ColumnRule | None = None
    whole_files: bool = False
    ring: ColumnRule | None = None
    padding: int = 0
    columns: Mapping[str, ColumnRule] | None = None
    metadata: Mapping[str, ColumnRule] = field(default_factory=dict[str, ColumnRule])
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    leave_out: tuple[str, ...] = ()
    rate: float | None = None
    clock: Clock | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> EpisodeMapping:
        """Return the mapping of keyword arguments, or of the tables of a file. Raises `ArgumentError`."""
        entries = dict(given)
        check_names(entries, [each.name for each in fields(cls)], "a mapping")
        for name, kinds in _KINDS.items():
            if name in entries and not isinstance(entries[name], kinds):
                raise ArgumentError(f"expected {_EXAMPLES[name]}, got {name} = {entries[name]!r}")
        columns: dict[str, ColumnRule] = {}
        for table in ("columns", "metadata"):
            if (given_rules := entries.get(table)) is not None:
                entries[table] = {str(name): ColumnRule.of(str(name), rule) for name, rule in given_rules.items()}
                columns = entries[table] if table == "columns" else columns
        for name in ("ranges", "ring"):
            if (rule := entries.get(name)) is not None:
                entries[name] = ColumnRule.of(name, rule)
        if wrong := [name for name, meaning in entries.get("ends", {}).items() if meaning not in MEANINGS]:
            raise ArgumentError(f"expected {_EXAMPLES['ends']}, got {entries['ends'][wrong[0]]!r} for {wrong[0]!r}")
        _check_clock(entries, columns)
        if "csv" in entries:
            check_names(entries["csv"], [each.name for each in fields(CsvOptions)], "the table csv")
            entries["csv"] = _csv_options(entries["csv"])
        for name in ("lengths", "leave_out"):
            if is_listed(entries.get(name)):
                entries[name] = tuple(entries[name])
        mapping = cls(**entries)
        mapping._check_together()
        return mapping

    def _check_together(self) -> None:
        """Raise `ArgumentError` for entries of which one would be ignored."""
        of_rows = [name for name in ("lengths", "ranges", "ring", "padding") if getattr(self, name)]
        if len(of_rows) > 1 and of_rows != ["ring", "padding"]:
            raise ArgumentError(f"expected one of lengths, ranges, and a ring with or without padding, got {of_rows}")
        columns = (self.columns or {}).items()
        if unused := [name for name, rule in columns if rule.without is not None]:
            raise ArgumentError(f"expected `without` for metadata, which are not rows, got it for {unused[0]!r}")
        for name, rule in self.metadata.items():
            plain = ColumnRule(rule.arrays, otherwise=rule.otherwise, files=rule.files, without=rule.without)
            if rule != plain:
                raise ArgumentError(f"expected from, otherwise, files and without for metadata, got {name} = {rule}")

    @classmethod
    def at(cls, path: Path) -> EpisodeMapping:
        """Return the mapping in a file. Raises `FormatError`."""
        try:
            text = read_text(path)
            entries = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"expected TOML, got {error}", path=path) from error
        if entries.pop(VERSION, None) != 1:
            raise FormatError(f"expected `{VERSION} = 1`, which says that this is a mapping of version 1", path=path)
        try:
            return cls.of(entries)
        except ArgumentError as error:
            raise FormatError(str(error), path=path) from error

    @property
    def files_of_times(self) -> list[str]:
        """Patterns of the files that have times of other files."""
        clock = self.clock
        times = [rule.times for rule in (self.columns or {}).values()]
        times += [] if clock is None else [clock.times, clock.starts, clock.stops]
        return [each.files for each in times if each is not None and each.files is not None]

    @property
    def steps_a_second(self) -> float | None:
        """The rate of the steps, as the mapping or its clock says."""
        reference = None if self.clock is None else self.clock.reference
        return reference if self.rate is None and not isinstance(reference, str) else self.rate

    @cached_property
    def digest(self) -> str:
        """Digest of everything that the mapping says."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the mapping as plain values, for `of`."""
        entries: dict[str, Any] = {
            each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default
        }
        for name, rules in (("columns", self.columns), ("metadata", self.metadata)):
            if rules is not None:
                entries[name] = {column: rule_entries(rule) for column, rule in rules.items()}
        for name, rule in (("ranges", self.ranges), ("ring", self.ring)):
            if rule is not None:
                entries[name] = rule_entries(rule)
        if self.clock is not None:
            entries["clock"] = self.clock.to_json()
        csv = {each.name: getattr(self.csv, each.name) for each in fields(CsvOptions)}
        entries["csv"] = {name: value for name, value in csv.items() if value != getattr(CsvOptions(), name)}
        entries |= {"ends": dict(self.ends), "notes": dict(self.notes)}
        for name in ("lengths", "leave_out"):
            if is_tuple(listed := entries.get(name)):
                entries[name] = list(listed)
        return {name: value for name, value in entries.items() if value not in ({}, None)}

    def leaves_out(self, name: str) -> bool:
        """Whether an array or file is not wanted."""
        return any(pattern.match(name) is not None for pattern in self._unwanted)

    def rules(self) -> Iterator[ColumnRule]:
        """Yield all rules: of columns, of metadata, and of what says where episodes are."""
        yield from (self.columns or {}).values()
        yield from self.metadata.values()
        yield from (rule for rule in (self.ranges, self.ring) if rule is not None)

    @cached_property
    def _unwanted(self) -> list[Pattern]:
        return [Pattern(pattern) for pattern in self.leave_out]


def _check_clock(entries: dict[str, Any], columns: Mapping[str, ColumnRule]) -> None:
    """Read the clock, which decides alone which rows are steps, and which columns alone say something for."""
    if entries.get("clock") is None:
        if timed := [name for name, rule in columns.items() if rule.is_timed]:
            example = f'clock = {{reference = "{timed[0]}", within = 0.1}}'
            raise ArgumentError(f"expected a clock for the times of the column {timed[0]!r}, as in {example}")
        return
    entries["clock"] = Clock.of(entries["clock"])
    used = [name for name in ("ends", "lengths", "ranges", "whole_files", "ring", "padding") if entries.get(name)]
    used += [
        f"drop_first or drop_last of {name!r}" for name, rule in columns.items() if rule.drop_first or rule.drop_last
    ]
    if used:
        raise ArgumentError(f"expected gap, starts or stops in the clock, or id, got {used[0]} with a clock")


def _csv_options(given: Mapping[str, Any]) -> CsvOptions:
    options: dict[str, Any] = {**given, "text": tuple(given.get("text", ()))}
    separator, rows = options.get("separator"), options.get("skip_rows", 0)
    is_text = separator is None or (isinstance(separator, str) and len(separator) == 1)
    if not is_text or not isinstance(rows, int) or not isinstance(options.get("header", True), bool):
        example = '{separator = ";", header = true, skip_rows = 0, text = ["id"]}'
        raise ArgumentError(f"expected csv as in {example}, got {dict(given)!r}")
    return CsvOptions(**options)


def rule_entries(rule: ColumnRule) -> Any:
    """Return the shortest form of a rule: a text, a list, or a table."""
    given = {"from": rule.arrays[0] if len(rule.arrays) == 1 else list(rule.arrays)} if rule.arrays else {}
    others: dict[str, Any] = {}
    for each in fields(ColumnRule)[1:]:
        if (value := getattr(rule, each.name)) != each.default:
            value = value.to_json() if isinstance(value, TimesRule) else value
            others[each.name] = list(value) if is_tuple(value) else value
    return {**given, **others} if others or not given else given["from"]


def toml_of(mapping: EpisodeMapping) -> str:
    entries = mapping.to_json()
    tables = {name: entries.pop(name) for name in TABLES if name in entries}
    lines = [f"{VERSION} = 1", *(f"{name} = {_toml(value)}" for name, value in entries.items())]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _toml(name)


def _toml(value: Any) -> str:
    if is_mapping(value):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if is_list(value):
        return "[" + ", ".join(map(_toml, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)  # escapes of JSON are those of TOML, but for pairs of surrogates
    return text.replace("\x7f", "\\u007f")


_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("files", "rows", "group", "id"), (str, type(None))),
    **dict.fromkeys(("ends", "csv", "metadata", "notes"), Mapping),
    "columns": (Mapping, type(None)),
    "leave_out": (list, tuple, type(None)),
    "lengths": (int, list, tuple, type(None)),
    "whole_files": bool,
    "padding": int,
    "rate": (int, float, type(None)),
    "clock": (Mapping, Clock, type(None)),
}
_EXAMPLES = {
    "files": 'a pattern of files, as in files = "runs/{run}.csv"',
    "rows": 'a name in the pattern of files, as in rows = "frame" for files = "{run}/{frame}.npz"',
    "padding": "a number of rows, as in padding = 3",
    "metadata": 'a table, as in metadata = {language = {files = "{run}/lang.txt"}}',
    "notes": 'a table, as in notes = {rewards = "of exploration"}',
    "group": 'a pattern of groups in a file, as in group = "data/demo_{i}"',
    "id": 'the name of an array, as in id = "episode"',
    "ends": f'what arrays mark, as in ends = {{flag = "end"}}, among {list(MEANINGS)}',
    "csv": 'a table, as in csv = {separator = ";"}',
    "columns": 'a table, as in columns = {observations = "obs", actions = ["ax", "ay"]}',
    "lengths": "whole numbers, as in lengths = [100, 80], or lengths = 500 for all",
    "leave_out": 'a list of patterns, as in leave_out = ["debug/*"]',
    "whole_files": "true or false",
    "rate": "a number of steps a second, as in rate = 50",
    "clock": 'a table, as in clock = {reference = "observations/camera", rule = "last", within = 0.1}',
}
