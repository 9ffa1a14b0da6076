"""`LeRobotDatasetMetadata`: what LeRobot says about a dataset, from penstock's reading of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import ArgumentError
from penstock.formats.lerobot.creation import (
    CHUNKS_SIZE,
    DATA_MB,
    VIDEO_MB,
    WriteOptions,
    change_entries,
    change_sizes,
    create_features,
)
from penstock.formats.lerobot.depth import MM, Depth, Unit
from penstock.formats.lerobot.episodes import (
    EpisodeEntry,
    read_entries,
    read_statistics,
    read_subtasks,
    read_tasks,
    stored_rows,
)
from penstock.formats.lerobot.info import CAMERAS, INDICES, STATS, TOOLS, Info, read_info, read_json
from penstock.formats.lerobot.joining import PendingEpisode, read_pending, video_info
from penstock.formats.lerobot.language import MESSAGE_FIELDS
from penstock.formats.lerobot.stats import add_figures
from penstock_mirrors.lerobot.arguments import (
    RepoType,
    depth_unit,
    existing_root,
    refuse_downloads,
    require_local,
    root_of,
    url_of,
)
from penstock_mirrors.lerobot.encoders import (
    DepthEncoderConfig,
    RGBEncoderConfig,
    VideoEncoderConfig,
    described,
    is_known,
    with_encoders,
)
from penstock_mirrors.lerobot.info import DatasetInfo

Statistics = dict[str, dict[str, AnyArray]]

SAY_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "say",
        "description": "Speak a short utterance to the user via the TTS executor.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The verbatim text to speak."}},
            "required": ["text"],
        },
    },
}
"""The tool of datasets that name none, as in LeRobot."""


class EpisodeRows:
    """Metadata of episodes: `rows[2]` is a dict of the episode with index 2, `rows["length"]` a list of all."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        self._places = {row["episode_index"]: place for place, row in enumerate(rows)}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(dict, self._rows)

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            if key not in self.column_names:
                raise KeyError(f"no column {key!r}; there are {self.column_names}")
            return [row.get(key) for row in self._rows]
        if key < 0:  # from the end
            return dict(self._rows[key])
        if key not in self._places:
            raise IndexError(f"no episode {key}; there are {within(self._places)}")
        return dict(self._rows[self._places[key]])

    @property
    def column_names(self) -> list[str]:
        return list(dict.fromkeys(name for row in self._rows for name in row))


def within(indices: Collection[int]) -> str:
    """Return indices of episodes for a message: as a range if there are no gaps."""
    known = sorted(indices)
    return f"0:{len(known)}" if known == list(range(len(known))) else f"{len(known)}: {known[:8]}"


class LeRobotDatasetMetadata:
    """Metadata of a LeRobot dataset of version 2.0, 2.1 or 3.0."""

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        revision: str | None = None,
        force_cache_sync: bool = False,
        metadata_buffer_size: int = 10,
        *,
        repo_type: RepoType = "dataset",
        token: str | bool | None = None,
    ) -> None:
        refuse_downloads(revision, force_cache_sync, token)
        self.repo_id = repo_id
        self.repo_type: RepoType = repo_type
        self.revision = revision
        self.root = existing_root(repo_id, root, repo_type)
        self.stored: Info = read_info(self.root)
        self._depth_unit: Unit | None = None  # of figures

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
        *,
        rgb_encoder: RGBEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
    ) -> Self:
        """Create a dataset without episodes. See `LeRobotDataset.create`."""
        options = WriteOptions(
            fps=fps,
            robot_type=robot_type,
            cameras="video" if use_videos else "image",
            chunks_size=CHUNKS_SIZE if chunks_size is None else chunks_size,
            data_files_size_in_mb=DATA_MB if data_files_size_in_mb is None else data_files_size_in_mb,
            video_files_size_in_mb=VIDEO_MB if video_files_size_in_mb is None else video_files_size_in_mb,
        )
        features = {name: feature for name, feature in features.items() if name not in INDICES}
        if use_videos and any(feature.get("dtype") == "video" for feature in features.values()):
            rgb = rgb_encoder or RGBEncoderConfig()
            options = replace(options, **vars(rgb.settings(None)))
            features = with_encoders(features, rgb, depth_encoder or DepthEncoderConfig())
        create_features(root_of(repo_id, root), features, options, videos=use_videos)
        return cls(repo_id, root)

    def ensure_readable(self) -> None:
        """Do nothing: metadata are read when they are used."""

    def finalize(self) -> None:
        """Do nothing: metadata are on the disk when an episode is saved."""

    @property
    def url_root(self) -> str:
        """URL of the dataset on the Hub, which `penstock.open` reads."""
        return url_of(self.repo_id, self.repo_type)

    @property
    def known_encoder(self) -> RGBEncoderConfig | None:
        """Encoder of the videos that another program recorded, if it can be used."""
        if "codec" in self.stored.internal:
            return None
        for name in self.video_keys:
            info: dict[str, Any] = self.features[name].get("info") or {}
            if name not in self.depth_keys and is_known(info.get("video.codec")):
                return RGBEncoderConfig.from_video_info(info)
        return None

    def update_video_info(
        self,
        video_key: str | None = None,
        video_encoder: VideoEncoderConfig | None = None,
        preserve_keys: Iterable[str] | None = None,
    ) -> None:
        """Note the encoding of cameras in `features`, from their first video; the file stays as it is."""
        if video_key is not None and video_key not in self.video_keys:
            raise ArgumentError(f"no camera {video_key!r} in video; there are {self.video_keys}")
        for name in self.video_keys if video_key is None else [video_key]:
            own: dict[str, Any] = {"is_depth_map": False, **(self.features[name].get("info") or {})}
            own["is_depth_map"] |= own.pop("video.is_depth_map", False)  # its name before LeRobot 0.6
            depth = self.stored.features[name].depth
            video = video_info(self.entries[0].videos[name].file, self.fps, depth)
            video = {**({} if video_encoder is None else described(video_encoder)), **video}
            kept: dict[str, Any] = {key: own[key] for key in preserve_keys or () if key in own}
            self.features[name]["info"] = {**own, **video, **kept}

    def reload(self) -> None:
        """Read the metadata again, because episodes were saved."""
        self.stored = read_info(self.root)
        for name in ("info", "pending", "entries", "_finalised", "_by_index", "episodes", "tasks", "subtasks", "stats"):
            self.__dict__.pop(name, None)

    @cached_property
    def info(self) -> DatasetInfo:
        """Content of `meta/info.json`. Episodes that are not finalised are counted."""
        entries = {**self.stored.entries, "features": {k: dict(v) for k, v in self.stored.entries["features"].items()}}
        if self.pending:
            entries["total_episodes"] = len(self.entries)
            entries["total_frames"] = sum(entry.length for entry in self.entries)
            entries["total_tasks"] = len(self.tasks)
            entries["splits"] = {"train": f"0:{len(self.entries)}"}
        return DatasetInfo.from_dict(entries)

    @cached_property
    def pending(self) -> list[PendingEpisode]:
        """Episodes that are saved but not finalised."""
        return read_pending(self.stored, {entry.index for entry in self._finalised}, [])

    @cached_property
    def entries(self) -> list[EpisodeEntry]:
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
        """Figures of the dataset by feature, merged from figures of episodes if it has no others; None without any."""
        path = self.root / STATS
        whole: Statistics = {}
        if path.is_file():
            whole = {name: _arrays(figures) for name, figures in read_json(path).items()}
        else:
            for figures in read_statistics(self.stored, [entry.index for entry in self._finalised]).values():
                add_figures(whole, figures)
        for episode in self.pending:
            add_figures(whole, episode.statistics)
        for name, feature in self.stored.features.items():
            if name in whole and (factor := factor_of(feature.depth, self._depth_unit)) != 1:
                figures = whole[name]
                whole[name] = {figure: v if figure == "count" else v * factor for figure, v in figures.items()}
        return whole or None

    def rescale_depth_stats(self, output_unit: str) -> None:
        """Let `stats` have figures of depth in a unit. Depth of no known unit stays as it is."""
        self._depth_unit = depth_unit(output_unit)
        self.__dict__.pop("stats", None)

    def restore_depth_stats(self) -> None:
        """Let `stats` have figures of depth in the unit in which it is recorded."""
        self._depth_unit = None
        self.__dict__.pop("stats", None)

    def filter_episodes(
        self, predicate: Callable[[dict[str, Any]], bool], candidates: Sequence[int] | None = None
    ) -> list[int]:
        """Return the indices of the episodes whose metadata fulfil a condition, of some episodes or of all."""
        rows = [row for row in self.episodes if candidates is None or row["episode_index"] in candidates]
        return sorted(row["episode_index"] for row in rows if predicate(row))

    @cached_property
    def subtasks(self) -> dict[int, str] | None:
        """Text of each subtask by its number, or None if the dataset has none."""
        return read_subtasks(self.stored)

    def get_task_index(self, task: str) -> int | None:
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

    def _entry(self, index: int) -> EpisodeEntry:
        if index not in self._by_index:
            raise IndexError(f"no episode {index}; there are {within(self._by_index)}")
        return self._by_index[index]

    @cached_property
    def _by_index(self) -> dict[int, EpisodeEntry]:
        return {entry.index: entry for entry in self.entries}

    @property
    def data_path(self) -> str:
        """Pattern of the names of data files."""
        return self.info.data_path

    @property
    def video_path(self) -> str | None:
        """Pattern of the names of video files."""
        return self.info.video_path

    @property
    def robot_type(self) -> str | None:
        return self.info.robot_type

    @property
    def fps(self) -> float:
        """Frames a second."""
        return self.info.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Features by name: `dtype`, `shape` and `names`."""
        return self.info.features

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
        return [name for name, feature in self.features.items() if feature["dtype"] in CAMERAS]

    @property
    def depth_keys(self) -> list[str]:
        return [name for name, feature in self.features.items() if Depth.of(feature) is not None]

    @property
    def has_language_columns(self) -> bool:
        return any(name in self.features for name in MESSAGE_FIELDS)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that annotations call; datasets that name none have `say`. Set it to store others, or None."""
        return [dict(tool) for tool in self.info.tools or [SAY_TOOL]]

    @tools.setter
    def tools(self, value: Sequence[Mapping[str, Any]] | None) -> None:
        require_local(self.root)
        change_entries(self.root, {TOOLS: [dict(tool) for tool in value or ()] or None})
        self.reload()

    @property
    def names(self) -> dict[str, Any]:
        """Names of the elements or axes of each feature."""
        return {name: feature.get("names") for name, feature in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: feature["shape"] for name, feature in self.features.items()}

    @property
    def total_episodes(self) -> int:
        return self.info.total_episodes

    @property
    def total_frames(self) -> int:
        return self.info.total_frames

    @property
    def total_tasks(self) -> int:
        return self.info.total_tasks

    @property
    def chunks_size(self) -> int:
        """Most files of a folder."""
        return self.info.chunks_size

    @property
    def data_files_size_in_mb(self) -> int:
        """Size in MiB at which a data file is full."""
        return self.info.data_files_size_in_mb

    @property
    def video_files_size_in_mb(self) -> int:
        """Size in MiB at which LeRobot starts another video file."""
        return self.info.video_files_size_in_mb

    def get_chunk_settings(self) -> dict[str, int]:
        """Return the sizes of files and folders."""
        names = ("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb")
        return {name: getattr(self.info, name) for name in names}

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


def factor_of(depth: Depth | None, unit: Unit | None) -> float:
    """Return by what depth is multiplied to be in a unit. Depth of no known unit stays as it is."""
    if depth is None or None in (depth.unit, unit) or depth.unit == unit:
        return 1.0
    return MM if unit == "mm" else 1 / MM


def _arrays(figures: Mapping[str, Any]) -> dict[str, AnyArray]:
    return {name: np.asarray(value) for name, value in figures.items()}
