"""Read Minari's Arrow and Parquet datasets: one folder an episode, read when one of its rows is needed.

Opening reads the schema and row count of each file, or one index of the user's cache. Files with equal schemas share
one entry of `schemas`, so work on columns does not grow with the number of episodes. A read cuts its spans at the ends
of episodes, so each file is opened once a read. An episode that lacks a column, or has smaller rows than others
(`infos="union"`), gets the fill value there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import arrow
from penstock.containers.images import decode_to
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.cache import Cache
from penstock.core.ragged import Array, Ragged, equal_runs, located, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.core.space_columns import leaf_columns
from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.errors import FormatError, StateError
from penstock.files.remote import FileState, Wanted, file_state, is_mirrored
from penstock.flow import map_on_threads
from penstock.formats.base.account import Account, LeftOut, unused_files
from penstock.formats.base.pieces import RowPieces, by_run, copy_rows, cut, each_once, spread
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.minari import arrow_table, columns, index_cache, metadata
from penstock.formats.minari.arrow_table import ArrowColumn
from penstock.formats.minari.columns import ColumnStorage, Infos, SpecColumn

HELD_BYTES = 256 << 20  # of opened files and columns
_PART = 16  # part of them that a column may take to be kept in one array
PLACES = 16 << 20  # bytes of places of columns in files behind URLs
_AT_ONCE = 16  # files behind URLs whose footers are read at a time
WORTH = 64  # episodes from which keeping an index is worth a file
SUFFIXES = (".arrow", ".parquet")


def episode_directories(folder: Path) -> list[int]:
    """The numbers of the episodes whose directories are in a folder, sorted; empty where there is no folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(int(e.name) for e in entries if e.name.isascii() and e.name.isdigit() and e.is_dir())


def part(folder: Path, number: int) -> Path:
    directory = folder / str(number)
    names = [name for name in os.listdir(directory) if name.startswith("part-") and name.endswith(SUFFIXES)]
    if len(names) != 1:
        raise FormatError(f"expected one part-0.arrow or part-0.parquet, got {len(names)} parts", path=directory)
    return directory / names[0]


@dataclass(frozen=True, eq=False, kw_only=True)
class _FolderState(SourceState):
    """One state of the directory."""

    numbers: IntArray
    parts: tuple[Path, ...]
    states: list[list[Any]]
    leaves: tuple[dict[str, ArrowColumn], ...]
    which: IntArray
    columns: Mapping[str, SpecColumn]
    stated: Mapping[str, Any]


class ArrowSource(StateSource[_FolderState]):
    """A Minari dataset in Arrow or Parquet: `folder/<episode>/part-0.arrow`, and `metadata.json` next to each."""

    def __init__(self, folder: Path, infos: Infos = "strict", cache: index_cache.Where = "user") -> None:
        self.folder = Path(folder).absolute()
        self._infos: Infos = infos
        self._cache: index_cache.Where = cache
        self._held = Cache(HELD_BYTES)  # opened files by number, and columns by number and path
        self._places = Cache(PLACES)  # of columns in files behind URLs, and footers of Parquet files
        self._state = self._load()

    def __reduce__(self) -> tuple[type[ArrowSource], tuple[Path, Infos, index_cache.Where]]:
        return ArrowSource, (self.folder, self._infos, self._cache)

    @property
    def numbers(self) -> IntArray:
        """`[E]` int64 the names of the episodes' directories; `0 .. E - 1` in a sound dataset."""
        return self.state.numbers

    @property
    def suffix(self) -> str:
        """ "arrow" or "parquet", by the files."""
        return (
            self.state.parts[0].suffix[1:] if self.state.parts else str(self.state.metadata.get("data_format", "arrow"))
        )

    @property
    def frames(self) -> frozenset[str]:
        """The columns that are stored as JPEG."""
        return frozenset(path for leaves in self.state.leaves for path, leaf in leaves.items() if leaf.images)

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Each piece from its episode, in the order of the files. Images are decoded together."""
        view, field = self.state, self.spec[column]
        stored = [leaves[column].images for leaves in view.leaves if column in leaves]
        if any(stored):
            self._read_images(view, column, selection, out)
            return
        first = self.rows(field.align)
        pieces = cut(first, selection.start, selection.length, selection.destination)
        if field.row_bytes * int(first[-1]) <= HELD_BYTES // _PART:
            rows = self._joined(view, column, pieces.run)
            out[ranges(pieces.destination, pieces.length)] = rows[ranges(pieces.start, pieces.length)]
            return
        pieces = pieces.take(np.argsort(pieces.run, kind="stable"))
        for e, mine in by_run(pieces._replace(start=pieces.start - first[pieces.run])):
            self._copy(view, column, e, mine, out)

    def _joined(self, view: _FolderState, column: str, episodes: IntArray) -> AnyArray:
        """Return the rows of a small column of all episodes, which are complete for some of them.

        A batch has rows of nearly as many episodes, and to look at an array of each takes longer than a picture.
        """
        field, first = view.spec[column], self.rows(view.spec[column].align)

        def begun() -> tuple[tuple[AnyArray, BoolArray], int]:
            rows = np.empty((int(first[-1]), *field.shape), field.dtype)
            return (rows, np.zeros(len(first) - 1, np.bool_)), rows.nbytes + len(first)

        rows, complete = self._held.get((view, column), begun)
        missing: list[int] = np.unique(episodes[~complete[episodes]]).tolist()
        for e in missing:
            begin, end = first[e : e + 2].tolist()
            self._copy(view, column, e, RowPieces(*np.array([[e], [0], [end - begin], [begin]])), rows)
            complete[e] = True
        return rows

    def _read_images(self, view: _FolderState, column: str, selection: Selection, out: AnyArray) -> None:
        """Decode each wanted image once, and copy it to its other places."""
        first = self.rows(self.spec[column].align)
        wanted, own, (targets, sources) = each_once(selection)
        episodes, rows = located(first, wanted)
        blobs: list[bytes] = []
        decoded: list[int] = []  # numbers of wanted rows that are images
        for e, begin, end in equal_runs(episodes):
            leaf = view.leaves[int(view.which[e])].get(column)
            if leaf is None or not leaf.images:
                mine = RowPieces(episodes, rows, np.ones_like(rows), own).take(slice(begin, end))
                self._copy(view, column, e, mine, out)
                continue
            blobs += self._blobs(view, e, column, leaf, rows[begin:end])
            decoded += range(begin, end)
        places: list[int] = own[decoded].tolist()
        decode_to(blobs, out, places, lambda i: f"{column}, row {rows[decoded[i]]} of episode {episodes[decoded[i]]}")
        out[targets] = out[sources]

    @override
    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        """The columns of the episodes. Cost: the footers of large files, which are fetched several at a time."""
        view, field = self.state, self.spec[column]
        name = column.partition("/")[0]
        if name in (columns.PRESENT, columns.SHAPES) or not is_mirrored(self.folder):
            return []
        first = self.rows(field.align)
        episodes, rows = located(first, np.unique(ranges(selection.start, selection.length)))
        wanted = {e: rows[begin:end] for e, begin, end in equal_runs(episodes)}
        stored = [e for e in wanted if column in view.leaves[int(view.which[e])]]

        def named(e: int) -> list[Wanted]:
            if view.leaves[int(view.which[e])][column].images and not arrow_table.is_small(view.parts[e]):
                alone = self._opened(view, e).blob_ranges(column, wanted[e], self._held)
                if alone is not None:
                    return alone
            return arrow_table.remote_ranges(view.parts[e], name, self._places)

        return [wanted for part in map_on_threads(named, stored, _AT_ONCE, name="penstock-footers") for wanted in part]

    def _copy(self, view: _FolderState, column: str, e: int, pieces: RowPieces, out: AnyArray) -> None:
        """Copy rows of an episode; all are one value where it does not store the column, or has smaller rows."""
        leaf = view.leaves[int(view.which[e])].get(column)
        if leaf is not None and leaf.shape == out.shape[1:]:
            copy_rows(self._column(view, e, column, leaf), pieces, out)
            return
        places = ranges(pieces.destination, pieces.length)
        out[places] = self._value(view, column, e)
        if leaf is not None:
            rows = self._column(view, e, column, leaf)[ranges(pieces.start, pieces.length)]
            out[(places, *map(slice, leaf.shape))] = rows

    def _value(self, view: _FolderState, column: str, e: int) -> Any:
        """Return the value of rows that an episode does not store."""
        name, _, rest = column.partition("/")
        if name == columns.PRESENT:
            return e not in view.columns[rest].missing
        if name == columns.SHAPES and (shapes := view.columns[rest].shapes) is not None:
            return shapes[e]
        field = view.spec[column]
        return columns.fill_value(field).view(field.dtype).reshape(field.shape)

    def _blobs(self, view: _FolderState, e: int, column: str, leaf: ArrowColumn, rows: IntArray) -> list[bytes]:
        """Encoded images of an episode."""
        blobs = self._opened(view, e).blobs(column, rows, self._held)
        return self._column(view, e, column, leaf).take(rows).blobs() if blobs is None else blobs

    @override
    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        view, field = self.state, self.spec[column]
        first = self.rows(field.align)
        pieces = cut(first, selection.start, selection.length, selection.start)
        values: list[Ragged] = [Ragged(np.empty(0, field.dtype), np.zeros(1, np.int64))]
        for e, start, length, _ in zip(*(a.tolist() for a in pieces), strict=True):
            leaf = view.leaves[int(view.which[e])].get(column)
            if leaf is None:
                values.append(Ragged(np.empty(0, field.dtype), np.zeros(int(length) + 1, np.int64)))
            else:
                values.append(self._column(view, e, column, leaf)[start - int(first[e]) :][:length])
        return spread(Ragged.concatenate(values), selection)

    def _column(self, view: _FolderState, e: int, column: str, leaf: ArrowColumn) -> Any:
        """A leaf of an episode, loaded or from the cache."""
        number = int(view.numbers[e])

        def loaded() -> tuple[tuple[Array, arrow_table.EpisodeFile], int]:
            opened = self._opened(view, e)
            opened.check()
            steps = int(view.offsets[e + 1] - view.offsets[e])
            rows = {"step": steps, "boundary": steps + 1, "episode": 1}[leaf.align]
            table = opened.column(column.split("/", 1)[0])
            array = arrow_table.values(table, column, leaf, rows, view.parts[e])
            return (array, opened), min(opened.nbytes_of(array), HELD_BYTES)  # of any size, until others come

        array, opened = self._held.get((number, column), loaded)
        opened.check()
        return array

    def _opened(self, view: _FolderState, e: int) -> arrow_table.EpisodeFile:
        def opened() -> tuple[arrow_table.EpisodeFile, int]:
            file = arrow_table.EpisodeFile(view.parts[e], self._places)
            return file, file.nbytes

        return self._held.get(int(view.numbers[e]), opened)

    @property
    def stated(self) -> Mapping[str, Any]:
        return self.state.stated

    def stored_entries(self, e: int) -> dict[str, Any]:
        """Metadata of an episode as stored, where its number and length may be wrong."""
        return metadata.read_json(self.folder / str(self.numbers[e]) / metadata.FILE) or {}

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Contents of the `metadata.json` next to each episode's file."""
        view = self.state
        lengths = np.diff(view.offsets)
        entries = [self.stored_entries(int(e)) for e in episodes]
        return [metadata.episode_entries(f, int(e), int(lengths[e])) for f, e in zip(entries, episodes, strict=True)]

    def refresh(self) -> bool:
        """List the directory again."""
        old = self.state
        new = self._load()
        kept = len(old.offsets)
        if not np.array_equal(new.offsets[:kept], old.offsets) or (kept > 1 and new.spec != old.spec):
            raise StateError(f"expected {self.folder} to have grown, got other episodes; open it again")
        self._state = new
        return len(new.offsets) > kept

    def _load(self) -> _FolderState:
        entries = metadata.read_json(self.folder / metadata.FILE)
        left_out = [metadata.lost()] if entries is None else []
        entries = entries or {}
        both = {
            "observations": metadata.space(entries, "observation_space", self.folder),
            "actions": metadata.space(entries, "action_space", self.folder),
        }
        numbers, parts, rows, which, schemas, states, torn = self._index()
        known = leaf_columns("observations", both["observations"]) | leaf_columns("actions", both["actions"])
        unreadable: dict[str, str] = {}
        leaves = tuple(arrow_table.leaves(schema, known, self.folder, unreadable) for schema in schemas)
        left_out += [*torn, *columns.unread(unreadable, self._infos, self.folder)]
        offsets = offsets_of(rows - 1)
        resolved, skipped = self._resolve(leaves, which, offsets, known)
        fields = (
            {c.path: c.field for c in resolved}
            if resolved
            else columns.of_spaces(both["observations"], both["actions"])
        )
        fields.update({path: c.field for path, c in columns.derived(resolved).items()})
        spec = Spec(fields, both["observations"], both["actions"])
        totals = {"total_episodes": len(numbers), "total_steps": int(offsets[-1])}
        digest = hashlib.sha256(json.dumps([states, spec.fingerprint]).encode()).hexdigest()
        return _FolderState(
            spec=spec,
            offsets=offsets,
            digest=digest,
            metadata={**entries, **totals},
            account=Account((*left_out, *skipped, *self._other_files())),
            stated={name: entries[name] for name in totals if name in entries},
            numbers=numbers,
            parts=parts,
            states=states,
            leaves=leaves,
            which=which,
            columns={c.path: c for c in resolved},
        )

    def _resolve(
        self,
        leaves: Sequence[Mapping[str, ArrowColumn]],
        which: IntArray,
        offsets: IntArray,
        known: Mapping[str, Space],
    ) -> tuple[list[SpecColumn], list[LeftOut]]:
        if len(which) == 0:
            return [], []
        lengths = np.diff(offsets)
        stored: dict[str, list[ColumnStorage]] = {}
        for number, columns_of in enumerate(leaves):
            episode = np.flatnonzero(which == number)
            for path, leaf in columns_of.items():
                rows = {"step": lengths, "boundary": lengths + 1, "episode": np.ones_like(lengths)}[leaf.align][episode]
                stored.setdefault(path, []).append(ColumnStorage(leaf.kind, leaf.dtype, leaf.shape, episode, rows))
        for path in known:
            if path not in stored:
                raise FormatError(
                    f"expected the column {path} that the space names, got {list(stored)}", path=self.folder
                )
        ranked = {path: stored[path] for path in columns.in_order(stored, known)}
        return columns.resolve(ranked, lengths, self._infos, self.folder)

    def _other_files(self) -> list[LeftOut]:
        """Files and folders next to the episodes."""
        with os.scandir(self.folder) as entries:
            names = {entry.name for entry in entries if not (entry.name.isdigit() and entry.is_dir())}
        return unused_files(names - {metadata.FILE}, "a folder for each episode")

    def _index(
        self,
    ) -> tuple[IntArray, tuple[Path, ...], IntArray, IntArray, list[Any], list[list[Any]], list[LeftOut]]:
        """Episodes, their files, rows and schemas, and those that were left out; from the cache if nothing changed."""
        numbers, parts, seen, left_out = self._listed()
        states = [[state.size, state.mtime_ns] for state in seen]
        file = index_cache.index_file(self.folder, self._cache)
        key = json.dumps([str(self.folder), states, [state.inode for state in seen]])
        cached = None if file is None or self._cache == "refresh" else file.read(key)
        if cached is not None:
            header, arrays = cached
            schemas = [arrow().ipc.read_schema(arrow().py_buffer(base64.b64decode(s))) for s in header["schemas"]]
            kept = len(arrays["rows"])
            torn = [*left_out, *map(LeftOut.from_json, header["left_out"])]
            return numbers[:kept], parts[:kept], arrays["rows"], arrays["which"], schemas, states[:kept], torn
        rows, which, schemas, torn = self._scan(parts)
        kept = len(rows)
        if file is not None and kept >= WORTH:
            packed = [base64.b64encode(s.serialize().to_pybytes()).decode() for s in schemas]
            header = {"schemas": packed, "left_out": [entry.to_json() for entry in torn]}
            file.write(key, header, {"rows": rows, "which": which}, settled=all(state.is_settled for state in seen))
        return numbers[:kept], parts[:kept], rows, which, schemas, states[:kept], [*left_out, *torn]

    def _listed(self) -> tuple[IntArray, tuple[Path, ...], list[FileState], list[LeftOut]]:
        parts: list[Path] = []
        left_out: list[LeftOut] = []
        numbers = episode_directories(self.folder)
        for i, number in enumerate(numbers):
            try:
                parts.append(part(self.folder, number))
            except FormatError as error:
                if i + 1 < len(numbers):
                    raise
                left_out.append(_torn(self.folder / str(number), error))
        return np.array(numbers[: len(parts)], np.int64), tuple(parts), [file_state(p) for p in parts], left_out

    def _scan(self, parts: Sequence[Path]) -> tuple[IntArray, IntArray, list[Any], list[LeftOut]]:
        rows: list[int] = []
        which: list[int] = []
        schemas: list[Any] = []
        left_out: list[LeftOut] = []
        for i, path in enumerate(parts):
            try:
                schema, count = arrow_table.read_schema(path)
            except FormatError as error:
                if i + 1 < len(parts):
                    raise
                left_out.append(_torn(path, error))
                break
            if count < 1:
                raise FormatError("expected at least the first observation, got no rows", path=path)
            last = which[-1:]  # tried first: most files have the schema of the file before
            known = (n for n in (*last, *range(len(schemas))) if schemas[n].equals(schema, check_metadata=True))
            which.append(next(known, len(schemas)))
            if which[-1] == len(schemas):
                schemas.append(schema)
            rows.append(count)
        return np.array(rows, np.int64), np.array(which, np.int64), schemas, left_out


def _torn(path: Path, error: FormatError) -> LeftOut:
    """The entry of the last episode, which a killed writer leaves not whole."""
    place = path.name if path.name.isdigit() else f"{path.parent.name}/{path.name}"
    message = f"expected a whole episode, got the last one not whole: {str(error).partition(' - at ')[0]}"
    return LeftOut("file", place, "bad-file", message)
