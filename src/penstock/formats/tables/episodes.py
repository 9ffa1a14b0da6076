"""The episodes of a table: runs of equal values in one column, which is named, or found by its name.

`formats.base.step_runs` decides where an episode begins: where that value changes, after a true flag of ends, and
where the step number starts again. Recordings that number their episodes alike stay apart, and an episode may go on in
the next file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import TableColumn, array_of, leaves_of, numbers_of
from penstock.core.arrays import AnyArray
from penstock.core.boundary import parsing
from penstock.core.ragged import offsets_of
from penstock.errors import ArgumentError, FormatError, require, suggestion
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.ends import IDS, STEPS, Meaning, meaning_of, unordered_steps, unused_end
from penstock.formats.base.step_runs import RunEpisodes, StepRuns, Values, either, run_starts
from penstock.formats.tables.shards import TableShard

FLAGS = ("termination", "truncation", "done", "end")


@dataclass(frozen=True)
class EndColumns:
    """The columns of a table that tell its episodes apart, by their paths."""

    episode: str
    step: str | None
    flags: tuple[str, ...]

    @classmethod
    def of(
        cls, leaves: Mapping[str, TableColumn], episode: str | None, meanings: Mapping[str, Meaning], path: Path
    ) -> EndColumns:
        column = episode_column(leaves, episode, path)
        numbers = {name: leaf for name, leaf in leaves.items() if name != column and _is_number(leaf)}
        steps = [name for name in numbers if meaning_of(name, meanings) == "step"]
        steps.sort(key=lambda name: (name not in meanings, _rank(name)))
        flags = (name for name in numbers if meaning_of(name, meanings) in FLAGS)
        return cls(column, steps[0] if steps else None, tuple(flags))

    def account(self, episodes: RunEpisodes) -> Account:
        """Return where episodes end, and which of the columns may mark further ends and are not used."""
        words = [f"where `{self.episode}` changes"]
        flags = " or ".join(f"`{name}`" for name in self.flags)
        if self.flags and episodes.uses_ends:
            words.append(f"where {flags} is true")
        if self.step is not None and episodes.uses_steps:
            words.append(f"where `{self.step}` starts again")
        left_out: list[LeftOut] = []
        if len(episodes.ends_within):
            message = f"{flags} is true at row {episodes.ends_within[0]} and the episode goes on"
            left_out.append(unused_end(self.flags[0], message, "column"))
        if self.step is not None and len(episodes.falls_within):
            left_out.append(unordered_steps(self.step, int(episodes.falls_within[0]), "column"))
        return Account(tuple(left_out), ends=f"episodes end {' or '.join(words)}")

    def names(self) -> list[str]:
        return [self.episode, *([] if self.step is None else [self.step]), *self.flags]


def _rank(name: str) -> int:
    last = name.rpartition(".")[2]
    return STEPS.index(last) if last in STEPS else -1


def _is_number(leaf: TableColumn) -> bool:
    return leaf.field.kind == "array" and not leaf.field.shape and leaf.field.dtype.kind in "biuf"


def runs_of(shards: Sequence[TableShard], leaves: Mapping[str, TableColumn], columns: EndColumns) -> StepRuns:
    parts = [_runs_in(shard, blocks, leaves, columns) for shard in shards for blocks in _spans(shard)]
    return StepRuns.joined(parts or [_no_runs(leaves, columns)])


def _spans(shard: TableShard) -> Iterator[list[int]]:
    """Yield the blocks that have rows, those together that are decoded at once."""
    blocks: list[int] = []
    total = 0
    for block, rows in enumerate(shard.rows):
        if blocks and total + rows > shard.together:
            yield blocks
            blocks, total = [], 0
        if rows:
            blocks.append(block)
            total += rows
    if blocks:
        yield blocks


def _no_runs(leaves: Mapping[str, TableColumn], columns: EndColumns) -> StepRuns:
    """The runs of a table without rows."""
    leaf = leaves[columns.episode]
    values: Values = [] if leaf.field.kind == "text" else np.zeros(0, leaf.field.dtype)
    steps = None if columns.step is None else np.zeros(0, leaves[columns.step].field.dtype)
    return StepRuns.at(np.zeros(0, np.int64), values, steps, np.zeros(0, np.bool_), 0)


def _runs_in(
    shard: TableShard, blocks: Sequence[int], leaves: Mapping[str, TableColumn], columns: EndColumns
) -> StepRuns:
    """The runs of blocks. Flags that are 0 in all their rows, and ids that are constant in each, are not decoded."""
    offsets, leaf = offsets_of([shard.rows[block] for block in blocks]), leaves[columns.episode]
    rows = int(offsets[-1])
    steps = None if columns.step is None else _numbers(shard, blocks, columns.step, leaves[columns.step])
    flags = [name for name in columns.flags if any(shard.constant(block, name) != 0 for block in blocks)]
    values = (_numbers(shard, blocks, name, leaves[name]) for name in flags)
    ended = either(flag if flag.dtype.kind == "b" else flag == 1 for flag in values)
    constants = [shard.constant(block, columns.episode) for block in blocks] if leaf.field.dtype.kind == "i" else [None]
    if None not in constants:
        ids = np.array(constants, leaf.field.dtype)
        begins = offsets[:-1][np.append(True, ids[1:] != ids[:-1])]
        start = np.union1d(run_starts(rows, None, steps, ended), begins)
        return StepRuns.at(start, ids[np.searchsorted(offsets, start, "right") - 1], steps, ended, rows)
    with parsing(shard.path, columns.episode):
        column = array_of(shard.columns(blocks, leaf.names[0]), leaf)
        if column.null_count:
            raise FormatError(f"expected the episode of every row, got {column.null_count} missing; fill them")
        if leaf.field.kind != "text":
            return StepRuns.of(numbers_of(column).astype(leaf.field.dtype, copy=False), steps, ended, rows)
        change = require("pyarrow.compute", "arrow").not_equal(column.slice(1), column.slice(0, rows - 1))
        start = np.union1d(run_starts(rows, None, steps, ended), np.flatnonzero(numbers_of(change)) + 1)
        return StepRuns.at(start, column.take(start).to_pylist(), steps, ended, rows)


def _numbers(shard: TableShard, blocks: Sequence[int], name: str, leaf: TableColumn) -> AnyArray:
    """A column of numbers in blocks. Missing values are NaN, which is no mark, and neither rises nor falls."""
    with parsing(shard.path, name):
        column = array_of(shard.columns(blocks, leaf.names[0]), leaf)
        if column.null_count and leaf.field.dtype.kind == "b":
            column = column.fill_null(False)
        return numbers_of(column)


def episode_names(schema: Any, name: str | None) -> set[str]:
    """Return the table's column that has the episode, which is read in any case."""
    names = [name.split("/")[0]] if name is not None else [known for known in IDS if known in schema.names]
    return set(names[:1])


def end_leaves(schema: Any, episode: str | None, meanings: Mapping[str, Meaning], path: Path) -> dict[str, TableColumn]:
    """Return the columns of a table that may tell its episodes apart, whichever columns are read."""
    types = require("pyarrow", "arrow").types
    names = episode_names(schema, episode) & set(schema.names)
    for field in schema:
        is_number = types.is_boolean(field.type) or types.is_integer(field.type) or types.is_floating(field.type)
        if is_number and meaning_of(field.name, meanings) in (*FLAGS, "step"):
            names.add(field.name)
    names |= {name.split("/")[0] for name in meanings} & set(schema.names)
    return leaves_of(schema, {}, frozenset(names) or None, path)


def episode_column(leaves: Mapping[str, TableColumn], name: str | None, path: Path) -> str:
    if name is None:
        column = next((known for known in IDS if known in leaves), None)
        if column is None:
            raise FormatError(
                f"expected a column with the episode of each row, such as {IDS[0]!r}, got {list(leaves)}; say which, "
                f"as episode={next(iter(leaves), 'name')!r}",
                path=path,
            )
        name = column
    if name not in leaves:
        raise ArgumentError(f"no column {name!r}{suggestion(name, leaves)}; there are {list(leaves)}")
    field = leaves[name].field
    if field.kind != "text" and (field.kind != "array" or field.shape or field.dtype.kind not in "iu"):
        message = f"expected integers or text as the episode of each row, got {field.kind} {field.dtype}{field.shape}"
        raise FormatError(message, path=path, where=name)
    return name
