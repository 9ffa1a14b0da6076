"""`LeRobotDatasetMetadata`: what LeRobot says about a dataset, from penstock's reading of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_dict
from penstock.errors import ArgumentError
from penstock.formats.lerobot.creation import (
    CHUNKS_SIZE,
    DATA_MB,
    VIDEO_MB,
    WriteOptions,
    change_sizes,
    create_features,
)
from penstock.formats.lerobot.depth import MM
from penstock.formats.lerobot.episodes import (
    EpisodeEntry,
    read_entries,
    read_statistics,
    read_subtasks,
    read_tasks,
    stored_rows,
)
from penstock.formats.lerobot.info import CAMERAS, INTERNAL, STATS, Info, read_info, read_json
from penstock.formats.lerobot.pending import PendingEpisode, lacks_video_info, read_pending, video_info
from penstock.formats.lerobot.stats import merged
from penstock.formats.lerobot.video import EncoderSettings
from penstock_mirrors.lerobot.arguments import NOT_DOWNLOADED, existing_root, only, require_local, root_of
from penstock_mirrors.lerobot.hub import refuse_to_pull

Statistics = dict[str, dict[str, AnyArray]]

VIDEO_CODECS = {"libsvtav1": "libsvtav1", "auto": "libsvtav1", "h264": "libx264", "hevc": "libx265"}
"""Names of encoders in PyAV."""


class EpisodeRows:
    """Metadata of episodes: `rows[0]` is a dict of one, `rows["length"]` a list of all."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(dict, self._rows)

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            if key not in self.column_names:
                raise KeyError(f"no column {key!r}; there are {self.column_names}")
            return [row.get(key) for row in self._rows]
        return dict(self._rows[key])

    @property
    def column_names(self) -> list[str]:
        """Names of the entries."""
        return list(dict.fromkeys(name for row in self._rows for name in row))


class LeRobotDatasetMetadata:
    """Metadata of a LeRobot dataset of version 2.0, 2.1 or 3.0."""

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        revision: str | None = None,
        force_cache_sync: bool = False,
        metadata_buffer_size: int = 10,
    ) -> None:
        only("revision", revision, None, NOT_DOWNLOADED)
        only("force_cache_sync", force_cache_sync, False, NOT_DOWNLOADED)
        self.repo_id = repo_id
        self.revision = revision
        self.root = existing_root(repo_id, root)
        self.stored: Info = read_info(self.root)

    @classmethod
    def create(
        cls,
        repo_id: str,
        fps: float,
        features: Mapping[str, Mapping[str, Any]],
        robot_type: str | None = None,
        root: str | Path | None = None,
        use_videos: bool = True,
        metadata_buffer_size: int = 10,
        chunks_size: int | None = None,
        data_files_size_in_mb: int | None = None,
        video_files_size_in_mb: int | None = None,
        vcodec: str = "libsvtav1",
    ) -> Self:
        """Create a dataset without episodes. See `LeRobotDataset.create`."""
        encoder = _encoder(vcodec)
        if not use_videos:
            only("vcodec", vcodec, "libsvtav1", "without videos nothing is encoded")
        options = WriteOptions(
            fps=fps,
            robot_type=robot_type,
            cameras="video" if use_videos else "image",
            codec=encoder,
            chunks_size=CHUNKS_SIZE if chunks_size is None else chunks_size,
            data_files_size_in_mb=DATA_MB if data_files_size_in_mb is None else data_files_size_in_mb,
            video_files_size_in_mb=VIDEO_MB if video_files_size_in_mb is None else video_files_size_in_mb,
        )
        create_features(root_of(repo_id, root), features, options, videos=use_videos)
        return cls(repo_id, root)

    def load_metadata(self) -> None:
        """Read the metadata again."""
        self.reload()

    def pull_from_repo(
        self,
        allow_patterns: Sequence[str] | str | None = None,
        ignore_patterns: Sequence[str] | str | None = None,
    ) -> None:
        """Refuse to download. The error names the command of the Hub's tools that does."""
        refuse_to_pull(self.repo_id, self.root, allow_patterns, ignore_patterns)

    @property
    def url_root(self) -> str:
        """URL of the dataset on the Hub, which `penstock.open` reads."""
        return f"hf://datasets/{self.repo_id}"

    @property
    def encoder_settings(self) -> EncoderSettings:
        """Settings of the encoders of cameras."""
        own = self.stored.entries.get(INTERNAL)
        return EncoderSettings.of(own if is_dict(own) else {})

    def require_encoder(self, vcodec: str) -> None:
        """Check the encoder for episodes to record."""
        encoder, own = _encoder(vcodec), self.encoder_settings.codec
        if vcodec != "libsvtav1" and self.video_keys and encoder != own:
            raise ArgumentError(f"expected the encoder {own!r} of the dataset, got vcodec={vcodec!r}; leave it out")

    def update_video_info(self, video_key: str | None = None) -> None:
        """Note the encoding of cameras in `features`, where it is missing; `finalize` stores it in the dataset."""
        if video_key is not None and video_key not in self.video_keys:
            raise ArgumentError(f"no camera {video_key!r} in video; there are {self.video_keys}")
        for name in self.video_keys if video_key is None else [video_key]:
            if lacks_video_info(self.features[name]):
                depth = self.stored.features[name].depth
                self.features[name]["info"] = video_info(self._entry(0).videos[name].file, self.fps, depth)

    def reload(self) -> None:
        """Read the metadata again, because episodes were saved."""
        self.stored = read_info(self.root)
        for name in ("info", "pending", "entries", "_finalised", "episodes", "tasks", "subtasks", "stats"):
            self.__dict__.pop(name, None)

    @cached_property
    def info(self) -> dict[str, Any]:
        """Content of `meta/info.json`, with shapes as tuples. Episodes that are not finalised are counted."""
        entries = dict(self.stored.entries)
        entries["features"] = {
            name: {**each, "shape": tuple(each["shape"])} for name, each in entries["features"].items()
        }
        if self.pending:
            entries["total_episodes"] = len(self.entries)
            entries["total_frames"] = sum(entry.length for entry in self.entries)
            entries["total_tasks"] = len(self.tasks)
            entries["splits"] = {"train": f"0:{len(self.entries)}"}
        return entries

    @cached_property
    def pending(self) -> list[PendingEpisode]:
        """Episodes that are saved but not finalised."""
        return read_pending(self.stored, {entry.index for entry in self._finalised}, [])

    @cached_property
    def entries(self) -> list[EpisodeEntry]:
        """All episodes."""
        return [*self._finalised, *(episode.entry for episode in self.pending)]

    @cached_property
    def _finalised(self) -> list[EpisodeEntry]:
        return read_entries(self.stored, [])

    @cached_property
    def episodes(self) -> EpisodeRows:
        """Metadata of each episode, without statistics. Entries that a version lacks are computed."""
        stored: dict[Any, Mapping[str, Any]] = {row.get("episode_index"): row for row in stored_rows(self.stored, [])}
        rows: list[Mapping[str, Any]] = []
        start = 0
        for entry in self.entries:
            computed: dict[str, Any] = {
                "episode_index": entry.index,
                "tasks": list(entry.tasks),
                "length": entry.length,
                "dataset_from_index": start,
                "dataset_to_index": start + entry.length,
            }
            for name, place in entry.videos.items():
                end = place.start + entry.length / self.fps if place.end is None else place.end
                computed |= {f"videos/{name}/from_timestamp": place.start, f"videos/{name}/to_timestamp": end}
            rows.append({**computed, **stored.get(entry.index, entry.extra)})
            start += entry.length
        return EpisodeRows(rows)

    @cached_property
    def tasks(self) -> dict[int, str]:
        """Text of each task by its number."""
        return dict(sorted((read_tasks(self.stored) or {}).items()))

    @cached_property
    def stats(self) -> Statistics | None:
        """Figures of the dataset by feature, merged from figures of episodes if it has no others; None without any.

        Figures of depth are in millimetres, as depth in items is.
        """
        path = self.root / STATS
        whole: Statistics = {}
        if path.is_file():
            whole = {name: _arrays(figures) for name, figures in read_json(path).items()}
        else:
            for episode in read_statistics(self.stored, [entry.index for entry in self.entries]).values():
                for name, figures in episode.items():
                    arrays = _arrays(figures)
                    whole[name] = merged(whole[name], arrays) if name in whole else arrays
        for name, feature in self.stored.features.items():
            if feature.depth is not None and feature.depth.unit == "m" and name in whole:
                figures = whole[name]
                whole[name] = {figure: v if figure == "count" else v * MM for figure, v in figures.items()}
        return whole or None

    @cached_property
    def subtasks(self) -> dict[int, str] | None:
        """Text of each subtask by its number, or None if the dataset has none."""
        return read_subtasks(self.stored)

    def get_task_index(self, task: str) -> int | None:
        """Return the number of a task, or None if the dataset does not have it."""
        return next((number for number, text in self.tasks.items() if text == task), None)

    def get_data_file_path(self, ep_index: int) -> Path:
        """Return the data file of an episode, below the folder of the dataset."""
        return self._entry(ep_index).file.relative_to(self.root)

    def get_video_file_path(self, ep_index: int, vid_key: str) -> Path:
        """Return the video file of a camera and an episode, below the folder of the dataset."""
        videos = self._entry(ep_index).videos
        if vid_key not in videos:
            raise KeyError(f"no camera {vid_key!r} in video; there are {list(videos)}")
        return videos[vid_key].file.relative_to(self.root)

    def _entry(self, number: int) -> EpisodeEntry:
        if not 0 <= number < len(self.entries):
            raise IndexError(f"expected an episode within 0:{len(self.entries)}, got {number}")
        return self.entries[number]

    @property
    def data_path(self) -> str:
        """Pattern of the names of data files."""
        return self.info["data_path"]

    @property
    def video_path(self) -> str | None:
        """Pattern of the names of video files."""
        return self.info.get("video_path")

    @property
    def robot_type(self) -> str | None:
        """Name of the robot."""
        return self.info.get("robot_type")

    @property
    def fps(self) -> float:
        """Frames a second."""
        return self.info["fps"]

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Features by name: `dtype`, `shape` and `names`."""
        return self.info["features"]

    @property
    def image_keys(self) -> list[str]:
        """Names of the cameras that are stored as images."""
        return [name for name, feature in self.features.items() if feature["dtype"] == "image"]

    @property
    def video_keys(self) -> list[str]:
        """Names of the cameras that are stored as video."""
        return [name for name, feature in self.features.items() if feature["dtype"] == "video"]

    @property
    def camera_keys(self) -> list[str]:
        """Names of all cameras."""
        return [name for name, feature in self.features.items() if feature["dtype"] in CAMERAS]

    @property
    def names(self) -> dict[str, Any]:
        """Names of the elements or axes of each feature."""
        return {name: feature.get("names") for name, feature in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each feature."""
        return {name: feature["shape"] for name, feature in self.features.items()}

    @property
    def total_episodes(self) -> int:
        """Number of episodes."""
        return self.info["total_episodes"]

    @property
    def total_frames(self) -> int:
        """Number of frames."""
        return self.info["total_frames"]

    @property
    def total_tasks(self) -> int:
        """Number of tasks."""
        return self.info["total_tasks"]

    @property
    def chunks_size(self) -> int:
        """Most files of a folder."""
        return self.info["chunks_size"]

    @property
    def data_files_size_in_mb(self) -> int:
        """Size in MiB at which a data file is full."""
        return self.info["data_files_size_in_mb"]

    @property
    def video_files_size_in_mb(self) -> int:
        """Size in MiB at which LeRobot starts another video file."""
        return self.info["video_files_size_in_mb"]

    def get_chunk_settings(self) -> dict[str, int]:
        """Return the sizes of files and folders."""
        names = ("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb")
        return {name: self.info[name] for name in names}

    def update_chunk_settings(
        self,
        chunks_size: int | None = None,
        data_files_size_in_mb: int | None = None,
        video_files_size_in_mb: int | None = None,
    ) -> None:
        """Change the sizes of files and folders, for episodes that are saved from now on."""
        given = {
            "chunks_size": chunks_size,
            "data_files_size_in_mb": data_files_size_in_mb,
            "video_files_size_in_mb": video_files_size_in_mb,
        }
        require_local(self.root)
        change_sizes(self.root, {name: size for name, size in given.items() if size is not None})
        self.reload()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.repo_id!r}, episodes={self.total_episodes}, frames={self.total_frames}, "
            f"features={list(self.features)})"
        )


def _encoder(vcodec: str) -> str:
    """Return the encoder of PyAV."""
    if vcodec not in VIDEO_CODECS:
        raise ArgumentError(f"expected vcodec among {list(VIDEO_CODECS)}, got {vcodec!r}")
    return VIDEO_CODECS[vcodec]


def _arrays(figures: Mapping[str, Any]) -> dict[str, AnyArray]:
    return {name: np.asarray(value) for name, value in figures.items()}
