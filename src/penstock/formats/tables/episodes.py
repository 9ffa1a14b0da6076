"""The episodes of a table: runs of equal values in one column, which is named, or found by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import TableColumn, array_of
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.narrowing import is_scalar
from penstock.core.ragged import offsets_of
from penstock.errors import ArgumentError, FormatError, require, suggestion
from penstock.formats.tables.shards import TableShard

# Names of episode columns, the first that a table has is used.
KNOWN = (
    *("episode_index", "episode_id", "episode", "episode_idx", "episode_number"),
    *("trajectory_id", "trajectory_index", "trajectory", "traj_id", "traj_index", "rollout_id", "game_id"),
)

Values = AnyArray | Sequence[str]


@dataclass(frozen=True, eq=False)
class ValueRuns:
    """Runs of equal values in the episode column.

    Args:
        start: `[n]` int64 row at which each run begins.
        values: `[n]` value of each run: an array of integers, or texts.
        rows: Number of rows.

    Example:
        >>> runs = ValueRuns(np.array([0, 2, 4]), np.array([5, 5, 6]), 6)
        >>> [part.tolist() for part in runs.episodes(Path("a"), "episode")]
        [[0, 4, 6], [5, 6]]
    """

    start: IntArray
    values: Values
    rows: int

    def stored(self) -> dict[str, AnyArray]:
        """Return the values as arrays. `restored` is the inverse, also of several arrays joined."""
        if isinstance(self.values, np.ndarray):
            return {"value": self.values}
        texts = [text.encode() for text in self.values]
        lengths = np.array([len(text) for text in texts], np.int64)
        return {"value text": np.frombuffer(b"".join(texts), np.uint8), "value length": lengths}

    @classmethod
    def restored(cls, start: IntArray, arrays: Mapping[str, AnyArray], rows: int) -> ValueRuns:
        """Return runs whose values `stored` made arrays of."""
        if "value" in arrays:
            return cls(start, arrays["value"], rows)
        raw, ends = arrays["value text"].tobytes(), offsets_of(arrays["value length"]).tolist()
        return cls(start, [raw[a:b].decode() for a, b in pairwise(ends)], rows)

    def episodes(self, path: Path, name: str) -> tuple[IntArray, Values]:
        """Return `[E + 1]` offsets and the value of each episode. Adjacent runs of one value are one episode.

        Args:
            path: The table, for messages.
            name: Name of the episode column, for messages.

        Raises:
            FormatError: Two runs that are not adjacent have one value.
        """
        values = self.values if isinstance(self.values, np.ndarray) else np.array(self.values, object)
        begins = np.ones(len(values), np.bool_)
        begins[1:] = values[1:] != values[:-1]
        start, kept = self.start[begins], values[begins]
        order = np.argsort(kept, kind="stable")
        again = order[1:][kept[order][1:] == kept[order][:-1]]
        if len(again):
            late = int(again.min())
            value = kept[late]
            first = int(start[np.flatnonzero(kept == value)[0]])
            raise FormatError(
                f"expected the rows of an episode next to each other, got {name} {plain(value)!r} at row {first} and "
                f"again at row {start[late]}; sort the table by {name} and step, or name another column with `episode`",
                path=path,
                where=name,
            )
        return np.append(start, self.rows).astype(np.int64), kept if isinstance(self.values, np.ndarray) else list(kept)


def plain(value: Any) -> Any:
    """Return the value of an episode as a number of Python, or as text."""
    return value.item() if is_scalar(value) else value


def runs_of(blocks: Sequence[tuple[TableShard, int]], leaf: TableColumn, name: str) -> ValueRuns:
    """Return the runs of the episode column in blocks of files.

    Args:
        blocks: File and number of each block, in order.
        leaf: The episode column.
        name: Its path, for messages.

    Raises:
        FormatError: A row has no value.
    """
    pc = require("pyarrow.compute", "arrow")
    text = leaf.field.kind == "text"
    starts, row = [np.zeros(0, np.int64)], 0
    numbers: list[AnyArray] = [np.zeros(0, leaf.field.dtype)]
    texts: list[str] = []
    for shard, number in blocks:
        if leaf.field.dtype.kind == "i" and (value := shard.constant(number, name)) is not None:
            starts.append(np.array([row]))
            numbers.append(np.array([value], leaf.field.dtype))
            row += shard.rows[number]
            continue
        with parsing(shard.path, name):
            column = array_of(shard.column(number, leaf.names[0]), leaf)
            if column.null_count:
                raise FormatError(f"expected the episode of every row, got {column.null_count} missing; fill them")
            change = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
            begins = np.flatnonzero(np.append(len(column) > 0, change.to_numpy(zero_copy_only=False)))
            begun = column.take(begins)
            if text:
                texts += begun.to_pylist()
            else:
                numbers.append(begun.to_numpy(zero_copy_only=False).astype(leaf.field.dtype, copy=False))
        starts.append(begins + row)
        row += len(column)
    return ValueRuns(np.concatenate(starts), texts if text else np.concatenate(numbers), row)


def episode_names(schema: Any, name: str | None) -> set[str]:
    """Return the table's column that has the episode, which is read in any case."""
    names = [name.split("/")[0]] if name is not None else [known for known in KNOWN if known in schema.names]
    return set(names[:1])


def episode_column(leaves: Mapping[str, TableColumn], name: str | None, path: Path) -> str:
    """Return the path of the episode column.

    Raises:
        FormatError: No column has a known name, or the column has other values than integers and text.
        ArgumentError: There is no column of the given name.
    """
    if name is None:
        column = next((known for known in KNOWN if known in leaves), None)
        if column is None:
            raise FormatError(
                f"expected a column with the episode of each row, such as {KNOWN[0]!r}, got {list(leaves)}; say which, "
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
