"""Columns of a mapping: which arrays of each unit they are, how many rows these have, and the values of a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.spec import Align, Field
from penstock.errors import FormatError, suggestion
from penstock.formats.base.ends import COLUMN_NAMES
from penstock.formats.base.infos import plain
from penstock.formats.base.pieces import BlockRows
from penstock.formats.mapping.clocks import RowsOfSteps, TimesRule
from penstock.formats.mapping.rules import ColumnRule, Pattern
from penstock.formats.mapping.tree import FileTree, TreeLeaf
from penstock.formats.mapping.units import Unit


def changed_field(rule: ColumnRule, field: Field) -> Field:
    """Return the field of the rows that a rule makes of others. Raises `FormatError`."""
    shape, dtype = field.shape, field.dtype
    if rule.at is not None:
        places = rule.at if isinstance(rule.at, tuple) else (rule.at,)
        if not shape or not all(0 <= place < shape[-1] for place in places):
            raise FormatError(f"expected rows with the places {list(places)} on the last axis, got {list(shape)}")
        shape = (*shape[:-1], *((len(places),) if isinstance(rule.at, tuple) else ()))
    if rule.bits is not None:
        if not shape or dtype != np.uint8:
            raise FormatError(f"expected bytes for bits, got {dtype}{list(shape)}")
        shape = (*shape[:-1], *_bits_shape(rule, shape[-1]))
    if rule.rgb is not None:
        if shape[-1:] != (3,) or dtype != np.uint8:
            raise FormatError(f"expected pixels of three bytes for rgb, got {dtype}{list(shape)}")
        shape, dtype = shape[:-1], np.dtype(np.uint32)
    if rule.scale is not None:
        dtype = _scaled(dtype)
    return field if (shape, dtype) == (field.shape, field.dtype) else replace(field, shape=shape, dtype=dtype)


def changed_rows(rule: ColumnRule, rows: AnyArray) -> AnyArray:
    """Return the rows that a rule makes of others, whose field `changed_field` accepted."""
    if rule.at is not None:
        rows = rows[..., list(rule.at) if isinstance(rule.at, tuple) else rule.at]
    if rule.bits is not None:
        shape = _bits_shape(rule, rows.shape[-1])
        bits = np.unpackbits(rows, axis=-1, count=math.prod(shape))
        rows = bits.reshape(*rows.shape[:-1], *shape)
    if rule.rgb is not None:
        powers = np.array([1 << 16, 1 << 8, 1], np.uint32)
        rows = rows.astype(np.uint32) @ (powers if rule.rgb == "big" else powers[::-1])
    if rule.scale is not None:
        rows = (rows * np.float64(rule.scale)).astype(_scaled(rows.dtype))
    return rows


def _scaled(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)


def _bits_shape(rule: ColumnRule, size: int) -> tuple[int, ...]:
    """The shape of the bits in so many bytes, of which the last may be filled up."""
    shape = rule.bits if isinstance(rule.bits, tuple) else (math.isqrt(8 * size),) * 2
    if not 0 <= 8 * size - math.prod(shape) < 8:
        raise FormatError(f"expected {-(-math.prod(shape) // 8)} bytes for bits of {list(shape)}, got {size}")
    return shape


TIMES = ("timestamps", "timestamp", "time", "times", "t")
SINCE_STEPS = 16  # whose rows since the steps before are read together
LINE_BYTES = 1 << 20  # of rows between others that are made together
NAMES: Mapping[str, str] = {
    **{name: column for column, groups in COLUMN_NAMES.items() for group in groups for name in group},
    **dict.fromkeys(TIMES, "timestamps"),
}
"""The column of an array by its name."""


def known_name(name: str) -> str:
    """Return the name of a column for an array, which keeps its own where it is none of `NAMES`."""
    first, slash, rest = name.partition("/")
    column = NAMES.get(first.lower())
    return name if column is None else f"{column}{slash}{rest}"


@dataclass(frozen=True)
class UnitLeaves:
    """The arrays of a unit by their path in its group, and of its files by the pattern of these."""

    unit: Unit
    leaves: Mapping[str, TreeLeaf]
    trees: Mapping[str, FileTree]

    def _leaves_in(self, files: str | None) -> Mapping[str, TreeLeaf]:
        """The arrays of the files of a pattern; none where the file is not there."""
        if files is None:
            return self.leaves
        return self.trees[files].leaves if files in self.trees else {}

    def read(self, files: str | None, name: str) -> Array:
        """Return all rows of an array. Raises `FormatError`."""
        leaves = self._leaves_in(files)
        if name not in leaves:
            message = f"expected an array {name!r}{suggestion(name, leaves)}, got {_listed(leaves)}"
            raise FormatError(message, path=str(self.unit if files is None else self.unit.files[files][0]))
        prefix = f"{self.unit.group}/" if self.unit.group and files is None else ""
        return self.trees[files or ""].read(prefix + name, 0, leaves[name].rows)

    def times_of(self, column: str, files: str | None, name: str, stated: TimesRule | None) -> TimesRule:
        """Return where the times of an array are: as stated, or as its file says. Raises `FormatError`."""
        if stated is not None and stated.files is not None:
            return stated
        prefix = f"{self.unit.group}/" if self.unit.group and files is None else ""
        times = self.trees[files or ""].times_of(prefix + name, stated)
        if times is None:
            example = 'times = "t" in the table of the column or of the clock'
            message = f"expected the times of the column {column!r}, as in {example}"
            raise FormatError(message, path=str(self.unit), where=name)
        return replace(times, array=times.array.removeprefix(prefix))

    def rows_of(self, column: str, rule: ColumnRule) -> UnitRows:
        """Return the arrays of a column and what their rows are. Raises `FormatError`."""
        leaves = self._leaves_in(rule.files)
        names = rule.arrays or self._only(column, leaves)
        if rule.otherwise is not None and rule.otherwise in leaves and not set(names) <= leaves.keys():
            names = (rule.otherwise,)
        if missing := [name for name in names if name not in leaves]:
            hint = suggestion(missing[0], leaves)
            message = f"expected an array {missing[0]!r} for the column {column!r}{hint}, got {_listed(leaves)}"
            raise FormatError(message, path=str(self.unit))
        chosen = [leaves[name] for name in names]
        leaf = chosen[0] if len(chosen) == 1 else self._stacked(column, names, chosen)
        try:
            return UnitRows(names, replace(leaf, field=changed_field(rule, leaf.field)))
        except FormatError as error:
            raise FormatError(f"{error} in the column {column!r}", path=str(self.unit), where=names[0]) from error

    def lacks(self, rule: ColumnRule) -> bool:
        """Whether the file or an array of a rule does not exist."""
        leaves = self._leaves_in(rule.files)
        return not leaves or (rule.otherwise not in leaves and not set(rule.arrays) <= leaves.keys())

    def metadata_of(self, name: str, rule: ColumnRule) -> dict[str, Any]:
        """Return a single value or an array as metadata; with a pattern in `from`, each that it matches."""
        single = self._values_in(rule.files)
        there = [*single, *(each for each, leaf in self._leaves_in(rule.files).items() if not leaf.is_time)]
        if not rule.arrays and len(there) > 1:
            message = f"expected one value for the metadata {name!r}, got {_listed(dict.fromkeys(there))}; say which"
            example = f'with from; all are "{{key}}" = {{files = "{rule.files}", from = "{{key}}"}}'
            raise FormatError(f"{message} {example}", path=str(self.unit))
        names: dict[str, Mapping[str, str]] = {each: {} for each in there}
        if rule.arrays:
            pattern = Pattern(rule.arrays[0])
            names = {each: texts for each in there if (texts := pattern.match(each)) is not None}
        if not names and rule.otherwise in there:
            names = {rule.otherwise: {}}
        return {
            Pattern(name).filled(texts).text: _wanted(
                rule, [single[each]] if each in single else self._listed_rows(name, rule, each)
            )
            for each, texts in names.items()
        }

    def _values_in(self, files: str | None) -> Mapping[str, Any]:
        """The single values of the files of a pattern; none where the file is not there."""
        tree = self.trees.get(files or "")
        return {} if tree is None else tree.values_of(self.unit.group if files is None else "")

    def _listed_rows(self, name: str, rule: ColumnRule, array: str) -> list[Any]:
        """The rows of an array as plain values."""
        rows = self.rows_of(name, replace(rule, arrays=(array,)))
        read: Any = self.read(rule.files, array)
        return read.strings() if rows.leaf.field.kind == "text" else plain(np.asarray(read))

    def _only(self, column: str, leaves: Mapping[str, TreeLeaf]) -> tuple[str, ...]:
        leaves = {name: leaf for name, leaf in leaves.items() if not leaf.is_time}
        if len(leaves) != 1:
            message = f"expected one array in the files of the column {column!r}, got {_listed(leaves)}; say which "
            raise FormatError(f'{message}with from = "..."', path=str(self.unit))
        return tuple(leaves)

    def _stacked(self, column: str, names: Sequence[str], leaves: Sequence[TreeLeaf]) -> TreeLeaf:
        """Several arrays of one number a row as one."""
        first = leaves[0]
        for name, leaf in zip(names, leaves, strict=True):
            if leaf.field.ragged or leaf.field.shape not in ((), (1,)) or leaf.rows != first.rows:
                expected = f"{first.rows} rows of one number"
                message = f"expected {expected} in each array of the column {column!r}, got {leaf}"
                raise FormatError(message, path=str(self.unit), where=name)
        dtype = np.result_type(*(leaf.field.dtype for leaf in leaves))
        guessed = any(leaf.guessed for leaf in leaves)
        return TreeLeaf(first.rows, Field(dtype, (len(leaves),)), min(leaf.block for leaf in leaves), guessed)


def _wanted(rule: ColumnRule, values: list[Any]) -> Any:
    """The values that `without` does not match; of one value itself."""
    unwanted = None if rule.without is None else Pattern(rule.without)
    kept = [value for value in values if unwanted is None or unwanted.match(str(value)) is None]
    return kept[0] if len(kept) == 1 else kept


class UnitRows(NamedTuple):
    """Arrays of a column in one unit, together as a leaf; and which rows of it the column has, None: all in order."""

    names: tuple[str, ...]
    leaf: TreeLeaf
    steps: RowsOfSteps | None = None

    @property
    def rows(self) -> int:
        return self.leaf.rows if self.steps is None else len(self.steps.low)

    def at(self, index: IntArray | None) -> UnitRows:
        return self if index is None else self._replace(steps=RowsOfSteps(index))


def _listed(names: Mapping[str, Any]) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown or "no array"


def expanded(rules: Mapping[str, ColumnRule], leaves: Mapping[str, TreeLeaf], unit: Unit) -> dict[str, ColumnRule]:
    """Return the rules with a column for each array that a pattern matches, named by the texts of its names."""
    single: dict[str, ColumnRule] = {}
    for column, rule in rules.items():
        array = Pattern(rule.arrays[0]) if len(rule.arrays) == 1 else None
        if array is None or array.is_plain or rule.files is not None:
            single[column] = rule
            continue
        named = {name: texts for name in leaves if (texts := array.match(name)) is not None}
        if not named:
            message = f"expected arrays {array.text!r} for the column {column!r}, got {_listed(leaves)}"
            raise FormatError(message, path=str(unit))
        for name, texts in named.items():
            place = Pattern(column).filled(texts).text
            if place in single:
                message = f"expected a name for each of {sorted(named)}, got {place!r} twice; as in "
                raise FormatError(f'{message}"{column}/{{name}}" = "{{name}}"', path=str(unit))
            single[place] = replace(rule, arrays=(name,))
    return single


@dataclass(frozen=True, eq=False)
class FilesColumn:
    """A column: its field, the arrays of each unit, and the blocks in which these are decoded."""

    name: str
    field: Field
    rule: ColumnRule
    names: Sequence[tuple[str, ...]]
    rows: BlockRows
    unit: IntArray  # of each block
    start: IntArray  # first row of each block in its unit; step, where rows are between others
    stop: IntArray
    lines: Sequence[RowsOfSteps] | None = None

    @classmethod
    def of(cls, name: str, field: Field, rule: ColumnRule, units: Sequence[UnitRows]) -> FilesColumn:
        steps = [each.steps for each in units if each.steps is not None]
        lines = steps if steps and steps[0].high is not None else None
        lengths = np.array([each.leaf.rows if lines is None else each.rows for each in units], np.int64)
        block = np.array([each.leaf.block or max(each.leaf.rows, 1) for each in units], np.int64)
        if lines is not None:
            block[:] = SINCE_STEPS if field.ragged else max(LINE_BYTES // max(field.row_bytes, 1), 1)
        counts = -(-lengths // block)
        unit = np.repeat(np.arange(len(units)), counts)
        first = offsets_of(counts)[:-1]
        start = (np.arange(len(unit)) - np.repeat(first, counts)) * block[unit]
        stop = np.minimum(start + block[unit], lengths[unit])
        rows = BlockRows.whole(offsets_of(stop - start))
        if steps and lines is None:
            taken = [np.arange(each.rows) if each.steps is None else each.steps.low for each in units]
            rows = _picked(taken, first, block, len(unit))
        return cls(name, field, rule, [each.names for each in units], rows, unit, start, stop, lines)

    def blank(self, block: int) -> Array | None:
        """Return the row of steps that have none, which is the block after all others; None for these."""
        if block < len(self.unit):
            return None
        zeros = np.zeros((0 if self.field.ragged else 1, *self.field.shape), self.field.dtype)
        return Ragged(zeros, np.zeros(2, np.int64)) if self.field.ragged else zeros

    def decoded(self, block: int, tree: FileTree, prefix: str) -> Array:
        """Return the rows of a block, from the tree of its unit."""
        unit = int(self.unit[block])
        start, stop = int(self.start[block]), int(self.stop[block])
        names = [prefix + name for name in self.names[unit]]
        if self.lines is None:
            return self._read(names, tree, start, stop)
        line = self.lines[unit]
        if line.weight is None:
            return line.since(lambda a, b: self._read(names, tree, a, b), start, stop)
        return line.between(lambda a, b: self._read(names, tree, a, b), start, stop, self.field)

    def _read(self, names: Sequence[str], tree: FileTree, start: int, stop: int) -> Array:
        """Rows of arrays, together."""
        parts = [tree.read(name, start, stop) for name in names]
        rows = parts[0]
        if self.field.ragged and self.lines is None and not isinstance(rows, Ragged):  # of one length in this file
            rows = Ragged(rows.reshape(-1, *self.field.shape), np.arange(len(rows) + 1) * rows.shape[1])
        if isinstance(rows, Ragged):
            return (
                rows if rows.dtype == self.field.dtype else Ragged(rows.values.astype(self.field.dtype), rows.offsets)
            )
        numbers = [part for part in parts if not isinstance(part, Ragged)]
        stacked: AnyArray = numbers[0] if len(numbers) == 1 else np.stack([each.reshape(-1) for each in numbers], 1)
        changed = changed_rows(self.rule, stacked)
        return np.ascontiguousarray(changed, self.field.dtype).reshape(stop - start, *self.field.shape)


def _picked(rows: Sequence[IntArray], first: IntArray, size: IntArray, blank: int) -> BlockRows:
    """Single rows of the blocks of each unit, -1 for a row of the block `blank`. Rows in a row are one run."""
    taken = np.concatenate(rows)
    unit = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    block = np.where(taken < 0, blank, first[unit] + taken // size[unit])
    skip = np.where(taken < 0, 0, taken % size[unit])
    new = (np.diff(block, prepend=-1) != 0) | (np.diff(skip, prepend=-1) != 1)
    runs = np.flatnonzero(new)
    return BlockRows(np.append(runs, len(taken)), block[runs], skip[runs])


def column_field(name: str, rule: ColumnRule, units: Sequence[UnitRows], places: Sequence[Unit]) -> Field:
    """Return the field of a column in all units. Raises `FormatError` with the first unit that differs."""
    first = units[0].leaf
    field, dtype = first.field, first.field.dtype
    for rows, place in zip(units, places, strict=True):
        leaf = rows.leaf
        if leaf.field == first.field:
            continue
        widened = leaf.guessed and first.guessed and "text" not in (leaf.field.kind, first.field.kind)
        if rule.dtype is None and not widened:
            expected, where = f"{first} as in {places[0]}", ", ".join(rows.names)
            message = f"expected {expected}, got {leaf}; say the type with dtype, as in dtype = {str(dtype)!r}"
            raise FormatError(message, path=str(place), where=where)
        if (leaf.field.kind, leaf.field.shape) != (field.kind, field.shape):
            if widened and _values_of_rows(leaf.field) == _values_of_rows(field) is not None:
                field = replace(field, kind="ragged", shape=_values_of_rows(field) or ())
                dtype = np.result_type(dtype, leaf.field.dtype)
                continue
            message = f"expected rows like those of {places[0]}, {first}, got {leaf}"
            raise FormatError(message, path=str(place), where=", ".join(rows.names))
        dtype = np.result_type(dtype, leaf.field.dtype)
    field = replace(field, dtype=dtype)
    if rule.dtype is None:
        return field
    if field.kind == "text":
        raise FormatError(f"expected numbers for dtype {rule.dtype!r}, got text", path=str(places[0]), where=name)
    return replace(field, dtype=np.dtype(rule.dtype))


def _values_of_rows(field: Field) -> tuple[int, ...] | None:
    """The shape of each value of a row that may vary in length; None for rows of one number."""
    if field.ragged:
        return field.shape
    return field.shape[1:] if field.shape else None


def alignments(rows: int, steps: int, episodes: int) -> Iterator[Align]:
    """Yield what a column of so many rows can be, in a unit of some steps: the most likely first."""
    if rows == steps:
        yield "step"
    if rows == steps + episodes:
        yield "boundary"
    if rows == episodes:
        yield "episode"
