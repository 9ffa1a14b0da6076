"""`LeRobotDataset`: items of frames as LeRobot returns them, and recording.

Reading is a plan of `delta_timestamps` over the opened dataset; this module only gives its columns LeRobot's names and
tensors. Floats are float32 and integers int64, because LeRobot makes tensors of Python numbers. Recording keeps the
frames of one episode in memory; `save_episode` hands them to the writer of the format, from which on they last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.compat.lerobot.arguments import FRAMES_IN_MEMORY, NOT_DOWNLOADED, only
from penstock.compat.lerobot.frames import TASK, checked_frame
from penstock.compat.lerobot.metadata import LeRobotDatasetMetadata
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, DataError, require
from penstock.formats.lerobot.creation import features_spec
from penstock.formats.lerobot.info import CAMERAS, Feature
from penstock.formats.lerobot.source import LeRobotSource
from penstock.formats.lerobot.writer import LeRobotWriter

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    _Dataset = Dataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Dataset = torch.utils.data.Dataset

_BACKENDS = (None, "pyav")


class LeRobotDataset(_Dataset):
    """Frames of a LeRobot dataset of version 2.0, 2.1 or 3.0, as dicts of tensors.

    Args:
        repo_id: Such as `"lerobot/pusht"`.
        root: Folder of the dataset. The default is None: `repo_id` in `HF_LEROBOT_HOME`.
        episodes: Indices of the episodes to read. The default is None: all.
        image_transforms: Function of the tensor of each camera. The default is None.
        delta_timestamps: Seconds around each frame by feature. The default is None: the frame alone.
        tolerance_s: Most seconds between times and frames. The default is 1e-4.
        revision: Must be None, because nothing is downloaded.
        force_cache_sync: Must be False, because nothing is downloaded.
        download_videos: Nothing is downloaded either way. The default is True.
        video_backend: None or `"pyav"`, which decodes video here.
        batch_encoding_size: Must be 1: each episode is encoded when it is saved.

    Raises:
        FileNotFoundError: There is no dataset at the place.
        FormatError: The dataset is damaged.
        PlanError: A time is no multiple of `1 / fps`.
        ArgumentError: An episode or a feature is unknown, or an argument cannot be honoured.
    """

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Sequence[int] | None = None,
        image_transforms: Callable[[torch.Tensor], torch.Tensor] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        video_backend: str | None = None,
        batch_encoding_size: int = 1,
    ) -> None:
        super().__init__()
        only("revision", revision, None, NOT_DOWNLOADED)
        only("force_cache_sync", force_cache_sync, False, NOT_DOWNLOADED)
        only("batch_encoding_size", batch_encoding_size, 1, "each episode is encoded when it is saved")
        if video_backend not in _BACKENDS:
            raise ArgumentError(f"expected video_backend None or 'pyav', got {video_backend!r}")
        self.meta = LeRobotDatasetMetadata(repo_id, root)
        self.repo_id = repo_id
        self.root = self.meta.root
        self.revision = revision
        self.episodes = None if episodes is None else list(episodes)
        self.image_transforms = image_transforms
        self.delta_timestamps = delta_timestamps
        self.tolerance_s = tolerance_s
        self.video_backend = video_backend
        self.episode_buffer: dict[str, Any] | None = None
        self._writer: LeRobotWriter | None = None
        self._opened: tuple[EpisodeDataset, MapDataset] | None = None
        self._open()  # so that wrong arguments are known at once

    @classmethod
    def create(
        cls,
        repo_id: str,
        fps: float,
        features: Mapping[str, Mapping[str, Any]],
        root: str | Path | None = None,
        robot_type: str | None = None,
        use_videos: bool = True,
        tolerance_s: float = 1e-4,
        image_writer_processes: int = 0,
        image_writer_threads: int = 0,
        video_backend: str | None = None,
        batch_encoding_size: int = 1,
        vcodec: str = "libsvtav1",
    ) -> Self:
        """Create a dataset to record.

        Args:
            repo_id: Such as `"me/cubes"`.
            fps: Frames a second.
            features: `dtype`, `shape` and `names` by name. Cameras have the dtype `"video"` or `"image"`.
            root: Folder of the dataset, which must not exist. The default is None: `repo_id` in `HF_LEROBOT_HOME`.
            robot_type: Name of the robot. The default is None.
            use_videos: Whether features may be video. The default is True.
            tolerance_s: As for reading.
            image_writer_processes: Must be 0, because frames stay in memory until the episode is saved.
            image_writer_threads: Must be 0.
            video_backend: As for reading.
            batch_encoding_size: Must be 1.
            vcodec: `"libsvtav1"`, `"h264"` or `"hevc"`. The default is `"libsvtav1"`.

        Raises:
            FileExistsError: The folder exists.
            SpecError: A feature cannot be stored.
            ArgumentError: An argument cannot be honoured.
        """
        only("image_writer_processes", image_writer_processes, 0, FRAMES_IN_MEMORY)
        only("image_writer_threads", image_writer_threads, 0, FRAMES_IN_MEMORY)
        only("batch_encoding_size", batch_encoding_size, 1, "each episode is encoded when it is saved")
        if video_backend not in _BACKENDS:
            raise ArgumentError(f"expected video_backend None or 'pyav', got {video_backend!r}")
        LeRobotDatasetMetadata.create(
            repo_id, fps, features, robot_type=robot_type, root=root, use_videos=use_videos, vcodec=vcodec
        )
        dataset = cls(repo_id, root, tolerance_s=tolerance_s, video_backend=video_backend)
        dataset.episode_buffer = dataset.create_episode_buffer()
        return dataset

    def __getstate__(self) -> dict[str, Any]:
        """Copies read. The writer and unsaved frames stay with the original."""
        return {**self.__dict__, "_writer": None, "episode_buffer": None}

    def __len__(self) -> int:
        return self.num_frames

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Read one item.

        Args:
            idx: Number of a frame among the frames of the chosen episodes. Negative numbers count from the end.

        Raises:
            IndexError: There is no such frame.
        """
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several items at once, as `DataLoader` does.

        Args:
            indices: Numbers of frames.
        """
        columns = self._open()[1][[operator.index(i) for i in indices]].flat
        features = {name: each for name, each in self.meta.stored.features.items() if each.path in columns}
        ordered = sorted(features, key=lambda name: features[name].dtype != "video")  # LeRobot has video first
        by_feature = {name: self._values(features[name], columns[features[name].path]) for name in ordered}
        for name in self.delta_timestamps or {}:
            mask = columns[f"{features[name].path}_mask"]
            by_feature[f"{name}_is_pad"] = torch.as_tensor(~np.asarray(mask))
        texts = columns.get(TASK)
        if isinstance(texts, Ragged):
            by_feature[TASK] = texts.strings()
        if (subtasks := self.meta.subtasks) is not None and "subtask_index" in by_feature:
            by_feature["subtask"] = [subtasks[int(number)] for number in by_feature["subtask_index"]]
        items = [{name: values[i] for name, values in by_feature.items()} for i in range(len(indices))]
        if self.image_transforms is not None:
            for item in items:
                for name in self.meta.camera_keys:
                    item[name] = self.image_transforms(item[name])
        return items

    def _values(self, feature: Feature, rows: Array) -> Any:
        """Return the values of a feature: tensors, or a list of text."""
        if isinstance(rows, Ragged):
            return rows.strings()
        if feature.shape == (1,):
            rows = rows[..., 0]
        if feature.dtype == "video" and len((self.delta_timestamps or {}).get(feature.name, ())) == 1:
            rows = rows[:, 0]  # LeRobot has no axis of one frame of a video, and one of a single image
        if feature.dtype in CAMERAS:
            return torch.as_tensor(rows).movedim(-1, -3).contiguous().float().div(255)
        if rows.dtype.kind == "f":
            return torch.as_tensor(rows.astype(np.float32, copy=False))
        return torch.as_tensor(rows if rows.dtype == np.bool_ else rows.astype(np.int64, copy=False))

    def _open(self) -> tuple[EpisodeDataset, MapDataset]:
        """Return the chosen episodes, and the items. Opens the dataset, again after episodes were saved."""
        if self._opened is None:
            source = LeRobotSource(self.root, tolerance_s=self.tolerance_s)
            data = EpisodeDataset(source)
            if self.episodes is not None:
                numbers = {entry.index: number for number, entry in enumerate(source.state.episodes)}
                if unknown := [index for index in self.episodes if index not in numbers]:
                    raise ArgumentError(f"no episodes {unknown}; there are {len(numbers)} that can be read")
                data = data.take(sorted({numbers[index] for index in self.episodes}))
            times = self.delta_timestamps or {}
            readable = {name for name, each in source.state.info.features.items() if each.path in data.spec}
            if unknown := [name for name in times if name not in readable]:
                raise ArgumentError(f"no features {unknown} for delta_timestamps; there are {sorted(readable)}")
            if texts := [name for name in times if source.state.info.features[name].dtype == "string"]:
                raise ArgumentError(f"expected numbers or cameras for delta_timestamps, got text: {texts}")
            items = data.delta_timestamps(times, tolerance=self.tolerance_s) if times else data.samples()
            self._opened = data, items
        return self._opened

    @property
    def num_frames(self) -> int:
        """Number of frames in the chosen episodes."""
        return len(self._open()[1])

    @property
    def num_episodes(self) -> int:
        """Number of chosen episodes."""
        return len(self._open()[0])

    @property
    def fps(self) -> float:
        """Frames a second."""
        return self.meta.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Features by name: `dtype`, `shape` and `names`."""
        return self.meta.features

    @property
    def delta_indices(self) -> dict[str, list[int]] | None:
        """`delta_timestamps` in frames."""
        if self.delta_timestamps is None:
            return None
        return {name: [round(time * self.fps) for time in times] for name, times in self.delta_timestamps.items()}

    def create_episode_buffer(self, episode_index: int | None = None) -> dict[str, Any]:
        """Return an empty buffer of an episode.

        Args:
            episode_index: Its index. The default is None: the next.
        """
        index = self.meta.total_episodes if episode_index is None else episode_index
        columns: dict[str, Any] = {name: [] for name in self.meta.features}
        return {"size": 0, TASK: [], **columns, "episode_index": index}

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame to the episode. Values are copied, and stay in memory until `save_episode`.

        Args:
            frame: Arrays or tensors by name, with the dtype and shape of the feature; pictures as uint8, as floats
                from 0 to 1, or of Pillow, channels first or last; and the text `"task"`.

        Raises:
            DataError: A feature is missing or unknown, or a value does not fit.
        """
        values = checked_frame(frame, self.meta.stored.features)
        if self.episode_buffer is None:
            self.episode_buffer = self.create_episode_buffer()
        buffer = self.episode_buffer
        for name, value in values.items():
            buffer[name].append(value)
        buffer["frame_index"].append(buffer["size"])
        buffer["timestamp"].append(buffer["size"] / self.fps)
        buffer["size"] += 1

    def save_episode(self, episode_data: Mapping[str, Any] | None = None) -> None:
        """Save the episode. From then on it lasts, and can be read.

        Args:
            episode_data: A buffer with frames, as `create_episode_buffer` has them. The default is None: the frames
                that were added.

        Raises:
            DataError: There are no frames, or `episode_index` is not the next one.
            LockedError: Another writer is open.
        """
        buffer = self.episode_buffer if episode_data is None else episode_data
        if buffer is None or not buffer["size"]:
            raise DataError("expected frames to save, got none; add them with add_frame")
        spec = features_spec(self.meta.stored)
        if self._writer is None:
            self._writer = LeRobotWriter(self.root, spec)
        if int(buffer["episode_index"]) != len(self._writer):
            raise DataError(f"expected episode_index {len(self._writer)}, the next one, got {buffer['episode_index']}")
        columns: dict[str, Array] = {TASK: Ragged.from_strings(buffer[TASK])}
        for name, feature in self.meta.stored.features.items():
            if feature.path in spec and name != TASK:
                rows = buffer[name]
                columns[feature.path] = Ragged.from_strings(rows) if feature.dtype == "string" else np.stack(rows)
        self._writer.write(Episode(spec, columns, len(self._writer), {}))
        self.meta.reload()
        self._opened = None
        if episode_data is None:
            self.episode_buffer = self.create_episode_buffer()

    def clear_episode_buffer(self) -> None:
        """Drop the frames that were added since the last saved episode."""
        self.episode_buffer = self.create_episode_buffer()

    def finalize(self) -> None:
        """Join saved episodes into data files, so that LeRobot reads them. Recording may go on."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.meta.reload()
            self._opened = None

    def start_image_writer(self, num_processes: int = 0, num_threads: int = 0) -> None:
        """Refuse threads and processes, because there is no image writer.

        Args:
            num_processes: Must be 0.
            num_threads: Must be 0.
        """
        only("num_processes", num_processes, 0, FRAMES_IN_MEMORY)
        only("num_threads", num_threads, 0, FRAMES_IN_MEMORY)

    def stop_image_writer(self) -> None:
        """Do nothing: no image writer runs."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.repo_id!r}, episodes={self.num_episodes}, frames={self.num_frames}, "
            f"features={list(self.features)})"
        )
