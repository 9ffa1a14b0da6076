"""Create LeRobot datasets of version 3.0: options, and the metadata of a dataset without episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.narrowing import is_mapping
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, DataError, SpecError
from penstock.files import atomic_path, write_atomic
from penstock.formats.lerobot.depth import DEPTH, Depth
from penstock.formats.lerobot.encoding import TASK, Cameras, columns_entry, index_features, stored_features
from penstock.formats.lerobot.info import CAMERAS, INFO, INTERNAL, STRUCTURE, Feature, read_info
from penstock.formats.lerobot.pending import FOLDER
from penstock.formats.lerobot.written_files import json_bytes, write_tasks

DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
CHUNKS_SIZE = 1000  # this and the next two as in LeRobot
DATA_MB = 100
VIDEO_MB = 200
DATA_LIMIT, VIDEO_LIMIT = "data_files_size_in_mb", "video_files_size_in_mb"


@dataclass(frozen=True, eq=False)
class WriteOptions:
    """Options of a new dataset."""

    fps: float | None = None
    robot_type: str | None = None
    cameras: Cameras = "image"
    depth: Mapping[str, str | Mapping[str, Any]] | None = None
    codec: str = "libsvtav1"
    crf: int | None = None
    g: int = 2
    data_files_size_in_mb: int = DATA_MB
    video_files_size_in_mb: int = VIDEO_MB
    chunks_size: int = CHUNKS_SIZE

    def __post_init__(self) -> None:
        if self.cameras not in ("image", "video", "array"):
            raise ArgumentError(f"expected cameras 'image', 'video' or 'array', got {self.cameras!r}")
        if self.cameras != "video" and (self.codec, self.crf, self.g) != ("libsvtav1", None, 2):
            raise ArgumentError(f"expected codec, crf and g with cameras='video' alone, got cameras={self.cameras!r}")
        if min(self.data_files_size_in_mb, self.video_files_size_in_mb, self.chunks_size) < 1:
            raise ArgumentError("expected data_files_size_in_mb, video_files_size_in_mb and chunks_size of at least 1")


def create_empty(path: Path, spec: Spec, metadata: Mapping[str, Any], options: WriteOptions) -> None:
    """Create an empty dataset for columns."""
    stored = stored_features(spec, options.cameras, _depths(spec, metadata, options))
    fps = metadata.get("fps") if options.fps is None else options.fps
    if not isinstance(fps, (int, float)) or not fps > 0:
        raise DataError(f"expected the steps a second as option fps or as metadata, got {fps!r}")
    robot = metadata.get("robot_type") if options.robot_type is None else options.robot_type
    features = {each.feature.name: each.described for each in stored.values()}
    videos = any(each.feature.dtype == "video" for each in stored.values())
    internal = {
        "columns": columns_entry(stored),
        "metadata": {name: value for name, value in metadata.items() if name not in STRUCTURE},
        "task": TASK in spec,
        **_encoding(options),
        "spaces": {name: value for name, value in spec.to_json().items() if name != "fields" and value is not None},
    }
    options = replace(options, fps=float(fps), robot_type=robot)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        _write_empty(temporary, features, options, internal, videos=videos)


def create_features(
    path: Path, features: Mapping[str, Mapping[str, Any]], options: WriteOptions, *, videos: bool
) -> None:
    """Create an empty dataset with features as LeRobot describes them. `features_spec` has its columns."""
    if options.fps is None or not options.fps > 0:
        raise ArgumentError(f"expected fps above 0, got {options.fps!r}")
    if wrong := [name for name in features if "/" in name or name in index_features() or name == TASK]:
        raise SpecError(f"expected names without '/' that the format does not compute, got {wrong}")
    if not videos and any(each.get("dtype") == "video" for each in features.values()):
        raise SpecError("expected features without video, because use_videos is False")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        _write_empty(temporary, features, options, _encoding(options), videos=videos)
        info = read_info(temporary)
        wrong = [f"{name}: {why}" for name, why in info.unknown.items()]
        wrong += [
            f"{name}: expected 3 channels, or is_depth_map in its info, got {feature.shape[2]} channels"
            for name, feature in info.features.items()
            if feature.dtype in CAMERAS and feature.shape[2] != 3 and feature.depth is None
        ]
        wrong += [f"{name}: expected up to 5 axes" for name, each in info.features.items() if len(each.shape) > 5]
        if wrong:
            raise SpecError(f"expected features that can be stored, got {wrong}")


def features_spec(features: Mapping[str, Feature]) -> Spec:
    """Return the columns of episodes to write: the features that are not computed, and the text of the task."""
    fields = {feature.path: feature.field for name, feature in features.items() if name not in index_features()}
    return Spec({**fields, TASK: Field(np.dtype(np.uint8), kind="text")})


def _depths(spec: Spec, metadata: Mapping[str, Any], options: WriteOptions) -> dict[str, tuple[Depth, bool]]:
    """Return the unit and codes of each depth map, and whether it is stored in video.

    Columns that metadata describe and that have other values now are numbers. Raises `SpecError` and `ArgumentError`
    for columns that the option describes.
    """
    entries = metadata.get(DEPTH) if options.depth is None else options.depth
    if options.depth is not None and options.cameras == "array":
        raise ArgumentError("expected depth with cameras 'image' or 'video', got cameras='array'")
    depths: dict[str, tuple[Depth, bool]] = {}
    for path, entry in entries.items() if is_mapping(entries) and options.cameras != "array" else ():
        described = {"unit": entry} if isinstance(entry, str) else entry
        try:
            depth = Depth.from_json(described)
        except (AttributeError, TypeError, ValueError) as error:
            raise ArgumentError(f"expected unit and codes of the depth map {path}, got {entry!r}") from error
        field = spec.get(path)
        dtypes = (
            [depth.dtype] if depth.unit or "depth_min" in described else [np.dtype(np.uint16), np.dtype(np.float32)]
        )
        if field is not None and field.dtype in dtypes and len(field.shape) == 3 and field.shape[2] == 1:
            depths[str(path)] = depth, options.cameras == "video" and "depth_min" in described
        elif options.depth is not None:
            raise SpecError(f"expected a column {path} of {dtypes[0]} [height, width, 1] for depth, got {field}")
    return depths


def _encoding(options: WriteOptions) -> dict[str, Any]:
    """Return how video is encoded, also when episodes are appended."""
    return {"codec": options.codec, "crf": options.crf, "g": options.g}


def _write_empty(
    root: Path,
    features: Mapping[str, Mapping[str, Any]],
    options: WriteOptions,
    internal: Mapping[str, Any],
    *,
    videos: bool,
) -> None:
    """Write the metadata of a dataset without episodes."""
    fps = 0.0 if options.fps is None else options.fps
    info = {
        "codebase_version": "v3.0",
        "robot_type": options.robot_type,
        "total_episodes": 0,
        "total_frames": 0,
        "total_tasks": 0,
        "chunks_size": options.chunks_size,
        "data_files_size_in_mb": options.data_files_size_in_mb,
        "video_files_size_in_mb": options.video_files_size_in_mb,
        "fps": int(fps) if fps == int(fps) else fps,
        "splits": {},
        "data_path": DATA,
        "video_path": VIDEO if videos else None,
        "features": {**features, **index_features()},
        INTERNAL: internal,
    }
    for folder in ("meta/episodes/chunk-000", "data/chunk-000", FOLDER):
        (root / folder).mkdir(parents=True)
    write_atomic(root / INFO, json_bytes(info))
    write_tasks(root, [])
