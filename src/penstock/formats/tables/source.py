"""Reading a table as episodes: consecutive rows with the same value in the episode column."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import FileEnds, Shapes, TableColumn, array_of, arrow, leaves_of, values_of
from penstock.containers.on_demand import FilesOnDemand
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.account import LeftOut
from penstock.formats.base.ends import Meaning, check_meanings
from penstock.formats.base.file_facts import MANY_FILES, FileFacts, FileSurvey, FileTable
from penstock.formats.base.format import folder_of
from penstock.formats.base.pieces import BlockRows
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.base.step_runs import StepRuns, Values, plain
from penstock.formats.tables.episodes import EndColumns, end_leaves, episode_names, runs_of
from penstock.formats.tables.shards import (
    INFO,
    JSON_SUFFIXES,
    SUFFIXES,
    TableShard,
    files_at,
    instead_of_table,
    kind_by,
    open_shard,
    open_shards,
    read_object,
    unused_in,
)

FOOTER_BYTES = 64 << 20  # footers of Parquet files that stay in memory
OPENED = 256  # files that stay open for the next read
_DIGEST = 32  # bytes of a digest of the ends of a file
_FILES = ("rows", "digest", "start")  # facts that are not of runs


def is_surveyed(files: Sequence[Path]) -> bool:
    """Whether a table has so many files that what opening learns of them is kept."""
    return len(files) >= MANY_FILES and files[0].suffix not in JSON_SUFFIXES


def survey_of(
    files: Sequence[Path], episode: str | None = None, meanings: Mapping[str, Meaning] | None = None
) -> FileSurvey:
    ends: dict[str, Meaning] = dict(meanings or {})
    return FileSurvey(
        f"tables 4 {episode!r} {sorted(ends.items())}", files, partial(_facts, episode=episode, ends=ends)
    )


def _facts(path: Path, episode: str | None, ends: Mapping[str, Meaning]) -> FileFacts:
    """What opening needs to know of a file: its schema, the rows of its blocks, its episodes, a digest of its ends."""
    file_ends = FileEnds.of(path)
    digest = np.frombuffer(bytes.fromhex(str(file_ends.identity[2])), np.uint8)
    if (kind := kind_by(file_ends.head, path.suffix)) is None:
        none = np.zeros(0, np.int64)
        return FileFacts({"kind": None}, {"rows": none, "digest": digest, "start": none})
    shard = open_shard(path, kind, Cache(FOOTER_BYTES))
    schema = shard.schema.remove_metadata()
    leaves = end_leaves(schema, episode, ends, path)
    columns = EndColumns.of(leaves, episode, ends, path)
    runs = runs_of([shard], leaves, columns)
    return FileFacts(
        {"kind": kind, "schema": base64.b64encode(schema.serialize()).decode(), "behind": shard.behind},
        {
            "rows": np.array(shard.rows, np.int64),
            "digest": digest,
            "start": runs.start,
            **runs.stored(),
        },
    )


class SurveyedShards(FilesOnDemand[TableShard]):
    """The files of a table by their facts: a file is opened when its rows are read, and closed when others are."""

    def __init__(self, files: Sequence[Path], table: FileTable, footers: Cache) -> None:
        super().__init__(files, table.states, partial(_open_surveyed, files, table, footers), OPENED)
        self.table = table

    def schemas(self) -> list[tuple[Path, Any]]:
        """Return each distinct schema, with the first file that has it."""
        pa = arrow()
        first = np.unique(self.table.text, return_index=True)[1]
        schemas: list[tuple[Path, Any]] = []
        numbers: list[int] = np.sort(first).tolist()
        for number in numbers:
            if (stored := self.table[number].values.get("schema")) is None:
                continue  # no table
            raw = base64.b64decode(stored)
            schemas.append((self.paths[number], pa.ipc.read_schema(pa.py_buffer(raw))))
        return schemas

    def left_out(self) -> list[LeftOut]:
        """Return the entries of files that are no tables, or have other bytes behind their end."""
        odd = [
            number
            for number, text in enumerate(map(json.loads, self.table.texts))
            if text["kind"] is None or text["behind"] is not None
        ]
        entries: list[LeftOut] = []
        for number in np.flatnonzero(np.isin(self.table.text, odd)).tolist():
            path, values = self.paths[number], self.table[number].values
            entries.append(no_table(path) if values["kind"] is None else left_behind(path, values["behind"]))
        return entries

    def identities(self) -> Iterator[list[int | str]]:
        """Yield size, time and digest of the ends of each file, as `TableShard.identity` has them."""
        digests = self.table.arrays["digest"].reshape(-1, _DIGEST)
        for number, state in enumerate(self.states):
            yield [state.size, state.mtime_ns, digests[number].tobytes().hex()]

    def runs(self) -> StepRuns:
        """Return the runs of each file, in order of the files."""
        table, ends = self.table, self.table.ends
        rows = np.add.reduceat(np.append(table.arrays["rows"], 0), ends["rows"][:-1]) * (np.diff(ends["rows"]) > 0)
        before = np.repeat(offsets_of(rows)[:-1], table.counts["start"])
        stored: dict[str, AnyArray] = {name: table.arrays[name] for name in table.arrays if name not in _FILES}
        return StepRuns.restored(table.arrays["start"] + before, stored, int(rows.sum()))


def _open_surveyed(files: Sequence[Path], table: FileTable, footers: Cache, number: int) -> TableShard:
    """Open a file, and compare it with its facts."""
    facts, path = table[number], files[number]
    shard = open_shard(path, facts.values["kind"], footers)
    if shard.rows != facts.arrays["rows"].tolist():
        raise FormatError(f"expected blocks of {facts.arrays['rows'].tolist()} rows, got {shard.rows}", path=path)
    return shard


@dataclass(frozen=True, eq=False)
class OpenedTable:
    """The files of a table, and their blocks of rows."""

    shards: Sequence[TableShard]
    schemas: list[tuple[Path, Any]]
    identities: Iterable[list[int | str]]
    counts: IntArray
    rows: IntArray
    left_out: Sequence[LeftOut] = ()

    @property
    def shard(self) -> IntArray:
        """`[B]` file of each block."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def number(self) -> IntArray:
        """`[B]` number of each block in its file."""
        return np.arange(len(self.rows)) - np.repeat(offsets_of(self.counts)[:-1], self.counts)

    def runs(self, leaves: Mapping[str, TableColumn], columns: EndColumns) -> StepRuns:
        """Return the runs of all rows, from the survey if there is one; otherwise read the columns."""
        if isinstance(self.shards, SurveyedShards):
            return self.shards.runs()
        return runs_of(self.shards, leaves, columns)


def open_table(files: Sequence[Path], episode: str | None, meanings: Mapping[str, Meaning]) -> OpenedTable:
    """Open the files of a table; of many files only their survey."""
    footers = Cache(FOOTER_BYTES)
    if is_surveyed(files):
        table = survey_of(files, episode, meanings).table()
        shards = SurveyedShards(files, table, footers)
        if not (schemas := shards.schemas()):
            raise FormatError(instead_of_table(files[0]), path=files[0])
        rows = table.arrays["rows"]
        return OpenedTable(shards, schemas, shards.identities(), table.counts["rows"], rows, shards.left_out())
    opened, others = open_shards(files, footers)
    counts = np.array([len(shard.rows) for shard in opened], np.int64)
    rows = np.array([n for shard in opened for n in shard.rows], np.int64)
    schemas = [(shard.path, shard.schema) for shard in opened]
    left_out = [no_table(path) for path in others]
    left_out += [left_behind(shard.path, shard.behind) for shard in opened if shard.behind is not None]
    return OpenedTable(opened, schemas, [shard.identity for shard in opened], counts, rows, left_out)


def no_table(path: Path) -> LeftOut:
    """Return the entry of a file that is no table, next to others that are."""
    return LeftOut("file", path.name, "bad-file", instead_of_table(path))


def left_behind(path: Path, byte: int) -> LeftOut:
    """Return the entry of bytes behind the end of a file's content."""
    message = f"expected the end of the file or another stream, got {path.stat().st_size - byte} other bytes"
    return LeftOut("bytes", f"{path.name}: byte {byte}", "behind-the-end", message)


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
            account=replace(account, left_out=(*table.left_out, *unused_in(given, files), *account.left_out)),
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
