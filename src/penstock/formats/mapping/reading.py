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
from types import MappingProxyType
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
from penstock.formats.mapping.joined import (
    ClockCounts,
    UnitJoin,
    dropped,
    padding_rows,
    range_order,
    ring_order,
    zero_rows,
)
from penstock.formats.mapping.rules import ColumnRule, EpisodeMapping, Pattern
from penstock.formats.mapping.stored import ONLY
from penstock.formats.mapping.tree import NUMBERS, FileTree
from penstock.formats.mapping.units import Unit, found_files, grouped, names_below, row_number
from penstock.kernels.rows import RowMap

SHOWN = 4  # damaged files that a message describes
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
    """What one unit has; `ends` None says that it is one episode, `times` are the times of its steps, with a clock."""

    unit: Unit
    rows: Mapping[str, UnitRows]
    steps: int
    ends: EpisodeEnds | None
    metadata: Mapping[str, Any]
    names: Sequence[str]
    times: IntArray | None = None  # of the steps, by the clock

    @property
    def lengths(self) -> IntArray:
        return np.array([self.steps]) if self.ends is None else np.diff(self.ends.offsets)


class _Chosen(NamedTuple):
    """The rows of a file that are steps (None: all), lengths of episodes where it says them, and marks of ends."""

    order: IntArray | None = None
    lengths: Sequence[int] | None = None
    marks: Mapping[str, MarkArray] = MappingProxyType({})


class MappingReading:
    """One reading. `tree` opens the arrays of files that match a pattern, which may together be rows of arrays."""

    def __init__(self, path: Path, mapping: EpisodeMapping, tree: Callable[[str, tuple[Path, ...]], FileTree]) -> None:
        self._path, self._mapping = path, mapping
        self._tree = tree
        self._found = found_files(path, mapping)
        self._left_out = list(self._found.left_out)
        self._inside: list[LeftOut] = []  # parts of files
        self._fillers: Counter[tuple[str, str, str]] = Counter()  # rows without a step: where, the finding, and why
        self._clock = None if mapping.clock is None else ClockCounts(mapping.clock)
        self._tells_ends = mapping.clock is None  # whether a mark says of each episode whether it terminated
        self._rules: dict[str, ColumnRule] = {}
        if isinstance(mapping.lengths, tuple) and (len(self._found.units) > 1 or mapping.group is not None):
            got = "groups" if mapping.group is not None else str(len(self._found.units))
            message = f"expected lengths for one file, got {got}; say what marks the ends of episodes"
            raise FormatError(message, path=path)
        self._facts: list[_UnitFacts] = []
        self._found_metadata: set[str] = set()  # entries that some file has
        seen: set[Path] = set()
        errors: list[tuple[Unit, FormatError]] = []
        for unit in self._found.units:
            try:
                self._facts += self._read(unit, seen)
            except FormatError as error:
                errors.append((unit, error))
                if not self._facts and len(errors) == min(SHOWN, len(self._found.units)):
                    raise errors[0][1] from None  # of the mapping, rather than of some files
        if errors:
            raise self._of_some(errors)
        self._check_metadata()

    def _of_some(self, errors: Sequence[tuple[Unit, FormatError]]) -> FormatError:
        """The error of some of many files: what each has, and the entry of the mapping that leaves them out."""
        if len(self._found.units) == 1:
            return errors[0][1]
        parents = Counter(unit.files[""][0].parent for unit in self._found.units)
        paths = dict.fromkeys(unit.files[""][0] for unit, _ in errors)
        places = [
            path.parent / "*" if parents[path.parent] == 1 and path.parent != self._path else path for path in paths
        ]
        listed = [place.relative_to(self._path).as_posix() for place in places]
        said = "; ".join(str(error).replace(f"{self._path}/", "") for _, error in errors[:SHOWN])
        more = f"; and {len(errors) - SHOWN:,} more" if len(errors) > SHOWN else ""
        message = f"expected {len(self._found.units):,} files as the mapping says, got {len(errors):,} that are not"
        entry = f"leave_out = {json.dumps(listed, ensure_ascii=False)}"
        return FormatError(f"{message}: {said}{more}. Mend them, or leave them out: {entry}", path=self._path)

    def _read(self, unit: Unit, seen: set[Path]) -> list[_UnitFacts]:
        """Look at a file, and at the files of other columns next to it."""
        trees = {pattern: self._tree(pattern, files) for pattern, files in unit.files.items()}
        tree, pattern = trees[""], self._mapping.group
        units = [unit] if pattern is None else grouped(unit, Pattern(pattern), tree.leaves)
        facts = [self._facts_of(UnitLeaves(each, tree.leaves_of(each.group), trees)) for each in units]
        for other, files in unit.files.items():
            if files[0] not in seen:  # a file may serve several units
                seen.add(files[0])
                entries = [entry for entry in trees[other].left_out if not self._mapping.leaves_out(entry.where)]
                name = files[0].name if files[0] == self._path else files[0].relative_to(self._path).as_posix()
                self._inside += [replace(entry, where=f"{name}: {entry.where}") for entry in entries]
        return facts

    def _facts_of(self, leaves: UnitLeaves) -> _UnitFacts:
        self._rules = self._rules or self._named_rules(leaves)
        there = {name: rule for name, rule in self._rules.items() if not (rule.optional and leaves.lacks(rule))}
        rows = {name: leaves.rows_of(name, rule) for name, rule in there.items()}
        metadata = self._metadata(leaves)
        names = [name for name, leaf in leaves.leaves.items() if not leaf.is_time]
        if self._clock is not None:
            rows, times, ends = UnitJoin(self._clock, leaves).join(self._rules, rows, self._mapping.id)
            return _UnitFacts(leaves.unit, rows, len(times), ends, metadata, names, times)
        total = self._steps(rows)
        chosen = self._chosen(leaves, rows, total)
        ends = self._ends_of(leaves, total, chosen)
        facts = _UnitFacts(leaves.unit, rows, total, ends, metadata, names)
        return self._without_dropped(facts, total, chosen.order)

    def _check_metadata(self) -> None:
        """Refuse entries of the metadata that no file has. Files may lack them one by one."""
        for name in self._mapping.metadata.keys() - self._found_metadata:
            rule = self._mapping.metadata[name]
            unit = self._found.units[0]
            there: list[str] = []
            if (files := unit.files.get(rule.files or "")) is not None:
                tree = self._tree(rule.files or "", files)
                there = [*tree.values, *tree.leaves]
            wanted = " and ".join(map(repr, rule.arrays)) or "a value"
            message = f"expected {wanted} for the metadata {name!r}, got {there or 'no such files'}"
            raise FormatError(message, path=str(unit))

    def _named_rules(self, first: UnitLeaves) -> dict[str, ColumnRule]:
        """The rule of each column; without any, each array of the first unit is one."""
        if (given := self._mapping.columns) is not None:
            main = self._mapping.files
            own = {name: replace(rule, files=None) for name, rule in given.items() if rule.files == main}
            return expanded({**given, **own}, first.leaves, first.unit)
        rules: dict[str, ColumnRule] = {}
        for name, leaf in first.leaves.items():
            if not self._mapping.leaves_out(name) and not leaf.is_time:
                column = known_name(name)
                rules[name if column in rules else column] = ColumnRule((name,))
        if not rules:
            raise FormatError("expected arrays, got none", path=str(first.unit))
        return rules

    def _steps(self, rows: Mapping[str, UnitRows]) -> int:
        """Steps of a unit: the rows of the actions, or of most columns, of which fewer rows win a draw."""
        stated = [name for name in rows if self._rules[name].align == "step"]
        if (first := "actions" if "actions" in rows else next(iter(stated), None)) is not None:
            return rows[first].rows
        counts = Counter(each.rows for name, each in rows.items() if self._rules[name].align is None)
        return min(counts, key=lambda n: (-counts[n], n)) if counts else 1

    def _chosen(self, leaves: UnitLeaves, rows: Mapping[str, UnitRows], total: int) -> _Chosen:
        """The rows that are steps, of a ring, of ranges, or without padding."""
        mapping, order = self._mapping, None
        if isinstance(mapping.lengths, int):
            if total % max(mapping.lengths, 1):
                message = f"expected episodes of {mapping.lengths} rows each, got {total} rows"
                raise FormatError(message, path=str(leaves.unit))
            return _Chosen(lengths=[mapping.lengths] * (total // max(mapping.lengths, 1)))
        if mapping.ranges is not None:
            bounds = _rows_in_memory("ranges", mapping.ranges, leaves)
            bounds = bounds + np.array(mapping.ranges.dropped(leaves.unit.texts)) * (1, -1)
            order, lengths = range_order(bounds, self._numbers(leaves.unit, total), leaves.unit)
            unused = total - len(np.unique(order))
            self._fillers[str(leaves.unit.texts or ""), "unused-rows", "they are in no range of an episode"] += unused
            return _Chosen(order, lengths.tolist())
        if mapping.ring is not None:
            written = int(_rows_in_memory("ring", mapping.ring, leaves).reshape(()))
            order = ring_order(written, total, leaves.unit)
            stale = 0 if order is None else total - len(order)
            self._fillers["ring", "filler", "they are behind the last row that was written"] += stale
        if not mapping.padding:
            return _Chosen(order)
        arrays = [_rows_in_memory(name, rule, leaves) for name, rule in self._rules.items() if name in rows]
        zero = zero_rows([array for array in arrays if len(array) == total])
        padding = padding_rows(zero if order is None else zero[order], mapping.padding)
        kept = np.flatnonzero(~padding)
        self._fillers["padding", "filler", "they are rows of zeros before an episode"] += len(padding) - len(kept)
        cuts = MarkArray.of(np.append(padding[1:], False)[kept])
        return _Chosen(kept if order is None else order[kept], None, {"padding": cuts})

    def _numbers(self, unit: Unit, total: int) -> IntArray:
        """The number of each row: the number in the name of its file, or its place."""
        name, pattern = self._mapping.rows, Pattern(self._mapping.files or "")
        if name is None or name not in pattern.names:
            return np.arange(total)
        places = [(path, pattern.match(path.relative_to(self._path).as_posix())) for path in unit.files[""]]
        return np.array([row_number(texts[name], path.name) for path, texts in places if texts is not None], np.int64)

    def _ends_of(self, leaves: UnitLeaves, total: int, chosen: _Chosen) -> EpisodeEnds | None:
        """Where episodes of a unit end; None if all of it is one, and nothing says how it ended."""
        mapping = self._mapping
        if (mapping.whole_files and chosen.lengths is None) or not total:
            return None
        meanings: dict[str, Meaning] = dict(mapping.ends)
        if mapping.id is not None:
            meanings[mapping.id] = "id"
        check_meanings(meanings, leaves.leaves)
        marks = {} if mapping.whole_files else _marks(leaves, total, meanings)
        if chosen.order is not None:
            kept = {name: mark for name, mark in marks.items() if mark.shape[:1] == (total,)}
            marks |= {name: MarkArray.of(np.asarray(mark.rows(0, total))[chosen.order]) for name, mark in kept.items()}
        self._tells_ends &= any(meaning_of(name, meanings) in TELLING for name in marks)
        stated = chosen.lengths if isinstance(mapping.lengths, int) or mapping.lengths is None else mapping.lengths
        lengths = None if stated is None else list(stated)
        steps = total if chosen.order is None else len(chosen.order)
        all_marks = {**marks, **chosen.marks}
        for name in chosen.marks:
            meanings[name] = "end"
        ends = find_ends(all_marks, steps, path=str(leaves.unit), meanings=meanings, lengths=lengths)
        self._left_out += [replace(entry, where=f"{leaves.unit}: {entry.where}") for entry in ends.left_out]
        return ends if ends.sentence or ends.consumed else None

    def _without_dropped(self, facts: _UnitFacts, total: int, order: IntArray | None) -> _UnitFacts:
        """The same without rows of columns that are none, at the ends of episodes."""
        unit, rows = facts.unit, facts.rows
        count = total if order is None else len(order)
        lengths = np.array([count]) if facts.ends is None else np.diff(facts.ends.offsets)
        drops = {name: self._rules[name].dropped(unit.texts) for name in rows}
        if order is None and not any(map(any, drops.values())):
            return facts
        of_steps = [name for name in rows if rows[name].leaf.rows == total]
        reference = "actions" if "actions" in rows else max(of_steps, key=lambda name: sum(drops[name]), default="")
        first, last = drops.get(reference, (0, 0))
        kept = dropped(lengths, first, last, unit)
        without: dict[str, UnitRows] = {}
        for name, each in rows.items():
            without[name] = each.at(_rows_of_column(each.leaf.rows, total, lengths, order, drops[name], unit))
            why = "they are the ends of episodes that the mapping drops"
            self._fillers[", ".join(each.names), "filler", why] += sum(drops[name]) * len(lengths)
        ends = None if facts.ends is None else _ends_without(facts.ends, kept, lengths - first - last)
        return facts._replace(rows=without, steps=len(kept), ends=ends)

    def _metadata(self, leaves: UnitLeaves) -> dict[str, Any]:
        unit = leaves.unit
        values: Mapping[str, Any] = {} if self._mapping.rows is not None else leaves.trees[""].values_of(unit.group)
        metadata: dict[str, Any] = {
            str(name): value for name, value in values.items() if not self._mapping.leaves_out(name)
        }
        if len(self._found.units) > 1 and self._mapping.rows is None:
            metadata = {"file": unit.files[""][0].relative_to(self._path).as_posix(), **metadata}
        for name, rule in self._mapping.metadata.items():
            entries = leaves.metadata_of(name, rule)
            self._found_metadata.update([name] if entries else [])
            metadata |= entries
        return {**metadata, **{name: text for name, text in unit.texts.items() if text}}

    def state(self) -> MappingState:
        units = [each.unit for each in self._facts]
        lengths = [each.lengths for each in self._facts]
        offsets = offsets_of(np.concatenate(lengths))
        columns: dict[str, FilesColumn] = {}
        for name in [name for name in self._rules if not self._is_consumed(name) and self._is_everywhere(name)]:
            if (align := self._align(name)) is not None:
                rows = [each.rows[name] for each in self._facts]
                field = replace(column_field(name, self._rules[name], rows, units), align=align)
                columns[name] = FilesColumn.of(name, field, self._rules[name], rows)
        computed = {**self._flags(), **self._clock_columns(columns, offsets)}
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

    def _clock_columns(self, columns: Mapping[str, FilesColumn], offsets: IntArray) -> dict[str, AnyArray]:
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

    def _is_everywhere(self, column: str) -> bool:
        """Whether all units have a column, which may be one that is optional."""
        lacking = [each for each in self._facts if column not in each.rows]
        if lacking and len(lacking) < len(self._facts):
            message = f"{len(lacking):,} of {counted(len(self._facts), 'file')} lack it, first {lacking[0].unit}"
            self._left_out.append(LeftOut("column", column, "uneven-column", message))
        return not lacking

    def _is_consumed(self, column: str) -> bool:
        """Whether the flags of ends have everything that a column says."""
        arrays = set(self._rules[column].arrays)
        chosen = self._mapping.columns is not None or column == self._mapping.id
        return not chosen and all(each.ends is not None and arrays <= each.ends.consumed for each in self._facts)

    def _align(self, name: str) -> Align | None:
        """The alignment of a column. A column that was asked for must have one; others are left out."""
        rule = self._rules[name]
        possible: Sequence[Align] = ALIGNS if rule.align is None else (rule.align,)
        errors: list[tuple[Unit, FormatError]] = []
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
            error = FormatError(f"{message} in the column {name!r}", path=str(each.unit), where=where)
            errors.append((each.unit, error))
        if errors:
            raise errors[0][1] if len(errors) == len(self._facts) else self._of_some(errors)
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
        whole = f"each {one} is an episode" if self._mapping.rows is None else "each file is a row"
        sentences = dict.fromkeys(whole if each.ends is None else each.ends.sentence or whole for each in self._facts)
        fillers = [LeftOut("rows", *entry, count) for entry, count in self._fillers.items() if count]
        notes = [LeftOut("column", name, "caution", text) for name, text in self._mapping.notes.items()]
        steps = [] if self._clock is None else self._clock.entries()
        left_out = (*self._left_out, *entries, *steps, *self._inside, *fillers, *notes)
        return Account(left_out, renamed, "; ".join(each for each in sentences if each))

    def _digest(self, spec: Spec, offsets: IntArray) -> str:
        named = dict.fromkeys(path for unit in self._found.units for some in unit.files.values() for path in some)
        files = [file for path in named for file in files_of(path)]
        identity = json.dumps([digest_of_files(files), self._mapping.digest, spec.fingerprint])
        return hashlib.sha256(identity.encode() + offsets.tobytes()).hexdigest()


def _marks(leaves: UnitLeaves, steps: int, meanings: Mapping[str, Meaning]) -> dict[str, MarkArray]:
    """The arrays of a unit that mark ends, by their names or as the mapping says."""
    prefix = f"{leaves.unit.group}/" if leaves.unit.group else ""
    marks: dict[str, MarkArray] = {}
    for name, leaf in leaves.leaves.items():
        known = meaning_of(name, meanings) not in (None, "unused")
        is_number = leaf.field.kind == "array" and leaf.field.dtype.kind in NUMBERS and len(leaf.field.shape) < 2
        if leaf.field.kind == "text" and name in meanings and leaf.rows == steps:
            rows: Any = leaves.read(None, name)
            marks[name] = MarkArray.of(np.array(rows.strings()))
        elif known and is_number:
            shape = (leaf.rows, *leaf.field.shape)
            read: Any = partial(leaves.trees[""].read, prefix + name)
            marks[name] = MarkArray(shape, leaf.field.dtype, read)
    return marks


def _rows_in_memory(name: str, rule: ColumnRule, leaves: UnitLeaves) -> AnyArray:
    """All rows of an array of numbers, or a single number."""
    array = next(iter(rule.arrays), ONLY)
    if leaves.lacks(rule) and (rule.files or "") in leaves.trees:
        single = leaves.trees[rule.files or ""].values_of(leaves.unit.group if not rule.files else "").get(array)
        if isinstance(single, int | float):
            return np.array(single)
    rows = leaves.rows_of(name, rule)
    array, *others = rows.names
    if others or rows.leaf.field.kind != "array":
        raise FormatError(f"expected one array of numbers for {name!r}, got {rows.leaf}", path=str(leaves.unit))
    return np.asarray(leaves.read(rule.files, array))


def _rows_of_column(
    rows: int, total: int, lengths: IntArray, order: IntArray | None, drop: tuple[int, int], unit: Unit
) -> IntArray | None:
    """The rows of an array that are rows of its column: a row for each of `total`, or one more an episode."""
    if rows == total:
        base, sizes = order, lengths
    elif order is None and rows == total + len(lengths):
        base, sizes = None, lengths + 1
    else:
        return None
    if not any(drop):
        return base
    kept = dropped(sizes, *drop, unit)
    return kept if base is None else base[kept]


def _ends_without(ends: EpisodeEnds, kept: IntArray, lengths: IntArray) -> EpisodeEnds:
    """The same ends where only some rows are steps: who did not terminate was truncated at the last."""
    terminations, truncations = ends.terminations[kept], ends.truncations[kept]
    last = np.cumsum(lengths)[lengths > 0] - 1
    truncations[last[~terminations[last]]] = True
    return replace(ends, offsets=offsets_of(lengths), terminations=terminations, truncations=truncations)


def files_of(path: Path) -> list[Path]:
    """Return the file, or all files of a store that is a folder."""
    return [path / name for name in names_below(path)] if path.is_dir() else [path]
