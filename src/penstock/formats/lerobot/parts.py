"""Datasets that were written in parts become one dataset: files are moved and numbered again, and videos are joined.

Rows, pictures and nearly all figures of the episodes of a part are final. Four things depend on the other parts:
numbers of chunks and files; numbers of tasks, where a part with other numbers gets a new column `task_index`; video
files, which are joined by copying packets until they are full; and figures of the dataset, which are merged episode by
episode, so that they are equal to the last bit.

The parts keep their metadata, which say which files are moved where. So a second call, after a kill, does what is
missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow import arrow
from penstock.containers.video import PacketIndex, packet_index
from penstock.containers.video.joining import can_join, join_videos
from penstock.core.arrays import IntArray
from penstock.errors import FormatError, require
from penstock.files import move, sync, write_atomic
from penstock.formats.lerobot.creation import VIDEO_LIMIT, VIDEO_MB, json_bytes, tables_with, write_tables, write_tasks
from penstock.formats.lerobot.episodes import EPISODES, episode_files, figures_of, read_tasks
from penstock.formats.lerobot.info import FOLDER, INFO, STATS, Info, read_info
from penstock.formats.lerobot.pending import MIB, FileNumber
from penstock.formats.lerobot.stats import Figures, add_figures, column_figures, plain_figures

TASKS = "task_index"


def join_datasets(parts: Sequence[Path], out: Path) -> None:
    """Move the files of datasets into one dataset. A second call continues after a kill."""
    infos = [read_info(part) for part in parts]
    joined = _JoinedDataset(out, infos)
    for info in infos:
        joined.add(info)
    joined.write()


@dataclass
class _VideoFile:
    """Files of parts that become one file of a camera, and their bytes."""

    place: FileNumber
    paths: list[Path] = field(default_factory=list[Path])
    indexes: list[PacketIndex] = field(default_factory=list[PacketIndex])
    size: int = 0

    @property
    def frames(self) -> int:
        """Frames of all files."""
        return sum(map(len, self.indexes))


class _JoinedDataset:
    """The dataset that parts are moved to, one after the other."""

    def __init__(self, root: Path, infos: Sequence[Info]) -> None:
        self._root = root
        filled = [info for info in infos if info.entries.get("total_episodes")]
        self._info = Info(root, "v3.0", infos[0].fps, infos[0].features, {}, (filled or infos)[0].entries)
        self._last: dict[str, FileNumber] = {}  # numbers of the last file of each kind
        self._videos: dict[str, _VideoFile] = {}  # the last file of each camera, which is not written yet
        self._video_bytes = int(self._info.entries.get(VIDEO_LIMIT, VIDEO_MB)) * MIB
        self._tasks: dict[str, int] = {}
        self._statistics: dict[str, Figures] = {}
        self._episodes = self._steps = 0
        self._schema: Any = None  # of the metadata of episodes

    def add(self, part: Info) -> None:
        """Move the files of a part, and write its metadata of episodes."""
        texts = read_tasks(part) or {}
        tasks = np.array([self._tasks.setdefault(texts[i], len(self._tasks)) for i in range(len(texts))], np.int64)
        for path in episode_files(part):
            with require("pyarrow.parquet", "arrow").ParquetFile(path) as file:
                table = file.read(use_threads=False)
            if not len(table):
                continue
            self._count(table, path)
            if self._schema is None:
                self._schema = table.schema.remove_metadata()
            table = self._moved(part, table.cast(self._schema.with_metadata(table.schema.metadata)), tasks)
            for figures in figures_of(table):
                add_figures(self._statistics, figures)
            target = self._root / EPISODES.format(**self._last["meta/episodes"]._asdict())
            target.parent.mkdir(parents=True, exist_ok=True)
            write_tables(target, table.schema, [table])

    def _moved(self, part: Info, table: Any, tasks: IntArray) -> Any:
        """Move the files that metadata of episodes name; return the metadata with their new numbers."""
        renumbers = not np.array_equal(tasks, np.arange(len(tasks)))
        columns: dict[str, Any] = {}
        old = _places(table, "data")
        new = {place: self._next("data") for place in dict.fromkeys(old)}
        if renumbers:
            columns |= self._renumbered(part, table, tasks, new)
        else:
            self._move(part, new)
        columns |= _place_columns("data", [new[place] for place in old])
        for name, each in part.features.items():
            if each.dtype == "video":
                columns |= self._add_videos(part, table, f"videos/{name}")
        columns |= _place_columns("meta/episodes", [self._next("meta/episodes")] * len(table))
        for name, values in columns.items():
            field = table.schema.field(name)
            table = table.set_column(table.schema.get_field_index(name), field, arrow().array(values, field.type))
        return table

    def _move(self, part: Info, places: Mapping[FileNumber, FileNumber]) -> None:
        """Move data files of a part that are not moved yet."""
        for old, new in places.items():
            target = _file(self._info, "data", new)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                move(_file(part, "data", old), target)

    def _add_videos(self, part: Info, table: Any, kind: str) -> dict[str, list[Any]]:
        """Add the files of a camera; return where the episodes are then, by column."""
        old = _places(table, kind)
        new = {place: self._add_video(kind, _file(part, kind, place)) for place in dict.fromkeys(old)}
        columns = _place_columns(kind, [new[place][0] for place in old])
        for name in (f"{kind}/from_timestamp", f"{kind}/to_timestamp"):
            frames = [round(time * part.fps) for time in table.column(name).to_pylist()]
            columns[name] = [(k + new[place][1]) / part.fps for k, place in zip(frames, old, strict=True)]
        return columns

    def _add_video(self, kind: str, path: Path) -> tuple[FileNumber, int]:
        """Add a file to the last one of a camera, or begin another; return its numbers and the frames before."""
        last = self._videos.get(kind)
        moved = _file(self._info, kind, self._after(kind))  # by an earlier call, for no other file was added to it
        there = path if path.exists() else moved
        index, size = packet_index(there, keep=False), os.path.getsize(there)
        if last is None or last.size + size >= self._video_bytes or not can_join(last.indexes[0], index):
            self._write_video(kind)
            last = self._videos[kind] = _VideoFile(self._next(kind))
        frames = last.frames
        last.paths.append(path)
        last.indexes.append(index)
        last.size += size
        return last.place, frames

    def _write_video(self, kind: str) -> None:
        """Write the last file of a camera, if there is one, unless an earlier call did so."""
        video = self._videos.get(kind)
        if video is None or (target := _file(self._info, kind, video.place)).exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if len(video.paths) == 1:
            move(video.paths[0], target)
        else:
            join_videos(video.paths, video.indexes, self._info.fps, target)

    def _renumbered(
        self, part: Info, table: Any, tasks: IntArray, places: Mapping[FileNumber, FileNumber]
    ) -> dict[str, list[Any]]:
        """Write data files of a part with other numbers of tasks; return the figures of these numbers by column."""
        figures: dict[int, Figures] = {}
        for old, new in places.items():
            source, target = _file(part, "data", old), _file(self._info, "data", new)
            target.parent.mkdir(parents=True, exist_ok=True)
            with require("pyarrow.parquet", "arrow").ParquetFile(source) as file:
                rows = file.read(columns=["episode_index", TASKS], use_threads=False)
                renumbered = tasks[rows.column(TASKS).to_numpy()]
                write_tables(target, file.schema_arrow, tables_with(file, {TASKS: renumbered}))
            episodes, first = np.unique(rows.column("episode_index").to_numpy(), return_index=True)
            for episode, own in zip(episodes.tolist(), np.split(renumbered, first[1:]), strict=True):
                figures[episode] = column_figures(own)
        ordered = [figures[index] for index in table.column("episode_index").to_pylist()]
        plain = [plain_figures({TASKS: each})[TASKS] for each in ordered]
        return {f"stats/{TASKS}/{figure}": [each[figure] for each in plain] for figure in plain[0]}

    def _next(self, kind: str) -> FileNumber:
        """Return the numbers of the next file of a kind, which is then the last."""
        self._last[kind] = self._after(kind)
        return self._last[kind]

    def _after(self, kind: str) -> FileNumber:
        """Return the numbers behind the last file of a kind."""
        last = self._last.get(kind)
        return FileNumber(0, 0) if last is None else last.after(self._info.chunks_size)

    def _count(self, table: Any, path: Path) -> None:
        """Count episodes and steps."""
        indices = table.column("episode_index").to_pylist()
        ends = table.column("dataset_to_index").to_pylist()
        first = (indices[0], table.column("dataset_from_index")[0].as_py())
        if first != (self._episodes, self._steps) or indices != [*range(first[0], first[0] + len(indices))]:
            message = f"expected episodes from {self._episodes}, step {self._steps} on, got {first[0]}, step {first[1]}"
            raise FormatError(message, path=path)
        self._episodes, self._steps = indices[-1] + 1, ends[-1]

    def write(self) -> None:
        """Write the last videos, and the metadata of the dataset."""
        for kind in self._videos:
            self._write_video(kind)
        for folder in ("meta/episodes/chunk-000", "data/chunk-000", FOLDER):
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        write_tasks(self._root, list(self._tasks))
        if self._episodes:
            write_atomic(self._root / STATS, json_bytes(plain_figures(self._statistics)))
        totals = {"total_episodes": self._episodes, "total_frames": self._steps, "total_tasks": len(self._tasks)}
        splits = {"train": f"0:{self._episodes}"} if self._episodes else {}
        write_atomic(self._root / INFO, json_bytes({**self._info.entries, **totals, "splits": splits}))
        sync(*(folder for folder, _, _ in os.walk(self._root)))


def _places(table: Any, kind: str) -> list[FileNumber]:
    """Return the numbers of the file of each episode."""
    names = (f"{kind}/chunk_index", f"{kind}/file_index")
    return [FileNumber(*place) for place in zip(*(table.column(name).to_pylist() for name in names), strict=True)]


def _place_columns(kind: str, places: Sequence[FileNumber]) -> dict[str, list[Any]]:
    """Return the columns with the numbers of the file of each episode."""
    chunks, files = zip(*places, strict=True)
    return {f"{kind}/chunk_index": list(chunks), f"{kind}/file_index": list(files)}


def _file(info: Info, kind: str, place: FileNumber) -> Path:
    """Return the path of a data file, or of a video file of a camera."""
    if kind == "data":
        return info.data_file(**place._asdict())
    return info.video_file(kind.removeprefix("videos/"), **place._asdict())
