"""A file as a tree of named arrays: the one idea behind all kinds of files that a mapping reads.

A `FileTree` has *leaves*: arrays by path, whose dtype and shape are known before a value is read. Kinds that store
arrays as they are read them in place; others decode a file whole, and are read once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_listed, is_mapping, is_scalar
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock.formats.base.infos import plain
from penstock.formats.mapping.clocks import TimesRule

T = TypeVar("T")

NUMBERS = "biufc"
DEEPEST = 32  # levels of nested values


@dataclass(frozen=True)
class TreeLeaf:
    """An array of a file: its number of rows, the field of a row, and how many rows are decoded together (0: all).

    `guessed` says that text was read as numbers, so that another file may have a wider type. `is_time` says that it has
    the times of other arrays, or their numbers, and `note` what else a person may want to know.
    """

    rows: int
    field: Field
    block: int = 0
    guessed: bool = False
    is_time: bool = False
    note: str = ""

    def __str__(self) -> str:
        return f"{self._type}; {self.note}" if self.note else self._type

    @property
    def _type(self) -> str:
        shape = "".join(f", {size}" for size in self.field.shape)
        if self.field.kind == "text":
            return f"text [{self.rows}]"
        ragged = f", ?{shape}" if self.field.ragged else shape
        return f"{self.field.dtype} [{self.rows}{ragged}]"


class TreeGuess(NamedTuple):
    """Entries of a mapping for files like one, and whether they are the only ones that make sense."""

    entries: Mapping[str, Any]
    is_sure: bool


class TreeContent(NamedTuple):
    """Arrays of a file by path, with `/` between the names of groups, single values by path, and other parts."""

    leaves: Mapping[str, TreeLeaf]
    values: Mapping[str, Any] = {}
    left_out: Sequence[LeftOut] = ()


class FileTree(ABC):
    """The named arrays of one file, or of several files that are rows of one array."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def find(self) -> TreeContent:
        """Return what the file has. Cost: headers, or the whole file."""

    @cached_property
    def _found(self) -> TreeContent:
        return self.find()

    @property
    def leaves(self) -> Mapping[str, TreeLeaf]:
        return self._found.leaves

    @property
    def values(self) -> Mapping[str, Any]:
        return self._found.values

    @property
    def left_out(self) -> Sequence[LeftOut]:
        return self._found.left_out

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> Array:
        """Return rows of a leaf."""

    @property
    def guess(self) -> TreeGuess | None:
        """A mapping for files like this, where the kind of file knows better than names of arrays tell."""
        return None

    def times_of(self, name: str, stated: TimesRule | None) -> TimesRule | None:
        """Return where the times of a leaf's rows are. A tree that knows overrides it; others know what was stated."""
        return stated

    def leaves_of(self, group: str) -> Mapping[str, TreeLeaf]:
        """Return the arrays by their path in a group."""
        return self._leaves_by_group.get(group, {}) if group else self.leaves

    def values_of(self, group: str) -> Mapping[str, Any]:
        """Return single values by their path in a group: numbers, text, and attributes of HDF5 and Zarr."""
        return self._values_by_group.get(group, {}) if group else self.values

    @cached_property
    def _leaves_by_group(self) -> Mapping[str, Mapping[str, TreeLeaf]]:
        return _by_group(self.leaves)

    @cached_property
    def _values_by_group(self) -> Mapping[str, Mapping[str, Any]]:
        return _by_group(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return 1 << 10


def _by_group(entries: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Entries by each of the groups above them, with their path in it. Cost: one pass, for files of many groups."""
    groups: dict[str, dict[str, T]] = {}
    for name, entry in entries.items():
        end = name.find("/")
        while end >= 0:
            groups.setdefault(name[:end], {})[name[end + 1 :]] = entry
            end = name.find("/", end + 1)
    return groups


class Held(NamedTuple):
    """Rows in memory, and their field."""

    field: Field
    rows: Array

    @classmethod
    def numbers(cls, rows: AnyArray) -> Held:
        """Return rows of numbers, in the machine's byte order."""
        native = np.ascontiguousarray(rows, rows.dtype.newbyteorder("="))
        return cls(Field(native.dtype, native.shape[1:]), native)

    @classmethod
    def ragged(cls, rows: Ragged) -> Held:
        """Return rows of numbers that vary in length."""
        return cls(Field(rows.dtype, rows.values.shape[1:], kind="ragged"), rows)

    @classmethod
    def text(cls, rows: Sequence[str]) -> Held:
        return cls(Field(np.dtype(np.uint8), kind="text"), Ragged.from_strings(rows))


class FileContent(NamedTuple):
    """The content of a file: arrays, single values, and parts that are neither."""

    arrays: Mapping[str, Held]
    values: Mapping[str, Any]
    left_out: Sequence[LeftOut]


class HeldTree(FileTree):
    """A file that is decoded whole, when its leaves are asked for. A subclass has `load`."""

    guesses = False  # whether text is read as numbers

    @abstractmethod
    def load(self) -> FileContent:
        """Read the file."""

    @cached_property
    def content(self) -> FileContent:
        return self.load()

    def find(self) -> TreeContent:
        arrays, values, left_out = self.content
        leaves = {name: TreeLeaf(len(held.rows), held.field, guessed=self.guesses) for name, held in arrays.items()}
        return TreeContent(leaves, values, left_out)

    @property
    def nbytes(self) -> int:
        return sum(buffer.rows.nbytes for buffer in self.content.arrays.values()) + (1 << 10)

    def read(self, name: str, start: int, stop: int) -> Array:
        return self.content.arrays[name].rows[start:stop]


class StackedTree(FileTree):
    """Files with one row each, which have the arrays of the first. `tree` opens one. Cost of a row: one file."""

    def __init__(self, paths: Sequence[Path], tree: Callable[[Path], FileTree]) -> None:
        super().__init__(paths[0])
        self._paths, self._tree = paths, tree

    def find(self) -> TreeContent:
        first = self._tree(self.path)
        fields = _whole_fields(first)
        if not fields:
            raise FormatError("expected arrays of numbers in a file of one row, got none", path=self.path)
        leaves = {name: TreeLeaf(len(self._paths), field, block=1) for name, field in fields.items()}
        return TreeContent(leaves, left_out=first.left_out)

    def read(self, name: str, start: int, stop: int) -> Array:
        field = self.leaves[name].field
        out: AnyArray = np.empty((stop - start, *field.shape), field.dtype)
        for row, path in zip(out, self._paths[start:stop], strict=True):
            tree = self._tree(path)
            if (got := _whole_fields(tree).get(name)) != field:
                expected = f"{field.dtype}{list(field.shape)} as in {self.path.name}"
                message = f"expected {expected}, got {'nothing' if got is None else f'{got.dtype}{list(got.shape)}'}"
                raise FormatError(message, path=path, where=name)
            leaf = tree.leaves.get(name)
            row[...] = tree.values[name] if leaf is None else tree.read(name, 0, leaf.rows)
        return out


def _whole_fields(tree: FileTree) -> dict[str, Field]:
    """Arrays and single numbers of a file by name, each as one row."""
    numbers = {name: leaf for name, leaf in tree.leaves.items() if leaf.field.kind == "array"}
    fields = {name: Field(leaf.field.dtype, (leaf.rows, *leaf.field.shape)) for name, leaf in numbers.items()}
    single = {name: value for name, value in tree.values.items() if isinstance(value, bool | int | float)}
    return fields | {name: Field(np.asarray(value).dtype) for name, value in single.items()}


def flattened(value: Any, name: str) -> FileContent:
    """Return the arrays and single values among nested dicts and lists; a list of dicts is columns."""
    arrays: dict[str, Held] = {}
    values: dict[str, Any] = {}
    left_out: list[LeftOut] = []
    for path, leaf in _leaves(value, (), name):
        place = "/".join(path) or "values"
        if (buffer := held_of(leaf)) is not None:
            arrays[place] = buffer
        elif leaf is None or isinstance(leaf, bool | int | float | str) or is_scalar(leaf) or _is_single(leaf):
            values[place] = plain(leaf)
        else:
            kind = f"rows of different kinds, such as {leaf[:2]!r}" if is_listed(leaf) else type(leaf).__name__
            message = f"expected numbers, text, or arrays of one type, got {kind}"[:300]
            left_out.append(LeftOut("array", place, "unsupported-dtype", message))
    return FileContent(arrays, values, left_out)


def _is_single(value: object) -> bool:
    return is_array(value) and not value.ndim and value.dtype.kind in f"{NUMBERS}U"


def _leaves(value: Any, path: tuple[str, ...], name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    if len(path) > DEEPEST:
        raise FormatError(f"expected at most {DEEPEST} levels of values", path=name, where="/".join(path)[:80])
    if is_mapping(value):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, _name(key)), name)
    elif (rows := _records(value)) is not None:
        for key in dict.fromkeys(key for row in rows for key in row):
            yield from _leaves([row.get(key) for row in rows], (*path, _name(key)), name)
    else:
        yield path, value


def _name(key: object) -> str:
    return str(key).replace("/", "_") or "_"


def _records(value: Any) -> list[Mapping[Any, Any]] | None:
    """The dicts of a list that has nothing else."""
    if is_array(value) and value.dtype.hasobject and value.ndim == 1:
        value = value.tolist()
    if is_listed(value) and value and all(is_mapping(row) for row in value):
        return list(value)
    return None


def held_of(value: Any) -> Held | None:
    """Return a list or array as rows of numbers or text, perhaps ragged; None where it is neither."""
    if is_array(value):
        if value.dtype.kind in NUMBERS and value.ndim:
            return Held.numbers(value)
        if value.dtype.kind == "U" and value.ndim == 1:
            return Held.text(value.tolist())
        return _held_rows(value.tolist()) if value.dtype.hasobject and value.ndim == 1 else None
    return _held_rows(list(value)) if is_listed(value) and value else None


def _held_rows(rows: list[Any]) -> Held | None:
    if all(isinstance(row, str) for row in rows):
        return Held.text(rows)
    if all(isinstance(row, bytes) for row in rows):
        return Held.ragged(Ragged.from_bytes(rows))
    if all(row is None for row in rows):
        return None
    try:
        given = [np.asarray(row) for row in rows if row is not None]
        nothing = np.full(given[0].shape, np.nan) if len({row.shape for row in given}) == 1 else np.asarray(np.nan)
        filled = iter(given)
        return _numbers([nothing if row is None else next(filled) for row in rows])
    except (ValueError, TypeError, OverflowError):  # lists of lists of different lengths
        return None


def _numbers(rows: list[AnyArray]) -> Held | None:
    """Rows of numbers of one shape, or whose first axes differ."""
    full = [row for row in rows if row.size]
    if any(row.dtype.kind not in NUMBERS for row in full):
        return None
    if len({row.shape for row in rows}) == 1:
        return Held.numbers(np.stack(rows))
    if all(row.ndim for row in rows) and len({row.shape[1:] for row in full}) == 1:
        empty = full[0][:0]
        return Held.ragged(Ragged.from_rows([row if row.size else empty for row in rows], np.result_type(*full)))
    return None
