"""Writing LeRobot datasets of version 3.0.

`write` saves an episode in the folder `.penstock`: frames as video files, then one Parquet file, which appears when it
is complete. When the pending episodes reach the size of a data file, and in `close`, they are joined into video files
and data files, then into a new file of metadata of episodes: the one step that makes them episodes of the joined files.
A kill before that step leaves joined files that no metadata name, which the next writer removes by its list
(`joining`). A kill after it leaves pending files and old totals, which the next writer finishes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import arrow
from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.narrowing import is_list
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError, require
from penstock.files import move, open_locked, write_atomic
from penstock.formats.base.account import LeftOut
from penstock.formats.base.writer import LockedWriter, PartStart, check_columns
from penstock.formats.lerobot.creation import (
    DATA_LIMIT,
    DATA_MB,
    VIDEO_LIMIT,
    VIDEO_MB,
    StoredFeature,
    WriteOptions,
    create_empty,
    index_features,
    json_bytes,
    lerobot_metadata,
    own_metadata,
    write_tables,
    write_tasks,
)
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.episodes import (
    EPISODES,
    KEY,
    EpisodeEntry,
    episode_files,
    read_entries,
    read_statistics,
    read_tasks,
)
from penstock.formats.lerobot.info import (
    CAMERAS,
    FOLDER,
    INFO,
    INTERNAL,
    LOCK,
    STATS,
    STRUCTURE,
    TASK,
    Info,
    read_info,
    read_json,
)
from penstock.formats.lerobot.joining import (
    JOURNAL,
    MIB,
    FileNumber,
    JoinedFile,
    PendingEpisode,
    begin_journal,
    data_groups,
    lacks_video_info,
    piece_path,
    read_pending,
    read_pending_episode,
    undo_journal,
    video_groups,
    video_info,
    video_path,
    write_data,
    write_video,
)
from penstock.formats.lerobot.stats import Figures, add_figures, column_figures, picture_figures, plain_figures
from penstock.formats.lerobot.video import EncoderSettings, encode_cameras

FILE_MB = {DATA_LIMIT: DATA_MB, VIDEO_LIMIT: VIDEO_MB}


def create(path: Path, spec: Spec, metadata: Mapping[str, Any], options: WriteOptions) -> LeRobotWriter:
    """Create an empty dataset, and open it for writing; see `create_empty`."""
    create_empty(path, spec, metadata, options)
    return LeRobotWriter(path, spec)


class LeRobotWriter(LockedWriter):
    """Appends episodes to a LeRobot dataset of version 3.0. One writer at a time."""

    def __init__(
        self, root: Path, spec: Spec, *, exact_depth: bool = True, encoders: EncoderSettings | None = None
    ) -> None:
        self._root = Path(root)
        self._exact_depth = exact_depth
        self._given_encoders = encoders
        (self._root / FOLDER).mkdir(exist_ok=True)
        self.spec = spec
        super().__init__(open_locked(self._root / LOCK, os.O_RDWR | os.O_CREAT))

    @override
    def _resume(self) -> None:
        self._info = read_info(self._root)
        if self._info.version != "v3.0":
            message = f"expected version v3.0 to append to, got {self._info.version}; convert the dataset"
            raise FormatError(message, path=self._root)
        self._stored = _stored(self._info, self.spec)
        damage: list[LeftOut] = []
        self._take_entries(read_entries(self._info, damage))
        tasks = read_tasks(self._info) or {}
        self._tasks = [tasks[i] for i in range(len(tasks))]
        self._statistics = _read_statistics(self._info)
        self._pending = read_pending(self._info, {entry.index for entry in self._entries}, damage)
        if damage:
            raise FormatError(f"expected undamaged metadata to append to, got {damage[0].message}", path=self._root)
        self._pending_steps = sum(each.entry.length for each in self._pending)
        self._pending_bytes = sum(os.path.getsize(each.entry.file) for each in self._pending)
        self._first = (0, 0)
        self._remove_leftovers()
        if self._info.entries.get("total_episodes") != len(self._entries):  # a writer was killed before it did
            self._statistics.clear()
            figures = read_statistics(self._info, [entry.index for entry in self._entries])
            for entry in self._entries:
                add_figures(self._statistics, figures.get(entry.index, {}))
            self._write_totals()

    def __len__(self) -> int:
        return len(self._entries) + len(self._pending)

    @override
    def begin_at(self, start: PartStart) -> None:
        self._first = start.episode, start.step

    @override
    def write(self, episode: Episode, *, videos: Mapping[str, Path] | None = None) -> int:
        self._check_open()
        check_columns(episode, self.spec)
        if not len(episode):
            raise DataError("expected an episode of at least one step, got none; LeRobot has no empty episodes")
        if videos is not None and set(videos) != (cameras := self._cameras()):
            raise DataError(f"expected files of the cameras {sorted(cameras)}, got {sorted(videos)}")
        self._pending.append(self._save(episode, videos or {}))
        self._pending_steps += len(episode)
        self._pending_bytes += os.path.getsize(self._pending[-1].entry.file)
        if self._pending_mb(len(episode)) >= self._limit(DATA_LIMIT):
            self.finalize()
        return self._first[0] + len(self) - 1

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        if wrong := sorted(STRUCTURE & metadata.keys()):
            raise DataError(f"expected entries that may change, got {wrong}, which describe the stored data")
        own = self._info.internal
        changed = {**own, "metadata": {**own.get("metadata", {}), **own_metadata(metadata)}}
        self._write_info({**lerobot_metadata(metadata), INTERNAL: changed})

    def finalize(self) -> None:
        """Join the pending episodes into data files and metadata, so that LeRobot reads them."""
        if not self._pending:
            return
        data = list(
            data_groups(self._pending, self._limit(DATA_LIMIT), self._next_file("data"), self._info.chunks_size)
        )
        videos = {name: list(self._video_groups(name)) for name in self._pending[0].entry.videos}
        begin_journal(self._info, data, videos)
        places: dict[int, dict[str, Any]] = {episode.entry.index: {} for episode in self._pending}
        for name, files in videos.items():
            for file in files:
                for index, place in write_video(self._info, name, file).items():
                    places[index] |= place
        for file in data:
            write_data(self._info, file)
            for episode in file.episodes:
                places[episode.entry.index] |= file.place.entries("data")
        self._write_rows(places)
        self._take_entries(read_entries(self._info, []))
        for episode in self._pending:
            add_figures(self._statistics, episode.statistics)
        self._write_totals()
        (self._root / JOURNAL).unlink()
        for episode in self._pending:
            episode.entry.file.unlink()
            for video in episode.entry.videos.values():
                video.file.unlink()
        self._pending = []
        self._pending_steps = self._pending_bytes = 0

    @override
    def _finish(self) -> None:
        self.finalize()

    def _limit(self, name: str) -> float:
        """Return the MiB of a full file."""
        limit = self._info.entries.get(name)
        return limit if isinstance(limit, (int, float)) and limit > 0 else FILE_MB[name]

    def _video_groups(self, name: str) -> Iterator[JoinedFile]:
        first = self._next_file(f"videos/{name}")
        return video_groups(name, self._pending, self._limit(VIDEO_LIMIT), first, self._info.chunks_size)

    def _pending_mb(self, steps: int) -> float:
        """Size of the pending files and one more episode of so many steps, as LeRobot estimates it."""
        size = self._pending_bytes / MIB
        return size + size / self._pending_steps * steps

    def _take_entries(self, entries: list[EpisodeEntry]) -> None:
        """Set the joined episodes. Their steps are counted once, and not for each episode that is saved."""
        self._entries = entries
        self._joined_steps = sum(entry.length for entry in entries)

    def _steps(self) -> int:
        """Return the number of the step behind the joined episodes."""
        return self._first[1] + self._joined_steps

    def _cameras(self) -> set[str]:
        """Return the paths of video columns."""
        return {path for path, stored in self._stored.items() if stored.feature.dtype == "video"}

    def _save(self, episode: Episode, encoded: Mapping[str, Path]) -> PendingEpisode:
        index = self._entries[-1].index + 1 if self._entries else self._first[0]
        index = self._pending[-1].entry.index + 1 if self._pending else index
        first = self._steps() + self._pending_steps
        tasks = _tasks_of(episode)
        self._add_tasks(tasks)
        numbers_of_tasks = {task: self._tasks.index(task) for task in dict.fromkeys(tasks)}
        columns = _index_columns(episode, self._info.fps, index, first, [numbers_of_tasks[task] for task in tasks])
        fields: list[Any] = []
        arrays: list[Any] = []
        figures: dict[str, Figures] = {}
        self._save_videos(index, episode, encoded)
        for path, stored in self._stored.items():
            column = columns.pop(path, episode.columns[path])
            if stored.feature.dtype != "video":
                fields.append(stored.arrow_field)
                arrays.append(
                    stored.encoded(column if isinstance(column, Ragged) else column.astype(stored.field.dtype))
                )
            if stored.feature.dtype in CAMERAS:
                scale = 255.0 if stored.feature.depth is None else 1.0
                figures[stored.feature.name] = picture_figures(np.asarray(column), scale)
            elif not isinstance(column, Ragged):
                figures[stored.feature.name] = column_figures(column)
        pa = arrow()
        for name, column in columns.items():
            kind = pa.float32() if name == "timestamp" else pa.int64()
            fields.append(pa.field(name, kind))
            arrays.append(pa.array(column.astype(np.float32) if name == "timestamp" else column, kind))
            figures[name] = column_figures(column)
        own = {name: value for name, value in episode.metadata.items() if name not in ("episode_index", "tasks")}
        entry = EpisodeEntry(index, len(episode), piece_path(self._root, index), tuple(dict.fromkeys(tasks)), {}, own)
        described = {
            "episode_index": index,
            "length": len(episode),
            "tasks": list(entry.tasks),
            "metadata": entry.extra,
            "statistics": plain_figures(figures),
        }
        schema = pa.schema(fields, metadata={KEY: json_bytes(described)})
        write_tables(entry.file, schema, [pa.Table.from_arrays(arrays, schema=schema)])
        return read_pending_episode(self._info, entry.file)

    def _save_videos(self, index: int, episode: Episode, encoded: Mapping[str, Path]) -> None:
        frames: dict[Path, tuple[Depth | None, AnyArray]] = {}
        for column in self._cameras():
            feature = self._stored[column].feature
            path = video_path(self._root, index, feature.name)
            if column in encoded:
                move(encoded[column], path, overwrite=True)
                continue
            rows, depth = np.asarray(episode.columns[column]), feature.depth
            if depth is not None and self._exact_depth and not np.array_equal(depth.values[depth.codes(rows)], rows):
                message = (
                    f"expected depth in {column} that codes from {depth.depth_min:g} to {depth.depth_max:g} m hold"
                )
                raise DataError(f"{message}, got other values; store images: cameras='image'")
            frames[path] = depth, rows
        encode_cameras(frames, self._info.fps, self._encoders)

    @property
    def _encoders(self) -> EncoderSettings:
        """Settings for new videos: as given, or as in the dataset."""
        return self._given_encoders or EncoderSettings.of(self._info.internal)

    def _add_tasks(self, tasks: Sequence[str]) -> None:
        new = [task for task in dict.fromkeys(tasks) if task not in self._tasks]
        if new:
            self._tasks += new
            write_tasks(self._root, self._tasks)

    def _next_file(self, folder: str) -> FileNumber:
        """Return chunk and file number behind the numbers of the existing files in a folder."""
        places: list[FileNumber] = []
        for path in (self._root / folder).glob("chunk-*/file-*"):
            chunk, file = path.parent.name.removeprefix("chunk-"), path.stem.removeprefix("file-")
            if chunk.isdigit() and file.isdigit():
                places.append(FileNumber(int(chunk), int(file)))
        return max(places).after(self._info.chunks_size) if places else FileNumber(0, 0)

    def _remove_leftovers(self) -> None:
        """Remove what a killed writer left: joined files, and pending files of episodes that metadata name."""
        videos = {video.file for entry in self._entries for video in entry.videos.values()}
        undo_journal(self._info, {entry.file for entry in self._entries} | videos)
        pending = {episode.entry.file for episode in self._pending}
        pending |= {video.file for episode in self._pending for video in episode.entry.videos.values()}
        for path in (self._root / FOLDER).glob("episode-*"):
            if path not in pending:
                path.unlink()

    def _write_rows(self, places: Mapping[int, Mapping[str, Any]]) -> None:
        """Write the file of metadata that makes the pending episodes part of the dataset."""
        pa = arrow()
        known = episode_files(self._info)
        number = self._next_file("meta/episodes")
        start = self._steps()
        rows: list[dict[str, Any]] = []
        for episode in self._pending:
            rows.append(_row(episode, places[episode.entry.index], start, number))
            start += episode.entry.length
        table = pa.Table.from_pylist(rows)
        if known:  # the columns of another writer, which LeRobot wants to be equal in all files
            schema = require("pyarrow.parquet", "arrow").read_schema(known[0]).remove_metadata()
            table = _as_in(schema, table)
        extra = {str(each.entry.index): each.entry.extra for each in self._pending}
        table = table.replace_schema_metadata({KEY: json_bytes(extra)})
        path = self._root / EPISODES.format(**number._asdict())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tables(path, table.schema, [table])

    def _write_totals(self) -> None:
        write_atomic(self._root / STATS, json_bytes(plain_figures(self._statistics)))
        self._write_info(
            {
                "total_episodes": len(self._entries),
                "total_frames": sum(entry.length for entry in self._entries),
                "total_tasks": len(self._tasks),
                "splits": {"train": f"0:{len(self._entries)}"},
                **self._described_videos(),
            }
        )

    def _described_videos(self) -> dict[str, Any]:
        """Return the features with what LeRobot notes about the encoding of cameras, where it is not noted yet."""
        features = self._info.entries["features"]
        lacking = [name for name, each in self._info.features.items() if each.dtype == "video"]
        lacking = [name for name in lacking if lacks_video_info(features[name])] if self._entries else []
        noted: dict[str, Any] = {}
        for name in lacking:
            file, depth = self._entries[0].videos[name].file, self._info.features[name].depth
            own: dict[str, Any] = {**self._encoders.described(depth), **(features[name].get("info") or {})}
            noted[name] = {**features[name], "info": own | video_info(file, self._info.fps, depth)}
        return {"features": {**features, **noted}} if noted else {}

    def _write_info(self, changed: Mapping[str, Any]) -> None:
        write_atomic(self._root / INFO, json_bytes({**self._info.entries, **changed}), durable="folder")
        self._info = read_info(self._root)


def _as_in(schema: Any, table: Any) -> Any:
    """Return the columns of a table in the order and types of a schema. LeRobot before 0.6 had figures of integers."""
    pa = arrow()
    columns = [
        table.column(field.name).cast(field.type, safe=False)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _stored(info: Info, spec: Spec) -> dict[str, StoredFeature]:
    stored = {
        path: StoredFeature(feature, spec[path])
        for feature in info.features.values()
        if (path := feature.path) in spec and path not in index_features() | {TASK: None}
    }
    missing = [feature.name for feature in info.features.values() if feature.path not in stored]
    if lost := [name for name in [*missing, *info.unknown] if name not in index_features()]:
        raise FormatError(f"expected a column for each feature to append, got none for {lost}", path=info.root)
    return stored


def _tasks_of(episode: Episode) -> list[str]:
    """Return the task of each step: from the column, or from the metadata, or empty."""
    column = episode.columns.get(TASK)
    if isinstance(column, Ragged):
        return column.strings()
    tasks = episode.metadata.get("tasks")
    text = tasks[0] if is_list(tasks) and len(tasks) == 1 else episode.metadata.get(TASK, "")
    return [str(text)] * len(episode)


def _index_columns(episode: Episode, fps: float, index: int, first: int, tasks: Sequence[int]) -> dict[str, AnyArray]:
    """Return the columns that every dataset has. Timestamps of the episode are kept."""
    steps = np.arange(len(episode))
    given = episode.columns.get("timestamp")
    return {
        "timestamp": steps / fps if given is None or isinstance(given, Ragged) else given,
        "frame_index": steps,
        "episode_index": np.full(len(episode), index),
        "index": steps + first,
        "task_index": np.array(tasks, np.int64),
    }


def _read_statistics(info: Info) -> dict[str, Figures]:
    path = info.root / STATS
    stored = read_json(path) if path.is_file() else {}
    return {name: {figure: np.asarray(value) for figure, value in figures.items()} for name, figures in stored.items()}


def _row(episode: PendingEpisode, place: Mapping[str, Any], start: int, number: FileNumber) -> dict[str, Any]:
    """Return the row of an episode in the metadata of episodes, with its columns in LeRobot's order."""
    entry = episode.entry
    described = {"episode_index": entry.index, "tasks": list(entry.tasks), "length": entry.length}
    rows = {"dataset_from_index": start, "dataset_to_index": start + entry.length}
    data = {name: value for name, value in place.items() if name.startswith("data/")}
    figures = {
        f"stats/{name}/{figure}": value
        for name, each in plain_figures(episode.statistics).items()
        for figure, value in each.items()
    }
    return {**described, **data, **rows, **place, **figures, **number.entries("meta/episodes")}
