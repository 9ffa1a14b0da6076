"""`LeRobotDataset`: items of frames as LeRobot returns them (`reading`), and recording (`recording`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import ArgumentError, require
from penstock.formats.lerobot.depth import CODE_NAMES
from penstock_mirrors.lerobot.arguments import (
    depth_unit,
    refuse_downloads,
    refuse_to_push,
    video_backend_of,
)
from penstock_mirrors.lerobot.encoders import DepthEncoderConfig, RGBEncoderConfig
from penstock_mirrors.lerobot.frame_table import FrameTable
from penstock_mirrors.lerobot.metadata import LeRobotDatasetMetadata
from penstock_mirrors.lerobot.reading import FrameReader, ItemOptions
from penstock_mirrors.lerobot.recording import FrameRecorder

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    _Dataset = Dataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Dataset = torch.utils.data.Dataset

_READ_ONLY = "expected a dataset from LeRobotDataset.create or LeRobotDataset.resume, got a read-only one"


class LeRobotDataset(_Dataset):
    """Frames of a LeRobot dataset of version 2.0, 2.1 or 3.0, as dicts of tensors."""

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Sequence[int] | None = None,
        episode_filter: Callable[[dict[str, Any]], bool] | None = None,
        image_transforms: Callable[[torch.Tensor], torch.Tensor] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        video_backend: str | None = None,
        return_uint8: bool = False,
        depth_output_unit: str = "mm",
        batch_encoding_size: int = 1,
        rgb_encoder: RGBEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        encoder_threads: int | None = None,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        *,
        token: str | bool | None = None,
    ) -> None:
        super().__init__()
        refuse_downloads(revision, force_cache_sync, token)
        self.video_backend = video_backend_of(video_backend)
        self.meta = LeRobotDatasetMetadata(repo_id, root)
        self.meta.rescale_depth_stats(depth_output_unit)
        self.repo_id = repo_id
        self.root = self.meta.root
        self.revision = revision
        if episode_filter is not None:
            episodes = self.meta.filter_episodes(episode_filter, episodes)
            if not episodes:
                raise ArgumentError("expected an episode_filter that is true for some of the episodes, got none")
        self.episodes = None if episodes is None else list(episodes)
        self.delta_timestamps = delta_timestamps
        self.tolerance_s = tolerance_s
        options = ItemOptions(delta_timestamps, image_transforms, return_uint8, depth_unit(depth_output_unit))
        self.reader = FrameReader(self.meta, self.episodes, tolerance_s, options)
        _ = self.reader.frames  # so that wrong arguments are known at once
        self.writer: FrameRecorder | None = None
        if streaming_encoding or batch_encoding_size != 1:  # as LeRobot does, which prefers `resume`
            self._record(rgb_encoder, depth_encoder, encoder_threads, streaming=streaming_encoding)

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
        rgb_encoder: RGBEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        metadata_buffer_size: int = 10,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        encoder_threads: int | None = None,
        video_files_size_in_mb: int | None = None,
        data_files_size_in_mb: int | None = None,
    ) -> Self:
        video_backend_of(video_backend)
        LeRobotDatasetMetadata.create(
            repo_id,
            fps,
            features,
            robot_type=robot_type,
            root=root,
            use_videos=use_videos,
            video_files_size_in_mb=video_files_size_in_mb,
            data_files_size_in_mb=data_files_size_in_mb,
            rgb_encoder=rgb_encoder,
            depth_encoder=depth_encoder,
        )
        dataset = cls(repo_id, root, tolerance_s=tolerance_s, video_backend=video_backend)
        return dataset._record(rgb_encoder, depth_encoder, encoder_threads, streaming=streaming_encoding)

    @classmethod
    def resume(
        cls,
        repo_id: str,
        root: str | Path | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        video_backend: str | None = None,
        batch_encoding_size: int = 1,
        rgb_encoder: RGBEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        encoder_threads: int | None = None,
        image_writer_processes: int = 0,
        image_writer_threads: int = 0,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        *,
        token: str | bool | None = None,
    ) -> Self:
        """Continue the recording of a dataset, in new files. Without encoders, videos are encoded as before."""
        refuse_downloads(revision, force_cache_sync, token)
        dataset = cls(repo_id, root, tolerance_s=tolerance_s, video_backend=video_backend)
        return dataset._record(rgb_encoder, depth_encoder, encoder_threads, streaming=streaming_encoding)

    def _record(
        self,
        rgb: RGBEncoderConfig | None,
        depth: DepthEncoderConfig | None,
        threads: int | None,
        *,
        streaming: bool,
    ) -> Self:
        """Let the dataset take frames."""
        self.meta.restore_depth_stats()  # as in LeRobot
        for name, feature in self.meta.stored.features.items():
            known = feature.depth
            if depth is not None and known is not None and feature.dtype == "video":
                codes = {each: getattr(known, each) for each in CODE_NAMES}
                if other := {each: getattr(depth, each) for each in CODE_NAMES if getattr(depth, each) != codes[each]}:
                    raise ArgumentError(f"expected the codes {codes} of {name!r} in depth_encoder, got {other}")
        rgb = rgb or self.meta.known_encoder
        self.writer = FrameRecorder(self.reader, None if rgb is None else rgb.settings(threads), streaming=streaming)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Copies read. The writer and unsaved frames stay with the original."""
        return {**self.__dict__, "writer": None}

    def __len__(self) -> int:
        return self.num_frames

    def __getitem__(self, idx: int | slice) -> Any:
        """Read one item, or a list of items."""
        if isinstance(idx, slice):
            return self.reader.get_items(range(*idx.indices(len(self))))
        return self.reader.get_item(idx)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several items at once, as `DataLoader` does."""
        return self.reader.get_items(indices)

    @property
    def hf_dataset(self) -> FrameTable:
        """Table of the frames of the chosen episodes, without video; LeRobot has a `datasets.Dataset` here."""
        frames = self.reader.frames
        features = {
            name: each
            for name, each in frames.features.items()
            if each.path in frames.episodes.spec and each.dtype != "video"
        }
        return FrameTable(frames.episodes.steps(), features)

    def select_columns(self, column_names: str | Sequence[str]) -> FrameTable:
        return self.hf_dataset.select_columns(column_names)

    def get_raw_item(self, idx: int) -> dict[str, Any]:
        """Read a row of `hf_dataset`: no times around the frame, no video, no transforms."""
        return self.hf_dataset[idx]

    @property
    def absolute_to_relative_idx(self) -> dict[int, int] | None:
        """Rows of the chosen episodes by `index`, or None if all are chosen."""
        if self.episodes is None:
            return None
        return {int(index): row for row, index in enumerate(self.hf_dataset.with_format("numpy")["index"])}

    @property
    def image_transforms(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """Function that is applied to pictures in colour."""
        return self.reader.options.transform

    def set_image_transforms(self, image_transforms: Callable[[torch.Tensor], torch.Tensor] | None) -> None:
        """Set the function that is applied to pictures in colour."""
        self.reader.set_image_transforms(image_transforms)

    def clear_image_transforms(self) -> None:
        """Leave pictures as they are."""
        self.reader.clear_image_transforms()

    def push_to_hub(
        self,
        branch: str | None = None,
        tags: Sequence[str] | None = None,
        license: str | None = "apache-2.0",
        tag_version: bool = True,
        push_videos: bool = True,
        private: bool | None = None,
        allow_patterns: Sequence[str] | str | None = None,
        upload_large_folder: bool = False,
        **card_kwargs: Any,
    ) -> None:
        """Refuse to upload. The error names the command of the Hub's tools that does."""
        refuse_to_push(self.repo_id, self.root)

    @property
    def num_frames(self) -> int:
        """Number of frames in the chosen episodes."""
        return self.reader.num_frames

    @property
    def num_episodes(self) -> int:
        """Number of chosen episodes."""
        return self.reader.num_episodes

    @property
    def fps(self) -> float:
        """Frames a second."""
        return self.meta.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Features by name: `dtype`, `shape` and `names`."""
        return self.meta.features

    @property
    def depth_output_unit(self) -> str:
        """Unit of depth in items and `meta.stats`: `"m"` or `"mm"`."""
        return self.reader.options.depth_unit

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame to the episode. Values are copied, and stay in memory until `save_episode`."""
        self._recorder("add_frame").add_frame(frame)

    def save_episode(self, episode_data: Mapping[str, Any] | None = None, parallel_encoding: bool = True) -> None:
        """Save the episode. From then on it lasts, and can be read."""
        self._recorder("save_episode").save_episode(episode_data, parallel_encoding)

    def clear_episode_buffer(self, delete_images: bool = True) -> None:
        """Drop the frames that were added since the last saved episode."""
        self._recorder("clear_episode_buffer").clear_episode_buffer(delete_images)

    def has_pending_frames(self) -> bool:
        """Whether frames were added since the last saved episode."""
        return self.writer is not None and self.writer.episode_buffer["size"] > 0

    def finalize(self) -> None:
        """Join saved episodes into data files, so that LeRobot reads them. Recording may go on."""
        if self.writer is not None:
            self.writer.finalize()

    def _recorder(self, method: str) -> FrameRecorder:
        if self.writer is None:
            raise RuntimeError(f"{method}: {_READ_ONLY}")
        return self.writer

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.repo_id!r}, episodes={self.num_episodes}, frames={self.num_frames}, "
            f"features={list(self.features)})"
        )
