"""One reading of the headers of all files: columns, ends of episodes, metadata, and what is left out.

Each file is looked at once, in order, so that text files, which are read whole, need not be read again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.core.spec import ALIGNS, Align, Field, Spec
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.files.listing import digest_of_files
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.ends import EpisodeEnds, MarkArray, Meaning, check_meanings, find_ends, meaning_of
from penstock.formats.base.state import GatheredColumn, SourceState
from penstock.formats.mapping.clocks import SECOND
from penstock.formats.mapping.columns import (
    FilesColumn,
    UnitLeaves,
    UnitRows,
    alignments,
    column_field,
    expanded,
    known_name,
)
from penstock.formats.mapping.joined import ClockCounts, UnitJoin
from penstock.formats.mapping.rules import ColumnRule, EpisodeMapping, Pattern
from penstock.formats.mapping.tree import NUMBERS, FileTree
from penstock.formats.mapping.units import Unit, found_files, grouped, names_below
from penstock.kernels.rows import RowMap

TELLING: tuple[Meaning, ...] = ("termination", "truncation", "done", "not done", "mask")  # how an episode ended


@dataclass(frozen=True, eq=False, kw_only=True)
class MappingState(SourceState):
    """State of an opened mapping. The arrays are flags and times; other columns are read by blocks."""

    units: Sequence[Unit]
    columns: Mapping[str, FilesColumn]
    unit_of: IntArray  # of each episode
    entries: Sequence[Mapping[str, Any]]  # metadata of each unit
    starts: IntArray | None  # time of the first step of each episode, where a clock joins columns


class _UnitFacts(NamedTuple):
    """What one unit has: the rows of each column, its steps, where episodes end (None: it is one), its metadata, the
    names of its arrays, and the times of its steps if the mapping has a clock."""

    unit: Unit
    rows: Mapping[str, UnitRows]
    steps: int
    ends: EpisodeEnds | None
    metadata: Mapping[str, Any]
    names: Sequence[str]
    times: IntArray | None = None  # of the steps, by the clock

    @property
    def lengths(self) -> IntArray:
        """Steps of its episodes."""
        return np.array([self.steps]) if self.ends is None else np.diff(self.ends.offsets)


class MappingReading:
    """One reading. `tree` opens the arrays of a file, or of images that are rows of one array."""

    def __init__(self, path: Path, mapping: EpisodeMapping, tree: Callable[[tuple[Path, ...]], FileTree]) -> None:
        self._path, self._mapping = path, mapping
        self._tree = tree
        self._found = found_files(path, mapping)
        self._left_out = list(self._found.left_out)
        self._inside: list[LeftOut] = []  # parts of files
        self._rules: dict[str, ColumnRule] = {}
        self._clock = None if mapping.clock is None else ClockCounts(mapping.clock)
        self._tells_ends = mapping.clock is None  # whether a mark says of each episode whether it terminated
        if mapping.lengths is not None and (len(self._found.units) > 1 or mapping.group is not None):
            got = "groups" if mapping.group is not None else str(len(self._found.units))
            message = f"expected lengths for one file, got {got}; say what marks the ends of episodes"
            raise FormatError(message, path=path)
        self._facts: list[_UnitFacts] = []
        seen: set[tuple[Path, ...]] = set()
        for unit in self._found.units:
            self._facts += self._read(unit, seen)

    def _read(self, unit: Unit, seen: set[tuple[Path, ...]]) -> list[_UnitFacts]:
        """Look at a file, and at the files of other columns next to it."""
        trees = {pattern: self._tree(files) for pattern, files in unit.files.items()}
        tree, pattern = trees[""], self._mapping.group
        units = [unit] if pattern is None else grouped(unit, Pattern(pattern), tree.leaves)
        facts = [self._facts_of(UnitLeaves(each, tree.leaves_of(each.group), trees), tree) for each in units]
        for other, files in unit.files.items():
            if files not in seen:  # a file may serve several units
                seen.add(files)
                entries = [entry for entry in trees[other].left_out if not self._mapping.leaves_out(entry.where)]
                self._inside += [replace(entry, where=f"{files[0].name}: {entry.where}") for entry in entries]
        return facts

    def _facts_of(self, leaves: UnitLeaves, tree: FileTree) -> _UnitFacts:
        self._rules = self._rules or self._named_rules(leaves)
        rows = {name: leaves.rows_of(name, rule) for name, rule in self._rules.items()}
        metadata, names = self._metadata(leaves.unit, tree), list(leaves.leaves)
        if self._clock is not None:
            rows, times, ends = UnitJoin(self._clock, leaves).join(self._rules, rows, self._mapping.id)
            return _UnitFacts(leaves.unit, rows, len(times), ends, metadata, names, times)
        steps = self._steps(rows)
        return _UnitFacts(leaves.unit, rows, steps, self._ends_of(leaves, tree, steps), metadata, names)

    def _named_rules(self, first: UnitLeaves) -> dict[str, ColumnRule]:
        """The rule of each column; without any, each array of the first unit is one."""
        if (given := self._mapping.columns) is not None:
            main = self._mapping.files
            own = {name: replace(rule, files=None) for name, rule in given.items() if rule.files == main}
            return expanded({**given, **own}, first.leaves, first.unit)
        rules: dict[str, ColumnRule] = {}
        for name in first.leaves:
            if not self._mapping.leaves_out(name):
                column = known_name(name)
                rules[name if column in rules else column] = ColumnRule((name,))
        if not rules:
            raise FormatError("expected arrays, got none", path=str(first.unit))
        return rules

    def _steps(self, rows: Mapping[str, UnitRows]) -> int:
        """Steps of a unit: the rows of the actions, or of most columns, of which fewer rows win a draw."""
        stated = [name for name, rule in self._rules.items() if rule.align == "step"]
        if (first := "actions" if "actions" in rows else next(iter(stated), None)) is not None:
            return rows[first].rows
        counts = Counter(each.rows for name, each in rows.items() if self._rules[name].align is None)
        return min(counts, key=lambda n: (-counts[n], n)) if counts else 1

    def _ends_of(self, leaves: UnitLeaves, tree: FileTree, steps: int) -> EpisodeEnds | None:
        """Where episodes of a unit end; None if all of it is one, and nothing says how it ended."""
        mapping = self._mapping
        if mapping.whole_files or not steps:
            return None
        meanings: dict[str, Meaning] = dict(mapping.ends)
        if mapping.id is not None:
            meanings[mapping.id] = "id"
        check_meanings(meanings, leaves.leaves)
        marks = _marks(leaves, tree, steps, meanings)
        self._tells_ends &= any(meaning_of(name, meanings) in TELLING for name in marks)
        lengths = None if mapping.lengths is None else list(mapping.lengths)
        ends = find_ends(marks, steps, path=str(leaves.unit), meanings=meanings, lengths=lengths)
        self._left_out += [replace(entry, where=f"{leaves.unit}: {entry.where}") for entry in ends.left_out]
        return ends if ends.sentence or ends.consumed else None

    def _metadata(self, unit: Unit, tree: FileTree) -> dict[str, Any]:
        values = tree.values_of(unit.group)
        metadata = {str(name): value for name, value in values.items() if not self._mapping.leaves_out(name)}
        if len(self._found.units) > 1:
            metadata = {"file": unit.files[""][0].relative_to(self._path).as_posix(), **metadata}
        return {**metadata, **unit.texts}

    def state(self) -> MappingState:
        """Return the state of the source."""
        units = [each.unit for each in self._facts]
        lengths = [each.lengths for each in self._facts]
        offsets = offsets_of(np.concatenate(lengths))
        columns: dict[str, FilesColumn] = {}
        for name in [name for name in self._rules if not self._is_consumed(name)]:
            if (align := self._align(name)) is not None:
                rows = [each.rows[name] for each in self._facts]
                field = replace(column_field(name, self._rules[name], rows, units), align=align)
                columns[name] = FilesColumn.of(name, field, self._rules[name], rows)
        computed = {**self._flags(), **self._joined_columns(columns, offsets)}
        computed = {name: rows for name, rows in computed.items() if name not in columns}
        spec = Spec(
            {name: column.field for name, column in columns.items()}
            | {name: Field(rows.dtype) for name, rows in computed.items()}
        )
        return MappingState(
            spec=spec,
            offsets=offsets,
            digest=self._digest(spec, offsets),
            arrays={name: GatheredColumn(RowMap.of(rows)) for name, rows in computed.items()},
            account=self._account(columns),
            units=units,
            columns=columns,
            unit_of=np.repeat(np.arange(len(units)), [len(each) for each in lengths]),
            entries=[each.metadata for each in self._facts],
            starts=None if self._clock is None else self._times()[offsets[:-1]],
        )

    def _times(self) -> IntArray:
        return np.concatenate([each.times for each in self._facts if each.times is not None])

    def _joined_columns(self, columns: Mapping[str, FilesColumn], offsets: IntArray) -> dict[str, AnyArray]:
        """Seconds since the start of the episode, and whether steps have a row of each column that may lack one."""
        if self._clock is None:
            return {}
        times = self._times()
        seconds = (times - np.repeat(times[offsets[:-1]], np.diff(offsets))) / SECOND
        computed: dict[str, AnyArray] = {"timestamps": seconds}
        for name in columns if self._clock.clock.outside == "mask" else ():
            taken = [rows.steps.found for each in self._facts if (rows := each.rows[name]).steps is not None]
            if taken and self._clock.missing[name]:
                computed[f"valid/{name}"] = np.concatenate(taken)
        return computed

    def _is_consumed(self, column: str) -> bool:
        """Whether the flags of ends have everything that a column says."""
        arrays = set(self._rules[column].arrays)
        chosen = self._mapping.columns is not None or column == self._mapping.id
        return not chosen and all(each.ends is not None and arrays <= each.ends.consumed for each in self._facts)

    def _align(self, name: str) -> Align | None:
        """The alignment of a column. A column that was asked for must have one; others are left out."""
        rule = self._rules[name]
        possible: Sequence[Align] = ALIGNS if rule.align is None else (rule.align,)
        for each in self._facts:
            rows, episodes = each.rows[name], len(each.lengths)
            fitting = list(alignments(rows.rows, each.steps, episodes))
            left: list[Align] = [align for align in possible if align in fitting]
            if left:
                possible = left
                continue
            wanted = {"step": f"{each.steps} rows", "boundary": f"{each.steps + episodes} rows"}
            wanted["episode"] = counted(episodes, "row")
            expected = " or ".join(dict.fromkeys(wanted[align] for align in possible))
            message = f"expected {expected} as {' or '.join(possible)}s of the other columns have, got {rows.rows}"
            if self._mapping.columns is None:
                where = f"{each.unit}: {', '.join(rows.names)}"
                self._left_out.append(LeftOut("array", where, "other-length", message))
                return None
            where = ", ".join(rows.names)
            raise FormatError(f"{message} in the column {name!r}", path=str(each.unit), where=where)
        return possible[0]

    def _flags(self) -> dict[str, BoolArray]:
        """Terminations and truncations of all steps, where a mark says how episodes end."""
        ends = [each.ends for each in self._facts if each.ends is not None]
        if len(ends) < len(self._facts) or not self._tells_ends:
            return {}
        terminations = np.concatenate([each.terminations for each in ends])
        return {"terminations": terminations, "truncations": np.concatenate([each.truncations for each in ends])}

    def _account(self, columns: Mapping[str, FilesColumn]) -> Account:
        """What became of each array and file. Arrays of one name in many units are one entry."""
        own = [column for column in columns.values() if column.rule.files is None]
        used = {array for column in own for names in column.names for array in names}
        unused: Counter[str] = Counter()
        for each in self._facts:
            consumed = frozenset[str]() if each.ends is None else each.ends.consumed
            unused.update(name for name in each.names if name not in used and name not in consumed)
        said = {entry.where.rpartition(": ")[2] for entry in self._left_out}
        message = "no column has it; name one for it under `columns`, or put it into `leave_out`"
        entries = [
            LeftOut("array", name, "unused-array", message, n)
            for name, n in unused.items()
            if name not in said and not self._mapping.leaves_out(name)
        ]
        renamed = {names[0]: name for name, column in columns.items() if (names := column.names[0])[0] != name}
        one = "file" if self._mapping.group is None else f"group {self._mapping.group}"
        whole = f"each {one} is an episode"
        sentences = dict.fromkeys(whole if each.ends is None else each.ends.sentence or whole for each in self._facts)
        steps = [] if self._clock is None else self._clock.entries()
        left_out = (*self._left_out, *entries, *steps, *self._inside)
        return Account(left_out, renamed, "; ".join(each for each in sentences if each))

    def _digest(self, spec: Spec, offsets: IntArray) -> str:
        named = dict.fromkeys(path for unit in self._found.units for some in unit.files.values() for path in some)
        files = [file for path in named for file in _files_of(path)]
        identity = json.dumps([digest_of_files(files), self._mapping.digest, spec.fingerprint])
        return hashlib.sha256(identity.encode() + offsets.tobytes()).hexdigest()


def _marks(leaves: UnitLeaves, tree: FileTree, steps: int, meanings: Mapping[str, Meaning]) -> dict[str, MarkArray]:
    """The arrays of a unit that mark ends, by their names or as the mapping says."""
    prefix = f"{leaves.unit.group}/" if leaves.unit.group else ""
    marks: dict[str, MarkArray] = {}
    for name, leaf in leaves.leaves.items():
        known = meaning_of(name, meanings) not in (None, "unused")
        is_number = leaf.field.kind == "array" and leaf.field.dtype.kind in NUMBERS and len(leaf.field.shape) < 2
        if leaf.field.kind == "text" and name in meanings and leaf.rows == steps:
            rows: Any = tree.read(prefix + name, 0, steps)
            marks[name] = MarkArray.of(np.array(rows.strings()))
        elif known and is_number:
            shape = (leaf.rows, *leaf.field.shape)
            read: Any = partial(tree.read, prefix + name)
            marks[name] = MarkArray(shape, leaf.field.dtype, read)
    return marks


def _files_of(path: Path) -> list[Path]:
    """The file, or all files of a store that is a folder."""
    return [path / name for name in names_below(path)] if path.is_dir() else [path]
