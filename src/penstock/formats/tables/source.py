"""Reading a table as episodes: consecutive rows with the same value in the episode column."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.containers.arrow import Shapes, TableColumn, array_of, leaves_of, values_of
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.ends import Meaning, check_meanings
from penstock.formats.base.format import folder_of
from penstock.formats.base.pieces import BlockRows
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.base.step_runs import Values, plain
from penstock.formats.tables.episodes import EndColumns, end_leaves, episode_names
from penstock.formats.tables.files import INFO, SUFFIXES, files_at, read_object, unused_beside
from penstock.formats.tables.shards import TableShard
from penstock.formats.tables.survey import SurveyedShards, open_table


@dataclass(frozen=True, eq=False, kw_only=True)
class _TableState(SourceState):
    leaves: Mapping[str, TableColumn]
    shards: Sequence[TableShard]
    shard: IntArray  # of each block
    number: IntArray  # of each block in its file
    rows: BlockRows
    episodes: Values  # value of the episode column

    def block(self, number: int) -> tuple[TableShard, int]:
        """File of a block, and its number there."""
        return self.shards[int(self.shard[number])], int(self.number[number])


class TableSource(StateSource[_TableState]):
    """A Parquet, Arrow or JSON-lines table, or a folder of shards, with a row for each step."""

    def __init__(
        self,
        path: Path | Sequence[Path],
        *,
        episode: str | None = None,
        columns: Sequence[str] | None = None,
        shapes: Shapes | None = None,
        ends: Mapping[str, Meaning] | None = None,
        cache_bytes: int = 256 << 20,
    ) -> None:
        given = path.absolute() if isinstance(path, Path) else tuple(file.absolute() for file in path)
        folder = folder_of(given)
        meanings: dict[str, Meaning] = dict(ends or {})
        options = {"episode": episode, "columns": columns, "shapes": shapes, "ends": meanings}
        self._reopen = partial(TableSource, given, **options, cache_bytes=cache_bytes)
        self._cache = Cache(cache_bytes)
        files = files_at(given)
        if not files:
            raise FormatError(f"expected files named {SUFFIXES}, got none", path=folder)
        table = open_table(files, episode, meanings)
        wanted = None if columns is None else frozenset(columns) | episode_names(table.schemas[0][1], episode)
        sizes = {name: tuple(int(n) for n in shape) for name, shape in (shapes or {}).items()}
        leaves = _common_leaves(table.schemas, sizes, wanted)
        marks = end_leaves(table.schemas[0][1], episode, meanings, folder)
        check_meanings(meanings, marks)
        end_columns = EndColumns.of(marks, episode, meanings, folder)
        column = end_columns.episode
        runs = table.runs(marks, end_columns).episodes(folder, column)
        offsets, account = runs.offsets, end_columns.account(runs)
        spec = Spec({name: leaf.field for name, leaf in leaves.items()})
        info = folder / INFO
        self._column = column
        self._files = files
        self._state = _TableState(
            spec=spec,
            offsets=offsets,
            digest=_digest(table.identities, column, spec, offsets),
            metadata={"dataset_info": read_object(info)} if info.is_file() else {},
            leaves=leaves,
            shards=table.shards,
            shard=table.shard,
            number=table.number,
            rows=BlockRows.whole(offsets_of(table.rows)),
            episodes=runs.values,
            account=replace(account, left_out=(*table.left_out, *unused_beside(given, files), *account.left_out)),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, ()

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        names = [Path(file).name for file in self._files]
        return {"episode_column": self._column, "files": names, **self.state.metadata}

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
        blocks = map(state.block, state.rows.blocks(selection))
        return [wanted for shard, number in blocks for wanted in shard.remote_ranges(number, name)]

    def _rows(self, state: _TableState, column: str, number: int) -> Array:
        """Return the rows of a column in a block, decoded or from the cache."""
        leaf = state.leaves[column]

        def decoded() -> tuple[Array, int]:
            shard, block = state.block(number)
            with parsing(shard.path, f"{column}, block {block} of the file"):
                rows = values_of(array_of(shard.column(block, leaf.names[0]), leaf), leaf.field)
            return rows, rows.nbytes

        if not isinstance(state.shards, SurveyedShards):  # others are opened again, and compared with the survey
            state.block(number)[0].check()
        return self._cache.get((number, column), decoded)

    def damage(self) -> list[tuple[str, FormatError]]:
        """Read every block of every column, and return place and errors of unreadable blocks."""
        damaged: list[tuple[str, FormatError]] = []
        for column in self.spec:
            for number in range(len(self.state.number)):
                try:
                    self._rows(self.state, column, number)
                except FormatError as error:
                    damaged.append((column, error))
        return damaged

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        return [{self._column: plain(self.state.episodes[e])} for e in episodes]


def _digest(identities: Iterable[list[int | str]], column: str, spec: Spec, offsets: IntArray) -> str:
    """Digest of a JSON list of the identities of all files, the episode column and the columns, and of the offsets."""
    digest, between = hashlib.sha256(b"[["), ""
    for identity in identities:
        digest.update(f"{between}{json.dumps(identity)}".encode())
        between = ", "
    digest.update(f"], {json.dumps(column)}, {json.dumps(spec.fingerprint)}]".encode())
    digest.update(offsets.data)
    return digest.hexdigest()


def _common_leaves(
    schemas: Sequence[tuple[Path, Any]], shapes: Shapes, wanted: frozenset[str] | None
) -> dict[str, TableColumn]:
    """Return the columns of all files."""
    leaves: dict[str, TableColumn] = {}
    for path, schema in schemas:
        mine = leaves_of(schema, shapes, wanted, path)
        leaves = leaves or mine
        if other := [name for name in {**leaves, **mine} if leaves.get(name) != mine.get(name)]:
            expected = {name: leaves[name].field for name in other if name in leaves}
            common = {name: mine[name].field for name in other if name in mine}
            first = schemas[0][0].name
            message = f"expected the columns of {first}, {expected}, got {common}; convert them to one type"
            raise FormatError(message, path=path)
    return leaves
