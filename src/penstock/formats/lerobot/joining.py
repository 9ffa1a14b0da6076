"""Saved episodes that are not in the files of a dataset yet, and the files that they are joined into.

A Parquet file has its footer at its end, so a file that is still growing cannot be read, and a killed recording would
lose it. Each saved episode is therefore a small Parquet file in the folder `.penstock`, complete when it appears, next
to a video file of each camera, which is made before. LeRobot ignores the folder; penstock reads its episodes.

A dataset that was written in parts is joined too. Four things depend on the other parts: numbers of chunks and files;
numbers of tasks, where a part with other numbers gets a new column `task_index`; video files, which are joined by
copying packets until they are full; and figures of the dataset, which are merged episode by episode, so that they are
equal to the last bit. The parts keep their metadata, so a second call, after a kill, does what is missing.

The list of the files that a writer makes is on the disk before the first of them (`JOURNAL`), and is removed when the
metadata name them. A writer that finds a list removes the files on it that no metadata name, and no others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.containers.arrow import arrow
from penstock.containers.video import PacketIndex, packet_index
from penstock.containers.video.index import demuxer, open_video
from penstock.containers.video.writer import can_join, join_videos
from penstock.core.arrays import IntArray
from penstock.core.boundary import parsing
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError, require
from penstock.files import move, sync, write_atomic
from penstock.formats.base.account import LeftOut
from penstock.formats.lerobot.creation import VIDEO_LIMIT, VIDEO_MB, json_bytes, tables_with, write_tables, write_tasks
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.episodes import (
    EPISODES,
    KEY,
    EpisodeEntry,
    VideoPlace,
    episode_files,
    figures_of,
    number,
    read_tasks,
)
from penstock.formats.lerobot.info import FOLDER, INFO, STATS, Info, read_info, read_json
from penstock.formats.lerobot.stats import Figures, add_figures, column_figures, plain_figures


class FileNumber(NamedTuple):
    """Numbers of a chunk and of a file in it, under the names that LeRobot gives them."""

    chunk_index: int
    file_index: int

    def after(self, chunks_size: int) -> FileNumber:
        """Return the numbers of the next file, in folders of at most `chunks_size` files."""
        full = self.file_index >= chunks_size - 1
        return FileNumber(self.chunk_index + 1, 0) if full else FileNumber(self.chunk_index, self.file_index + 1)

    def entries(self, kind: str) -> dict[str, int]:
        """Return the entries of an episode in the metadata for its file of a kind."""
        return {f"{kind}/{name}": value for name, value in self._asdict().items()}


@dataclass(frozen=True, eq=False)
class PendingEpisode:
    """An episode in its own file."""

    entry: EpisodeEntry
    statistics: Mapping[str, Mapping[str, Any]]


def piece_path(root: Path, index: int) -> Path:
    """Return the file of a pending episode."""
    return root / FOLDER / f"episode-{index:06d}.parquet"


def video_path(root: Path, index: int, name: str) -> Path:
    """Return the video of a camera of a pending episode."""
    return root / FOLDER / f"episode-{index:06d}.{name}.mp4"


def read_pending(info: Info, known: set[int], damage: list[LeftOut]) -> list[PendingEpisode]:
    """Return the pending episodes in the order of their index."""
    episodes: list[PendingEpisode] = []
    for path in sorted((info.root / FOLDER).glob("episode-*.parquet")):
        try:
            episode = read_pending_episode(info, path)
        except FormatError as error:
            damage.append(LeftOut("episode", path.relative_to(info.root).as_posix(), "bad-file", str(error)))
            continue
        if episode.entry.index not in known:
            episodes.append(episode)
    return sorted(episodes, key=lambda episode: episode.entry.index)


def read_pending_episode(info: Info, path: Path) -> PendingEpisode:
    with parsing(path):
        stored: Any = json.loads(require("pyarrow.parquet", "arrow").read_schema(path).metadata[KEY])
        if not is_dict(stored):
            raise FormatError(f"expected an object in the schema, got {stored!r}")
        index = number(stored["episode_index"])
        cameras = [name for name, feature in info.features.items() if feature.dtype == "video"]
        videos = {name: VideoPlace(video_path(info.root, index, name), 0.0, None) for name in cameras}
        entry = EpisodeEntry(
            index=index,
            length=number(stored["length"]),
            file=path,
            tasks=tuple(str(task) for task in stored["tasks"]),
            videos=videos,
            extra=dict(stored["metadata"]),
        )
        return PendingEpisode(entry, stored["statistics"])


JOURNAL = f"{FOLDER}/joining.json"
MIB = 1 << 20


@dataclass(frozen=True, eq=False)
class JoinedFile:
    """A file of consecutive pending episodes."""

    place: FileNumber
    episodes: Sequence[PendingEpisode]
    indexes: Sequence[PacketIndex] = ()


def data_groups(
    episodes: Sequence[PendingEpisode], limit: float, first: FileNumber, chunks_size: int
) -> Iterator[JoinedFile]:
    file = JoinedFile(first, ())
    for episode in episodes:
        file = replace(file, episodes=[*file.episodes, episode])
        if sum(os.path.getsize(each.entry.file) for each in file.episodes) / MIB >= limit:
            yield file
            file = JoinedFile(file.place.after(chunks_size), ())
    if file.episodes:
        yield file


def video_groups(
    name: str, episodes: Sequence[PendingEpisode], limit: float, first: FileNumber, chunks_size: int
) -> Iterator[JoinedFile]:
    """Divide episodes into video files of a camera. Episodes that were encoded in another way begin a file."""
    file, size = JoinedFile(first, ()), 0.0
    for episode in episodes:
        path = episode.entry.videos[name].file
        index = packet_index(path, keep=False)
        if len(index) != episode.entry.length:
            raise FormatError(f"expected {episode.entry.length} frames, got {len(index)}", path=path)
        own = os.path.getsize(path) / MIB
        if file.episodes and (size + own >= limit or not can_join(file.indexes[0], index)):
            yield file
            file, size = JoinedFile(file.place.after(chunks_size), ()), 0.0
        file = JoinedFile(file.place, [*file.episodes, episode], [*file.indexes, index])
        size += own
    yield file


def write_data(info: Info, file: JoinedFile) -> None:
    """Write a data file with a row group for each episode."""
    parquet = require("pyarrow.parquet", "arrow")
    path = info.data_file(**file.place._asdict())
    tables = (parquet.read_table(episode.entry.file, use_threads=False) for episode in file.episodes)
    first = parquet.read_schema(file.episodes[0].entry.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tables(path, first.remove_metadata(), tables)


def write_video(info: Info, name: str, file: JoinedFile) -> dict[int, dict[str, Any]]:
    """Write a video file of a camera. Returns its entries in the metadata, by index of the episode."""
    path = info.video_file(name, **file.place._asdict())
    path.parent.mkdir(parents=True, exist_ok=True)
    join_videos([each.entry.videos[name].file for each in file.episodes], file.indexes, info.fps, path)
    entries: dict[int, dict[str, Any]] = {}
    frames = 0
    for each in file.episodes:
        entries[each.entry.index] = {
            **file.place.entries(f"videos/{name}"),
            f"videos/{name}/from_timestamp": frames / info.fps,
            f"videos/{name}/to_timestamp": (frames + each.entry.length) / info.fps,
        }
        frames += each.entry.length
    return entries


def video_info(path: Path, fps: float, depth: Depth | None = None) -> dict[str, Any]:
    """Return what LeRobot reads from a video file for `info` of the feature of its camera."""
    with open_video(path) as file, demuxer(file, path, 0) as (container, stream):
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": stream.codec.canonical_name,
            "video.pix_fmt": stream.pix_fmt,
            "video.fps": int(fps),
            "video.channels": 3 if depth is None else 1,
            "has_audio": bool(container.streams.audio),
            **({"is_depth_map": False} if depth is None else depth.described(video=True)),
        }


def lacks_video_info(feature: Mapping[str, Any]) -> bool:
    """Return whether a camera has no note about its encoding. It may have notes of another kind from the start."""
    info: Any = feature.get("info")
    return not (is_dict(info) and "video.codec" in info)


def begin_journal(info: Info, data: Sequence[JoinedFile], videos: Mapping[str, Sequence[JoinedFile]]) -> None:
    """Write the list of the files that are made next."""
    places = {name: [file.place for file in files] for name, files in videos.items()}
    listed = {"data": [file.place for file in data], "videos": places}
    write_atomic(info.root / JOURNAL, json_bytes(listed), durable="folder")


def journal_files(info: Info) -> list[Path]:
    """Return the files that a killed writer made or was about to make, by its list."""
    journal = info.root / JOURNAL
    if not journal.is_file():
        return []
    with parsing(journal):
        listed = read_json(journal)
        if not is_list(listed.get("data")) or not is_dict(listed.get("videos")):
            raise FormatError("expected the numbers of files")
        files = [info.data_file(**_read_place(place)._asdict()) for place in listed["data"]]
        for name, places in listed["videos"].items():
            files += [info.video_file(str(name), **_read_place(place)._asdict()) for place in places]
        return files


def undo_journal(info: Info, known: set[Path]) -> None:
    """Remove the files that a killed writer made and no metadata name, and the list of them."""
    for path in journal_files(info):
        if path not in known:
            path.unlink(missing_ok=True)
    (info.root / JOURNAL).unlink(missing_ok=True)


def _read_place(place: Any) -> FileNumber:
    return FileNumber(number(place[0]), number(place[1]))


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
        return sum(map(len, self.indexes))


class _JoinedDataset:
    """The dataset that parts are moved to in order."""

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
