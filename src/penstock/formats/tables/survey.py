"""Tables of many files: what opening learns of each file is kept, and a file is opened when its rows are read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import FileEnds, TableColumn, arrow
from penstock.containers.on_demand import FilesOnDemand
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import offsets_of
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock.formats.base.ends import Meaning
from penstock.formats.base.file_facts import MANY_FILES, FileFacts, FileSurvey, FileTable
from penstock.formats.base.step_runs import StepRuns
from penstock.formats.tables.episodes import EndColumns, end_leaves, runs_of
from penstock.formats.tables.files import JSON_SUFFIXES, instead_of_table, kind_by
from penstock.formats.tables.shards import TableShard, open_shard, open_shards

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
    """Return the survey of the files of a table."""
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
