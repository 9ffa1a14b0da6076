"""Reading a table as episodes: consecutive rows with the same value in the episode column."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import Shapes, TableColumn, array_of, leaves_of, values_of
from penstock.containers.cache import Cache
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, FormatError, require, suggestion
from penstock.files.remote import Wanted
from penstock.formats.base.blocks import BlockRows
from penstock.formats.base.format import folder_of
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.tables.files import INFO, SUFFIXES, files_at, read_object
from penstock.formats.tables.shards import TableShard, open_shards

# Names of episode columns, the first that a table has is used.
KNOWN = (
    *("episode_index", "episode_id", "episode", "episode_idx", "episode_number"),
    *("trajectory_id", "trajectory_index", "trajectory", "traj_id", "traj_index", "rollout_id", "game_id"),
)

FOOTER_BYTES = 64 << 20  # footers of Parquet files that stay in memory


@dataclass(frozen=True, eq=False)
class _TableBlock:
    """Rows that are decoded together: block `number` of a file."""

    shard: TableShard
    number: int


@dataclass(frozen=True, eq=False, kw_only=True)
class _TableState(SourceState):
    leaves: Mapping[str, TableColumn]
    shards: tuple[_TableBlock, ...]
    rows: BlockRows
    episodes: Sequence[Any]  # value of the episode column


class TableSource(StateSource[_TableState]):
    """A Parquet, Arrow or JSON-lines table, or a folder of shards, with a row for each step.

    Args:
        path: File, folder, or the files of one table.
        episode: Path of the column whose value is constant in an episode, integers or text. The default is None: the
            first of the known names.
        columns: Names of the table's columns to read; the episode column is always read. The default is None: all.
        shapes: Shape of a row, for columns of lists that have the same length in every row. The default is none: such
            columns are ragged in Parquet and Arrow files. Lists of a fixed size need no shape.
        cache_bytes: Most bytes of decoded columns that stay in memory. The default is 256 MiB.

    Raises:
        FormatError: A file is damaged, files have different columns, or rows of an episode are not next to each other.
        ArgumentError: A column of the options does not exist.
        MissingExtraError: PyArrow is not installed.

    Cost of opening: the footers, and one pass over the episode column; JSON lines are read as a whole.
    """

    def __init__(
        self,
        path: Path | Sequence[Path],
        *,
        episode: str | None = None,
        columns: Sequence[str] | None = None,
        shapes: Shapes | None = None,
        cache_bytes: int = 256 << 20,
    ) -> None:
        given = path.absolute() if isinstance(path, Path) else tuple(file.absolute() for file in path)
        self._given: Path | tuple[Path, ...] = given
        folder = folder_of(given)
        self._options = episode, columns, shapes, cache_bytes
        self._cache = Cache(cache_bytes)
        files = files_at(given)
        if not files:
            raise FormatError(f"expected files named {SUFFIXES}, got none", path=folder)
        shards = open_shards(files, Cache(FOOTER_BYTES))
        wanted = None if columns is None else frozenset(columns) | _episode_names(shards, episode)
        sizes = {name: tuple(int(n) for n in shape) for name, shape in (shapes or {}).items()}
        leaves = _common_leaves(shards, sizes, wanted)
        column = _episode_column(leaves, episode, folder)
        blocks = tuple(_TableBlock(shard, i) for shard in shards for i in range(len(shard.rows)))
        first = offsets_of([n for shard in shards for n in shard.rows])
        offsets, values = _episodes(blocks, leaves[column], column, folder)
        spec = Spec({name: leaf.field for name, leaf in leaves.items()})
        identity = json.dumps([[shard.identity for shard in shards], column, spec.fingerprint])
        info = folder / INFO
        self._column = column
        self._state = _TableState(
            spec=spec,
            offsets=offsets,
            digest=hashlib.sha256(identity.encode() + offsets.tobytes()).hexdigest(),
            metadata={
                "episode_column": column,
                "files": [file.name for file in files],
                **({"dataset_info": read_object(info)} if info.is_file() else {}),
            },
            leaves=leaves,
            shards=blocks,
            rows=BlockRows.whole(first),
            episodes=values,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._given, *self._options)

    @override
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        state = self.state
        state.rows.read_array(lambda block: self._rows(state, column, block), selection, out)

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        state = self.state
        return state.rows.read_ragged(lambda block: self._rows(state, column, block), state.spec[column], selection)

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        state = self.state
        name = state.leaves[column].names[0]
        blocks = (state.shards[number] for number in state.rows.blocks(selection))
        return [wanted for block in blocks for wanted in block.shard.remote_ranges(block.number, name)]

    def _rows(self, state: _TableState, column: str, number: int) -> Array:
        """Return the rows of a column in a block, decoded or from the cache."""
        block = state.shards[number]
        leaf = state.leaves[column]

        def decoded() -> tuple[Array, int]:
            with parsing(block.shard.path, f"{column}, block {block.number} of the file"):
                rows = values_of(array_of(block.shard.column(block.number, leaf.names[0]), leaf), leaf.field)
            return rows, rows.nbytes

        block.shard.check()
        return self._cache.get((number, column), decoded)

    def damage(self) -> list[tuple[str, FormatError]]:
        """Read every block of every column, and return place and errors of unreadable blocks."""
        damaged: list[tuple[str, FormatError]] = []
        for column in self.spec:
            for number in range(len(self.state.shards)):
                try:
                    self._rows(self.state, column, number)
                except FormatError as error:
                    damaged.append((column, error))
        return damaged

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return [{self._column: self.state.episodes[e]} for e in episodes]


def _reopened(
    path: Path | tuple[Path, ...],
    episode: str | None,
    columns: Sequence[str] | None,
    shapes: Shapes | None,
    cache_bytes: int,
) -> TableSource:
    return TableSource(path, episode=episode, columns=columns, shapes=shapes, cache_bytes=cache_bytes)


def _common_leaves(
    shards: Sequence[TableShard], shapes: Shapes, wanted: frozenset[str] | None
) -> dict[str, TableColumn]:
    """Return the columns of all files. Raises `FormatError` if a file has others than the first."""
    leaves: dict[str, TableColumn] = {}
    for shard in shards:
        mine = leaves_of(shard.schema, shapes, wanted, shard.path)
        leaves = leaves or mine
        if other := [name for name in {**leaves, **mine} if leaves.get(name) != mine.get(name)]:
            expected = {name: leaves[name].field for name in other if name in leaves}
            common = {name: mine[name].field for name in other if name in mine}
            message = (
                f"expected the columns of {shards[0].path.name}, {expected}, got {common}; convert them to one type"
            )
            raise FormatError(message, path=shard.path)
    return leaves


def _episode_names(shards: Sequence[TableShard], name: str | None) -> set[str]:
    """Return the table's column that has the episode, which is read in any case."""
    names = [name.split("/")[0]] if name is not None else [known for known in KNOWN if known in shards[0].schema.names]
    return set(names[:1])


def _episode_column(leaves: Mapping[str, TableColumn], name: str | None, path: Path) -> str:
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


def _episodes(blocks: Sequence[_TableBlock], leaf: TableColumn, name: str, path: Path) -> tuple[IntArray, list[Any]]:
    """Return `[E + 1]` offsets and the values of the episode column.

    A run of equal values is an episode. Raises `FormatError` if two runs have the same value.
    """
    pc = require("pyarrow.compute", "arrow")
    starts: list[int] = []
    values: list[Any] = []
    row = 0
    for block in blocks:
        with parsing(block.shard.path, name):
            column = array_of(block.shard.column(block.number, leaf.names[0]), leaf)
            if column.null_count:
                raise FormatError(f"expected the episode of every row, got {column.null_count} missing; fill them")
            change = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
            begins = np.flatnonzero(np.append(len(column) > 0, change.to_numpy(zero_copy_only=False)))
            begun = [column[begin].as_py() for begin in begins.tolist()]
        continued = bool(begun and values and begun[0] == values[-1])  # the episode goes on in this block
        starts += (begins[continued:] + row).tolist()
        values += begun[continued:]
        row += len(column)
    seen: dict[Any, int] = {}
    for start, value in zip(starts, values, strict=True):
        if seen.setdefault(value, start) != start:
            raise FormatError(
                f"expected the rows of an episode next to each other, got {name} {value!r} at row {seen[value]} and "
                f"again at row {start}; sort the table by {name} and step, or name another column with `episode`",
                path=path,
                where=name,
            )
    return np.array([*starts, row], np.int64), values
