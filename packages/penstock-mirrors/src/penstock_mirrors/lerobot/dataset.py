"""`LeRobotDataset`: items of frames as LeRobot returns them, and recording.

Reading is a plan of `delta_timestamps` over the opened dataset (`reading`). Recording keeps the frames of one episode
in memory; `save_episode` hands them to the writer of the format, from which on they last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.errors import ArgumentError, DataError, require
from penstock.formats.lerobot.creation import features_spec, note_depth_units
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.recording import CameraStream
from penstock.formats.lerobot.writer import LeRobotWriter
from penstock_mirrors.lerobot.arguments import NOT_DOWNLOADED, only, require_local
from penstock_mirrors.lerobot.frame_table import FrameTable
from penstock_mirrors.lerobot.frames import TASK, checked_frame
from penstock_mirrors.lerobot.hub import refuse_to_pull, refuse_to_push
from penstock_mirrors.lerobot.metadata import LeRobotDatasetMetadata
from penstock_mirrors.lerobot.reading import Frames, items_of, open_frames

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    _Dataset = Dataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Dataset = torch.utils.data.Dataset

_BACKENDS = (None, "pyav")


class LeRobotDataset(_Dataset):
    """Frames of a LeRobot dataset of version 2.0, 2.1 or 3.0, as dicts of tensors."""

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
        vcodec: str = "libsvtav1",
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        encoder_threads: int | None = None,
    ) -> None:
        super().__init__()
        only("revision", revision, None, NOT_DOWNLOADED)
        only("force_cache_sync", force_cache_sync, False, NOT_DOWNLOADED)
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
        self.batch_encoding_size = batch_encoding_size
        self.vcodec = vcodec
        self.meta.require_encoder(vcodec)
        self._streaming_encoding = streaming_encoding
        self._cameras: CameraStream | None = None  # encodes the frames of `episode_buffer`
        self.episode_buffer: dict[str, Any] | None = None
        self._writer: LeRobotWriter | None = None
        self._opened: Frames | None = None
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
        metadata_buffer_size: int = 10,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        encoder_threads: int | None = None,
    ) -> Self:
        """Create a dataset to record."""
        if video_backend not in _BACKENDS:
            raise ArgumentError(f"expected video_backend None or 'pyav', got {video_backend!r}")
        LeRobotDatasetMetadata.create(
            repo_id, fps, features, robot_type=robot_type, root=root, use_videos=use_videos, vcodec=vcodec
        )
        dataset = cls(
            repo_id,
            root,
            tolerance_s=tolerance_s,
            video_backend=video_backend,
            batch_encoding_size=batch_encoding_size,
            vcodec=vcodec if use_videos else "libsvtav1",
            streaming_encoding=streaming_encoding,
        )
        dataset.episode_buffer = dataset.create_episode_buffer()
        return dataset

    def __getstate__(self) -> dict[str, Any]:
        """Copies read. The writer and unsaved frames stay with the original."""
        return {**self.__dict__, "_writer": None, "_cameras": None, "episode_buffer": None}

    def __len__(self) -> int:
        return self.num_frames

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Read one item."""
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several items at once, as `DataLoader` does."""
        batch = self._open().samples[[operator.index(i) for i in indices]]
        return items_of(batch, self.meta, self.delta_timestamps, self.image_transforms)

    def _open(self) -> Frames:
        """Return the chosen episodes, and the items. Opens the dataset, again after episodes were saved."""
        if self._opened is None:
            self._opened = open_frames(self.meta, self.episodes, self.delta_timestamps, self.tolerance_s)
        return self._opened

    @property
    def hf_dataset(self) -> FrameTable:
        """Table of the frames of the chosen episodes, without video; LeRobot has a `datasets.Dataset` here."""
        episodes = self._open().episodes
        stored = self._open().features
        features = {name: each for name, each in stored.items() if each.path in episodes.spec and each.dtype != "video"}
        return FrameTable(episodes.steps(), features)

    @property
    def hf_features(self) -> dict[str, dict[str, Any]]:
        """Features of `hf_dataset`: `dtype` and `shape` by name, where LeRobot has `datasets.Features`."""
        return self.hf_dataset.features

    def load_hf_dataset(self) -> FrameTable:
        """Return `hf_dataset`."""
        return self.hf_dataset

    def get_episodes_file_paths(self) -> list[Path]:
        """Return the data and video files of the chosen episodes, below the folder of the dataset."""
        episodes = range(self.meta.total_episodes) if self.episodes is None else self.episodes
        data = [self.meta.get_data_file_path(episode) for episode in episodes]
        videos = [self.meta.get_video_file_path(each, name) for name in self.meta.video_keys for each in episodes]
        return list(dict.fromkeys(data + videos))

    def push_to_hub(
        self,
        branch: str | None = None,
        tags: Sequence[str] | None = None,
        license: str | None = "apache-2.0",
        tag_version: bool = True,
        push_videos: bool = True,
        private: bool = False,
        allow_patterns: Sequence[str] | str | None = None,
        upload_large_folder: bool = False,
        **card_kwargs: Any,
    ) -> None:
        """Refuse to upload. The error names the command of the Hub's tools that does."""
        refuse_to_push(self.repo_id, self.root)

    def pull_from_repo(
        self,
        allow_patterns: Sequence[str] | str | None = None,
        ignore_patterns: Sequence[str] | str | None = None,
    ) -> None:
        """Refuse to download. The error names the command of the Hub's tools that does."""
        refuse_to_pull(self.repo_id, self.root, allow_patterns, ignore_patterns)

    def download(self, download_videos: bool = True) -> None:
        """Refuse to download. The error names the command of the Hub's tools that does."""
        chosen = None if self.episodes is None else [str(path) for path in self.get_episodes_file_paths()]
        refuse_to_pull(self.repo_id, self.root, chosen, None if download_videos else "videos/*")

    @property
    def num_frames(self) -> int:
        """Number of frames in the chosen episodes."""
        return len(self._open().samples)

    @property
    def num_episodes(self) -> int:
        """Number of chosen episodes."""
        return len(self._open().episodes)

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
        """Return an empty buffer of an episode."""
        index = self.meta.total_episodes if episode_index is None else episode_index
        columns: dict[str, Any] = {name: [] for name in self.meta.features}
        return {"size": 0, TASK: [], **columns, "episode_index": index}

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame to the episode. Values are copied, and stay in memory until `save_episode`."""
        require_local(self.root)
        self._note_depth_units(frame)
        values = checked_frame(frame, self._open().features)
        if self.episode_buffer is None:
            self.episode_buffer = self.create_episode_buffer()
        buffer = self.episode_buffer
        for name, value in values.items():
            buffer[name].append(value)
        self._encode(values)
        buffer["frame_index"].append(buffer["size"])
        buffer["timestamp"].append(buffer["size"] / self.fps)
        buffer["size"] += 1

    def _note_depth_units(self, frame: Mapping[str, Any]) -> None:
        """Note the units of depth maps whose features have none, from the dtypes of the first frame."""
        depths = {name: each.depth for name, each in self.meta.stored.features.items() if each.depth is not None}
        unknown = [name for name, depth in depths.items() if depth.unit is None and name in frame]
        if unknown and not self.meta.total_episodes:
            note_depth_units(self.root, {name: Depth.unit_of(np.asarray(frame[name]).dtype) for name in unknown})
            self.meta.reload()
            self._opened = None

    def _encode(self, values: Mapping[str, Any]) -> None:
        """Encode the pictures of a frame while the episode goes on, if `streaming_encoding` says so."""
        paths = {name: self.meta.stored.features[name].path for name in self.meta.video_keys}
        if not self._streaming_encoding or not paths:
            return
        if self._cameras is None:
            depths = {each.path: each.depth for each in self.meta.stored.features.values()}
            self._cameras = CameraStream(self.root, list(paths.values()), self.fps, self.meta.encoder_settings, depths)
        self._cameras.append({path: values[name] for name, path in paths.items()})

    def save_episode(self, episode_data: Mapping[str, Any] | None = None, parallel_encoding: bool = True) -> None:
        """Save the episode. From then on it lasts, and can be read."""
        buffer = self.episode_buffer if episode_data is None else episode_data
        if buffer is None or not buffer["size"]:
            raise DataError("expected frames to save, got none; add them with add_frame")
        require_local(self.root)
        spec = features_spec(self._open().features)
        if self._writer is None:
            self._writer = LeRobotWriter(self.root, spec, exact_depth=False)
        if int(buffer["episode_index"]) != len(self._writer):
            raise DataError(f"expected episode_index {len(self._writer)}, the next one, got {buffer['episode_index']}")
        columns: dict[str, Array] = {TASK: Ragged.from_strings(buffer[TASK])}
        for name, feature in self.meta.stored.features.items():
            if feature.path in spec and name != TASK:
                rows = buffer[name]
                columns[feature.path] = Ragged.from_strings(rows) if feature.dtype == "string" else np.stack(rows)
        encoded = self._cameras.finish() if self._cameras is not None and episode_data is None else None
        self._writer.write(Episode(spec, columns, len(self._writer), {}), videos=encoded)
        self.meta.reload()
        self._opened = None
        if episode_data is None:
            self.clear_episode_buffer()

    def clear_episode_buffer(self, delete_images: bool = True) -> None:
        """Drop the frames that were added since the last saved episode."""
        if self._cameras is not None:
            self._cameras.discard()
            self._cameras = None
        self.episode_buffer = self.create_episode_buffer()

    def finalize(self) -> None:
        """Join saved episodes into data files, so that LeRobot reads them. Recording may go on."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.meta.reload()
            self._opened = None

    def start_image_writer(self, num_processes: int = 0, num_threads: int = 4) -> None:
        """Do nothing: frames stay in memory until `save_episode`, so there is no image writer."""

    def stop_image_writer(self) -> None:
        """Do nothing: no image writer runs."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.repo_id!r}, episodes={self.num_episodes}, frames={self.num_frames}, "
            f"features={list(self.features)})"
        )
