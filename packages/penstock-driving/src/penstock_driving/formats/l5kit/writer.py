"""Writing scenes: rows first, the row of the scene last. Parts become one dataset, with the same bytes as one run.

`L5KitWriter.begin_at` puts the rows of a part where they are in the whole dataset, so the chunks of a part are moved,
and intervals count from the right row. If agents or faces were not known to begin elsewhere, intervals of frames are
changed here, and agents are encoded again. Arrays in `.npy` files are copied.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ATTRIBUTES, GROUP, ArrayMetadata
from penstock.containers.zarr.writing import (
    ArrayPart,
    ArrayWriter,
    GrowingArray,
    close_arrays,
    compressor_of,
    create_group,
    join_arrays,
    write_attributes,
)
from penstock.core.arrays import AnyArray
from penstock.core.cache import Cache
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError
from penstock.files import atomic_path, open_locked, sync, write_atomic
from penstock.files.remote import read_text
from penstock.formats.base.writer import LockedWriter, PartStart
from penstock_driving.formats.l5kit import npy
from penstock_driving.formats.l5kit.columns import WIDTHS, check_spec, intervals, tables_of
from penstock_driving.formats.l5kit.dtypes import CHUNK_ROWS, DTYPES, FORMAT_VERSION, FRAME_DTYPE, LABELS, SCENE_DTYPE
from penstock_driving.formats.l5kit.source import offsets_in
from penstock_driving.formats.l5kit.tables import FACES, PART, open_tables, stored_rows

Layout = Literal["zarr", "npy"]
_STRETCH = 1_000_000  # agents that are written before the scenes so far are made to last
ENTRIES = ("host", "start_time", "end_time")
"""The metadata of a scene that are stored."""


class L5KitWriter(LockedWriter):
    """Appends scenes to the dataset at `path`, of version 2. One writer at a time.

    Agents, faces and frames are written first and the row of the scene last, so that a scene never appears in part. A
    kill leaves at most rows that no scene names, which the next writer writes over. `write_all` and `write_scenes`
    commit seldom, which saves compressing the last chunk again and again.

    Of a scene's metadata `host`, `start_time` and `end_time` are kept; where they are not given, they are empty, and
    the first and the last timestamp. Other entries are refused, because the format has no place for them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        super().__init__(_locked(self.path))

    @override
    def _resume(self) -> None:
        self._attributes, self._tables = _resumed(self.path)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        spec: Spec | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        layout: Layout = "zarr",
        compressor: str | Mapping[str, Any] | None = "lz4",
        chunk_rows: int | Mapping[str, int] | None = None,
    ) -> L5KitWriter:
        """Create an empty dataset. `metadata` become attributes of the group.

        `layout` is `"zarr"`, or `"npy"` (a `.npy` file an array: the fastest to read). Of zarr, `compressor` is None, a
        name (`"lz4"` and `"zstd"` are Blosc's, level 5 with byte shuffle) or the configuration of a codec, and
        `chunk_rows` one number for all arrays or numbers by name; by default as the original has them (`CHUNK_ROWS`).
        """
        if spec is not None:
            check_spec(spec)
        attributes = {"format_version": FORMAT_VERSION, "labels": list(LABELS), **(metadata or {})}
        attributes["format_version"] = FORMAT_VERSION  # also where what was read from an older one is handed in
        chunks = _chunk_rows(chunk_rows)
        if layout not in ("zarr", "npy"):
            raise DataError(f"expected layout 'zarr' or 'npy', got {layout!r}")
        if layout == "npy" and (chunk_rows is not None or compressor not in ("lz4", None)):
            raise DataError(f"expected no chunks and no compressor in layout 'npy', got {chunk_rows} and {compressor}")
        config = compressor_of(compressor) if layout == "zarr" else None
        place = Path(path)

        def make(folder: Path) -> None:
            folder.mkdir()
            if layout == "npy":
                write_atomic(folder / npy.ATTRIBUTES, _json(attributes))
                for name in reversed(DTYPES):
                    npy.NpyAppender.create(folder / f"{name}.npy", DTYPES[name]).close()
            else:
                for name, dtype in DTYPES.items():
                    ArrayWriter.create(folder / name, ArrayMetadata.of(dtype, (0,), chunks[name], config)).close()
                create_group(folder, attributes)

        with atomic_path(place) as new_folder:
            make(new_folder)
        return cls(place)

    @override
    def begin_at(self, start: PartStart) -> None:
        """Write the rows of the next scenes where they are in the whole dataset, of which a new one is a part.

        Rows before them are missing. The last scene before them has all frames, and the last frame all agents. Agents
        and faces begin at 0 where their number is not known.
        """
        episode, step, values = start
        nested = {"agents": "agents/track_id", FACES: "tl_faces/face_id"} if step else {}
        counts = {name: values.get(path, 0) // WIDTHS[path] for name, path in nested.items()}
        first = {"scenes": episode, "frames": step, "agents": 0, FACES: 0} | counts
        scene, frame = np.zeros(1, SCENE_DTYPE), np.zeros(1, FRAME_DTYPE)
        scene["frame_index_interval"] = [0, step]
        frame["agent_index_interval"] = [0, first["agents"]]
        frame["traffic_light_faces_index_interval"] = [0, first[FACES]]
        lasts = {"scenes": scene[:episode], "frames": frame[:step]}
        for name, row in first.items():
            last = lasts.get(name, scene[:0])
            table = self._tables[name]
            if isinstance(table, ArrayWriter):
                self._tables[name] = table = ArrayWriter.begin_at(table.folder, table.metadata, row - len(last))
            else:
                table.rollback(row - len(last))
            if len(last):
                table.append(last)
        self._commit()
        write_atomic(self.path / PART, _json({"first_rows": first}))

    def __enter__(self) -> L5KitWriter:
        return self

    def __len__(self) -> int:
        return len(self._tables["scenes"])

    def write(self, episode: Episode) -> int:
        """Save one scene; returns its number in the dataset."""
        return self.write_all([episode])[0]

    def write_all(self, episodes: Iterable[Episode]) -> list[int]:
        """Save several, with a commit for each million of agents or so; one that is refused takes those since the last
        with it."""
        return self.write_scenes((scene_of(episode), *tables_of(episode)) for episode in episodes)

    def write_scene(self, scene: AnyArray | np.void, frames: AnyArray, agents: AnyArray, tl_faces: AnyArray) -> int:
        """Save one scene from its rows, returns its number. Intervals of `frames` may count from anywhere: rows that
        follow one another are taken to be `agents` and `tl_faces`. That of `scene` is not looked at.
        """
        return self.write_scenes([(scene, frames, agents, tl_faces)])[0]

    def write_scenes(self, scenes: Iterable[tuple[AnyArray | np.void, AnyArray, AnyArray, AnyArray]]) -> list[int]:
        """Save several, as `write_scene` does, with a commit for each million of agents or so; one that is refused
        takes those since the last with it. Memory: one scene, and two chunks an array."""
        self._check_open()
        before = {name: len(table) for name, table in self._tables.items()}
        numbers: list[int] = []
        try:
            for scene, frames, agents, tl_faces in scenes:
                numbers.append(self._append(scene, frames, agents, tl_faces))
                if len(self._tables["agents"]) - before["agents"] >= _STRETCH:
                    before = self._commit()
            if numbers:
                self._commit()
        except BaseException:
            for name, table in self._tables.items():
                table.rollback(before[name])
            raise
        return numbers

    def _commit(self) -> dict[str, int]:
        """Make all rows last, rows of scenes at the end; return the number of each."""
        for name in reversed(DTYPES):
            self._tables[name].commit()
        return {name: len(table) for name, table in self._tables.items()}

    def _append(self, scene: AnyArray | np.void, frames: AnyArray, agents: AnyArray, tl_faces: AnyArray) -> int:
        tables, rows = self._tables, frames.copy()
        nested = (("agents", "agent_index_interval", agents), (FACES, "traffic_light_faces_index_interval", tl_faces))
        for name, field, values in nested:
            counts = rows[field][:, 1] - rows[field][:, 0]
            if (len(counts) and counts.min() < 0) or counts.sum() != len(values):
                raise DataError(f"expected {len(values)} {name} in the intervals of the frames, got {counts.sum()}")
            rows[field] = intervals(counts, len(tables[name]))
            tables[name].append(values)
        first = len(tables["frames"])
        entry = np.array([scene], SCENE_DTYPE)
        entry["frame_index_interval"] = [first, first + len(rows)]
        tables["frames"].append(rows)
        tables["scenes"].append(entry)
        return len(tables["scenes"]) - 1

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace attributes."""
        if metadata.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
            raise DataError(f"expected format_version {FORMAT_VERSION}, got {metadata['format_version']!r}")
        attributes = {**self._attributes, **metadata}
        if (self.path / "scenes.npy").exists():
            write_atomic(self.path / npy.ATTRIBUTES, _json(attributes))
        else:
            write_attributes(self.path, attributes)
        self._attributes = attributes

    @override
    def _finish(self) -> None:
        close_arrays(self._tables.values(), self.path)


def scene_of(episode: Episode) -> AnyArray:
    """The row of a scene from the metadata of an episode."""
    metadata, stamps = dict(episode.metadata), np.asarray(episode.columns["timestamp"])
    if unknown := sorted(set(metadata) - set(ENTRIES)):
        raise DataError(f"expected metadata among {list(ENTRIES)}, got {unknown}: a scene has no place for others")
    host = str(metadata.get("host", ""))
    if len(host) > 16 or host.endswith("\0"):
        raise DataError(f"expected a host of at most 16 characters, got {host!r}")
    ends = (int(stamps[0]), int(stamps[-1])) if len(stamps) else (0, 0)
    start, end = metadata.get("start_time", ends[0]), metadata.get("end_time", ends[1])
    return np.array((np.zeros(2, np.int64), host, start, end), SCENE_DTYPE)


def _chunk_rows(given: int | Mapping[str, int] | None) -> dict[str, int]:
    by_name = dict.fromkeys(CHUNK_ROWS, given) if isinstance(given, int) else dict(given or {})
    wrong = {n: v for n, v in by_name.items() if n not in CHUNK_ROWS or type(v) is not int or not 0 < v < 1 << 40}
    if wrong:
        raise DataError(f"expected positive numbers of rows for {list(CHUNK_ROWS)}, got {wrong}")
    return {**CHUNK_ROWS, **by_name}


def _resumed(path: Path) -> tuple[dict[str, Any], dict[str, GrowingArray]]:
    """The attributes, and a writer for each array behind the rows that scenes name."""
    stored = open_tables(path, Cache(0))
    try:
        older = any(stored_rows(stored.rows(name)).dtype != dtype for name, dtype in DTYPES.items())
        if stored.format_version != FORMAT_VERSION or older:
            message = f"expected rows of version {FORMAT_VERSION}, got older ones; convert the dataset first"
            raise FormatError(message, path=path)
        scenes = offsets_in(stored.scenes.field("frame_index_interval"), len(stored.frames), "scenes", path)
        frames = stored.frames[: int(scenes[-1])]
        used = {"scenes": len(stored.scenes), "frames": len(frames)}
        for name, field in (("agents", "agent_index_interval"), (FACES, "traffic_light_faces_index_interval")):
            used[name] = int(offsets_in(frames[field], len(stored.rows(name)), f"frames.{field}", path)[-1])
        tables: dict[str, GrowingArray] = {}
        for name, dtype in DTYPES.items():
            rows = stored.rows(name)
            if isinstance(rows, ZarrArray):
                tables[name] = ArrayWriter(path / name, rows.metadata, used[name])
            else:
                tables[name] = npy.NpyAppender(path / f"{name}.npy", dtype, used[name])
        return dict(stored.attributes), tables
    finally:
        stored.close()


def _json(attributes: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(attributes, indent=4, sort_keys=True).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"expected metadata that JSON has a place for: {error}") from error


def _locked(path: Path) -> int:
    """The descriptor that holds the writers' lock until it is closed: on the scenes, which are never replaced."""
    flat = path / "scenes.npy"
    if flat.exists():
        return open_locked(flat, name=path)
    return open_locked(path / "scenes", os.O_RDONLY, name=path)


_INTERVALS = {"agents": "agent_index_interval", FACES: "traffic_light_faces_index_interval"}
_BLOCK_ROWS = 1 << 16  # that are copied at a time


def join_tables(parts: Sequence[Path], out: Path) -> None:
    """Join datasets to one dataset. A second call continues after a kill."""
    out.mkdir(parents=True, exist_ok=True)
    firsts: list[Mapping[str, int]] = [json.loads(read_text(part / PART))["first_rows"] for part in parts]
    flat = (parts[0] / "scenes.npy").exists()
    added = {name: _added(name, parts, [first[name] for first in firsts], flat) for name in _INTERVALS}
    for name in (npy.ATTRIBUTES,) if flat else (ATTRIBUTES, GROUP):
        shutil.copyfile(parts[0] / name, out / name)
    for name in DTYPES:
        changes: list[Callable[[AnyArray], AnyArray] | None] = [None] * len(parts)
        if name == "frames":
            changes = [
                partial(_shifted, {_INTERVALS[table]: added[table][p] for table in _INTERVALS})
                if any(added[table][p] for table in _INTERVALS)
                else None
                for p in range(len(parts))
            ]
        pieces = [
            ArrayPart(part, first[name], change) for part, first, change in zip(parts, firsts, changes, strict=True)
        ]
        if flat:
            _join_file(name, pieces, out)
        else:
            join_arrays(name, pieces, out)
    sync(out)


def _added(name: str, parts: Sequence[Path], firsts: Sequence[int], flat: bool) -> list[int]:
    """For each part, how many rows more there are before it than it counted."""
    ends = [len(npy.mapped(part / f"{name}.npy")) if flat else len(ZarrGroup(part).array(name)) for part in parts]
    before = accumulate((end - first for end, first in zip(ends, firsts, strict=True)), initial=0)
    return [rows - first for rows, first in zip(before, firsts, strict=False)]


def _shifted(added: Mapping[str, int], frames: AnyArray) -> AnyArray:
    """Frames whose intervals count from other rows."""
    shifted = frames.copy()
    for field, rows in added.items():
        shifted[field] += rows
    return shifted


def _join_file(name: str, parts: Sequence[ArrayPart], out: Path) -> None:
    """Copy the rows of all parts to one `.npy` file."""
    path = out / f"{name}.npy"
    path.unlink(missing_ok=True)
    file = npy.NpyAppender.create(path, DTYPES[name])
    try:
        for part in parts:
            rows = npy.mapped(part.group / f"{name}.npy")
            for row in range(part.first, len(rows), _BLOCK_ROWS):
                block = rows[row : row + _BLOCK_ROWS]
                file.append(block if part.change is None else part.change(block))
        file.commit()
        file.sync()
    finally:
        file.close()
