"""Saved episodes that are not in the files of a dataset yet, and the files that they are joined into.

A Parquet file has its footer at its end, so a file that is still growing cannot be read, and a killed recording would
lose it. Each saved episode is therefore a small Parquet file in the folder `.penstock`, complete when it appears, next
to a video file of each camera, which is there before. LeRobot ignores the folder; penstock reads its episodes.

The list of the files that a writer makes is on the disk before the first of them (`JOURNAL`), and is removed when the
metadata name them. A writer that finds a list removes the files on it that no metadata name, and no others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.containers.video import PacketIndex, packet_index
from penstock.containers.video.index import demuxer, open_video
from penstock.containers.video.joining import can_join, join_videos
from penstock.core.boundary import parsing
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError, require
from penstock.files import write_atomic
from penstock.formats.base.account import LeftOut
from penstock.formats.lerobot.creation import json_bytes, write_tables
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.episodes import KEY, EpisodeEntry, VideoPlace, number
from penstock.formats.lerobot.info import FOLDER, Info, read_json


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
    """An episode in a file of its own."""

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
    """Return the pending episode of a file."""
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
    """Divide episodes into data files."""
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
