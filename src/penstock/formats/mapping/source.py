"""`FilesSource`: files of any kind as a dataset, in place, as a mapping says."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.cache import Cache
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import ALIGNS, Align, Field, Spec
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.files.listing import digest_of_files, read_unchanged
from penstock.files.remote import FileState, file_state
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.ends import EpisodeEnds, MarkArray, Meaning, check_meanings, find_ends, meaning_of
from penstock.formats.base.state import GatheredColumn, SourceState, StateSource
from penstock.formats.mapping.columns import (
    MappedColumn,
    UnitLeaves,
    UnitRows,
    alignments,
    column_field,
    expanded,
    known_name,
)
from penstock.formats.mapping.kinds import tree_of
from penstock.formats.mapping.rules import ColumnRule, EpisodeMapping, Pattern
from penstock.formats.mapping.tree import NUMBERS, FileTree
from penstock.formats.mapping.units import Unit, found_files, grouped, names_below
from penstock.kernels.rows import RowMap

CACHE_BYTES = 256 << 20
TELLING: tuple[Meaning, ...] = ("termination", "truncation", "done", "not done", "mask")  # how an episode ended


@dataclass(frozen=True, eq=False, kw_only=True)
class _MappedState(SourceState):
    units: Sequence[Unit]
    columns: Mapping[str, MappedColumn]
    unit_of: IntArray  # of each episode
    entries: Sequence[Mapping[str, Any]]  # metadata of each unit


class FilesSource(StateSource[_MappedState]):
    """Files of any kind as episodes. Opening reads the headers of all files, and text files whole."""

    def __init__(self, path: Path, mapping: EpisodeMapping, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._path, self._mapping = path.absolute(), mapping
        self._reopen = partial(FilesSource, self._path, mapping, cache_bytes=cache_bytes)
        self._trees, self._blocks = Cache(cache_bytes), Cache(cache_bytes)
        self._opened: dict[Path, FileState] = {}
        self._state = _Reading(self._path, mapping, self._tree).state()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, ()

    def _tree(self, files: tuple[Path, ...]) -> FileTree:
        """Return the arrays of a file, which is as it was when it was first opened."""

        def opened() -> tuple[FileTree, int]:
            path = files[0]
            state = self._opened.setdefault(path, file_state(path))
            tree = read_unchanged(path, state, lambda _: _with_leaves(tree_of(files, self._mapping.csv)))
            return tree, tree.nbytes

        return self._trees.get(files, opened)

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        units = {name: column.rule.unit for name, column in self.state.columns.items() if column.rule.unit}
        rate = {} if self._mapping.rate is None else {"fps": self._mapping.rate}
        return {**rate, **({"units": units} if units else {}), "mapping": self._mapping.to_json()}

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        state = self.state
        return [dict(state.entries[int(state.unit_of[e])]) for e in episodes]

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        state = self.state
        if (mapped := state.columns.get(column)) is None:
            super().read_array(column, selection, out)
            return
        mapped.rows.read_array(lambda block: self._decoded(state, mapped, block), selection, out)

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        state = self.state
        mapped = state.columns[column]
        return mapped.rows.read_ragged(lambda block: self._decoded(state, mapped, block), mapped.field, selection)

    def _decoded(self, state: _MappedState, column: MappedColumn, block: int) -> Array:
        """Return the rows of a block, decoded or from the cache."""

        def decoded() -> tuple[Array, int]:
            unit = state.units[int(column.unit[block])]
            tree = self._tree(unit.files[column.rule.files or ""])
            prefix = f"{unit.group}/" if unit.group and column.rule.files is None else ""
            rows = column.decoded(block, tree, prefix)
            nbytes = rows.nbytes if isinstance(rows, Ragged) or rows.base is None else 64  # views are not counted again
            return rows, nbytes

        return self._blocks.get((column.name, block), decoded)


def _with_leaves(tree: FileTree) -> FileTree:
    """The tree after its headers were read, or its file whole."""
    _ = tree.leaves
    return tree


class _Reading:
    """One reading of all headers: units, columns, ends of episodes, and what is left out."""

    def __init__(self, path: Path, mapping: EpisodeMapping, tree: Any) -> None:
        self._path, self._mapping = path, mapping
        self._tree = tree
        self._found = found_files(path, mapping)
        self._left_out = list(self._found.left_out)
        self._units = [part for unit in self._found.units for part in self._grouped(unit)]
        self._leaves = [self._leaves_of(unit) for unit in self._units]
        self._rules = self._named_rules()
        self._ends: list[EpisodeEnds | None] = []
        self._tells_ends = True  # whether a mark says of each episode whether it terminated

    def _grouped(self, unit: Unit) -> list[Unit]:
        if self._mapping.group is None:
            return [unit]
        return grouped(unit, Pattern(self._mapping.group), list(self._tree(unit.files[""]).leaves))

    def _leaves_of(self, unit: Unit) -> UnitLeaves:
        others = {pattern: self._tree(files) for pattern, files in unit.files.items() if pattern}
        return UnitLeaves.of(unit, self._tree(unit.files[""]), others)

    def _named_rules(self) -> dict[str, ColumnRule]:
        """The rule of each column; without any, each array of the first unit is one."""
        leaves, unit = self._leaves[0].leaves, self._units[0]
        if (given := self._mapping.columns) is not None:
            main = self._mapping.files
            own = {name: replace(rule, files=None) for name, rule in given.items() if rule.files == main}
            return expanded({**given, **own}, leaves, unit)
        rules: dict[str, ColumnRule] = {}
        for name in leaves:
            if not self._mapping.leaves_out(name):
                column = known_name(name)
                rules[name if column in rules else column] = ColumnRule((name,))
        if not rules:
            raise FormatError("expected arrays, got none", path=str(unit))
        return rules

    def state(self) -> _MappedState:
        """Return the state of the source."""
        rows = {name: [each.rows_of(name, rule) for each in self._leaves] for name, rule in self._rules.items()}
        steps = self._steps(rows)
        self._ends = [self._ends_of(*each) for each in zip(self._leaves, steps, strict=True)]
        rows = {name: units for name, units in rows.items() if not self._is_consumed(name)}
        lengths = [
            np.array([n]) if ends is None else np.diff(ends.offsets) for ends, n in zip(self._ends, steps, strict=True)
        ]
        offsets = offsets_of(np.concatenate(lengths))
        columns: dict[str, MappedColumn] = {}
        for name, units in rows.items():
            align = self._align(name, units, steps, [len(each) for each in lengths])
            if align is not None:
                field = replace(column_field(name, self._rules[name], units, self._units), align=align)
                columns[name] = MappedColumn.of(name, field, self._rules[name], units)
        fields: dict[str, Field] = {name: column.field for name, column in columns.items()}
        flags = {name: flag for name, flag in self._flags().items() if name not in fields}
        fields |= {name: Field(flag.dtype) for name, flag in flags.items()}
        spec = Spec(fields)
        return _MappedState(
            spec=spec,
            offsets=offsets,
            digest=self._digest(spec, offsets),
            arrays={name: GatheredColumn(RowMap.of(flag)) for name, flag in flags.items()},
            account=self._account(columns),
            units=self._units,
            columns=columns,
            unit_of=np.repeat(np.arange(len(self._units)), [len(each) for each in lengths]),
            entries=[self._metadata(unit) for unit in self._units],
        )

    def _steps(self, rows: Mapping[str, Sequence[UnitRows]]) -> list[int]:
        """Steps of each unit: the rows of the actions, or of most columns, of which fewer rows win a draw."""
        stated = [name for name, rule in self._rules.items() if rule.align == "step"]
        first = "actions" if "actions" in rows else next(iter(stated), None)
        if first is not None:
            return [each.leaf.rows for each in rows[first]]
        steps: list[int] = []
        for i in range(len(self._units)):
            counts = Counter(units[i].leaf.rows for name, units in rows.items() if self._rules[name].align is None)
            steps.append(min(counts, key=lambda n: (-counts[n], n)) if counts else 1)
        return steps

    def _ends_of(self, leaves: UnitLeaves, steps: int) -> EpisodeEnds | None:
        """Where episodes of a unit end; None if all of it is one, and nothing says how it ended."""
        mapping = self._mapping
        if mapping.whole_files or not steps:
            return None
        meanings: dict[str, Meaning] = dict(mapping.ends)
        if mapping.id is not None:
            meanings[mapping.id] = "id"
        tree = self._tree(leaves.unit.files[""])
        prefix = f"{leaves.unit.group}/" if leaves.unit.group else ""
        marks: dict[str, MarkArray] = {}
        for name, leaf in leaves.leaves.items():
            known = meaning_of(name, meanings) not in (None, "unused")
            if leaf.field.kind == "text" and name in meanings and leaf.rows == steps:
                rows: Any = tree.read(prefix + name, 0, steps)
                marks[name] = MarkArray.of(np.array(rows.strings()))
            elif (
                known and leaf.field.kind == "array" and leaf.field.dtype.kind in NUMBERS and len(leaf.field.shape) < 2
            ):
                shape = (leaf.rows, *leaf.field.shape)
                marks[name] = MarkArray(shape, leaf.field.dtype, partial(tree.read, prefix + name))
        check_meanings(meanings, leaves.leaves)
        self._tells_ends &= any(meaning_of(name, meanings) in TELLING for name in marks)
        ends = find_ends(marks, steps, path=str(leaves.unit), meanings=meanings, lengths=self._lengths_of(leaves.unit))
        self._left_out += [replace(entry, where=f"{leaves.unit}: {entry.where}") for entry in ends.left_out]
        return ends if ends.sentence or ends.consumed else None

    def _lengths_of(self, unit: Unit) -> list[int] | None:
        if self._mapping.lengths is None:
            return None
        if len(self._units) > 1:
            message = f"expected lengths for one file, got {len(self._units)}; say what marks the ends of episodes"
            raise FormatError(message, path=self._path)
        return list(self._mapping.lengths)

    def _is_consumed(self, column: str) -> bool:
        """Whether the flags of ends have everything that a column says."""
        rule = self._rules[column]
        explicit = self._mapping.columns is not None
        return not explicit and all(
            ends is not None and set(rule.arrays) <= ends.consumed and column != self._mapping.id for ends in self._ends
        )

    def _align(
        self, name: str, units: Sequence[UnitRows], steps: Sequence[int], episodes: Sequence[int]
    ) -> Align | None:
        """The alignment of a column. A column that was asked for must have one; others are left out."""
        rule = self._rules[name]
        possible: Sequence[Align] = ALIGNS if rule.align is None else (rule.align,)
        for i, each in enumerate(units):
            fitting = list(alignments(each.leaf.rows, steps[i], episodes[i]))
            left: list[Align] = [align for align in possible if align in fitting]
            if left:
                possible = left
                continue
            wanted = {
                "step": f"{steps[i]} rows",
                "boundary": f"{steps[i] + episodes[i]} rows",
                "episode": counted(episodes[i], "row"),
            }
            expected = " or ".join(dict.fromkeys(wanted[align] for align in possible))
            message = f"expected {expected} as {' or '.join(possible)}s of the other columns have, got {each.leaf.rows}"
            if self._mapping.columns is None:
                where = f"{self._units[i]}: {', '.join(each.names)}"
                self._left_out.append(LeftOut("array", where, "other-length", message))
                return None
            raise FormatError(
                f"{message} in the column {name!r}", path=str(self._units[i]), where=", ".join(each.names)
            )
        return possible[0]

    def _flags(self) -> dict[str, BoolArray]:
        """Terminations and truncations of all steps, where a mark says how episodes end."""
        known = [ends for ends in self._ends if ends is not None]
        if len(known) < len(self._ends) or not self._tells_ends:
            return {}
        return {
            "terminations": np.concatenate([ends.terminations for ends in known]),
            "truncations": np.concatenate([ends.truncations for ends in known]),
        }

    def _metadata(self, unit: Unit) -> dict[str, Any]:
        values = self._tree(unit.files[""]).values_of(unit.group)
        metadata = {str(name): value for name, value in values.items() if not self._mapping.leaves_out(name)}
        if len(self._found.units) > 1:
            metadata = {"file": unit.files[""][0].relative_to(self._path).as_posix(), **metadata}
        return {**metadata, **unit.texts}

    def _account(self, columns: Mapping[str, MappedColumn]) -> Account:
        """What became of each array and file. Arrays of one name in many units are one entry."""
        own = [column for column in columns.values() if column.rule.files is None]
        used = {array for column in own for names in column.names for array in names}
        unused: Counter[str] = Counter()
        for leaves, ends in zip(self._leaves, self._ends, strict=True):
            consumed = frozenset[str]() if ends is None else ends.consumed
            for name in leaves.leaves:
                if name not in used and name not in consumed and not self._mapping.leaves_out(name):
                    unused[name] += 1
        said = {entry.where.rpartition(": ")[2] for entry in self._left_out}
        message = "no column has it; name one for it under `columns`, or put it into `leave_out`"
        entries = [LeftOut("array", name, "unused-array", message, n) for name, n in unused.items() if name not in said]
        trees = dict.fromkeys(files for unit in self._units for files in unit.files.values())
        inside = [(files[0], entry) for files in trees for entry in self._tree(files).left_out]
        entries += [
            replace(entry, where=f"{path.name}: {entry.where}")
            for path, entry in inside
            if not self._mapping.leaves_out(entry.where)
        ]
        renamed = {names[0]: name for name, column in columns.items() if (names := column.names[0])[0] != name}
        one = "file" if self._mapping.group is None else f"group {self._mapping.group}"
        sentences = dict.fromkeys(f"each {one} is an episode" if ends is None else ends.sentence for ends in self._ends)
        return Account((*self._left_out, *entries), renamed, "; ".join(each for each in sentences if each))

    def _digest(self, spec: Spec, offsets: IntArray) -> str:
        named = dict.fromkeys(path for unit in self._units for some in unit.files.values() for path in some)
        files = [file for path in named for file in _files_of(path)]
        identity = json.dumps([digest_of_files(files), self._mapping.digest, spec.fingerprint])
        return hashlib.sha256(identity.encode() + offsets.tobytes()).hexdigest()


def _files_of(path: Path) -> list[Path]:
    """The file, or all files of a store that is a folder."""
    return [path / name for name in names_below(path)] if path.is_dir() else [path]
