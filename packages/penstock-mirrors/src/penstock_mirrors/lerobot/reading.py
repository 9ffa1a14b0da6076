"""Frames of an opened dataset, and their columns as the tensors that LeRobot's items have.

Floats are float32 and integers int64, because LeRobot makes tensors of Python numbers.
"""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns
from penstock.core.damage import warn_damage
from penstock.core.ragged import Array, Ragged
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, require
from penstock.formats.lerobot.depth import Depth, Unit
from penstock.formats.lerobot.info import CAMERAS, LANGUAGE, TASK, Feature
from penstock.formats.lerobot.source import LeRobotSource
from penstock_mirrors.lerobot.metadata import LeRobotDatasetMetadata, factor_of, within

if TYPE_CHECKING:
    import torch
else:
    torch = require("torch", "torch")

Times = Mapping[str, Sequence[float]]
ImageTransform = Callable[["torch.Tensor"], "torch.Tensor"]


class Frames(NamedTuple):
    """Chosen episodes of a dataset, a sample for each of their frames, and the features by name."""

    episodes: EpisodeDataset
    samples: MapDataset
    features: Mapping[str, Feature]


def chosen_episodes(meta: LeRobotDatasetMetadata, episodes: Sequence[int] | None) -> list[int] | None:
    """Return the episodes of a list that the dataset has. A warning names the others, as in LeRobot 0.6.2."""
    if episodes is None:
        return None
    known = {entry.index for entry in meta.entries}
    chosen = [index for index in episodes if index in known]
    if wrong := [index for index in episodes if index not in known]:
        warnings.warn(f"left out {wrong}: the dataset has the episodes {within(known)}", stacklevel=3)
    if not chosen:
        raise ArgumentError(f"expected some of the episodes {within(known)}, got {list(episodes)}")
    return chosen


def open_frames(
    meta: LeRobotDatasetMetadata, episodes: Sequence[int] | None, times: Times | None, tolerance_s: float
) -> Frames:
    """Open the frames of some episodes. A `DamageWarning` names what cannot be read."""
    source = LeRobotSource(meta.root, tolerance_s=tolerance_s)
    if (left_out := source.account.warning()) is not None:
        warn_damage(f"{meta.root}: {left_out}", stacklevel=4)
    data = EpisodeDataset(source)
    if episodes is not None:
        numbers = {entry.index: number for number, entry in enumerate(source.state.episodes)}
        if unknown := [index for index in episodes if index not in numbers]:
            raise ArgumentError(f"no episodes {unknown}; there are {len(numbers)} that can be read")
        data = data[sorted({numbers[index] for index in episodes})]
    wanted = times or {}
    readable = {name for name, each in source.state.info.features.items() if each.path in data.spec}
    if unknown := [name for name in wanted if name not in readable]:
        raise ArgumentError(f"no features {unknown} for delta_timestamps; there are {sorted(readable)}")
    if texts := [name for name in wanted if source.state.info.features[name].is_text]:
        raise ArgumentError(f"expected numbers or cameras for delta_timestamps, got text: {texts}")
    samples = data.delta_timestamps(wanted, tolerance=tolerance_s) if wanted else data.steps()
    return Frames(data, samples, source.state.info.features)


@dataclass(frozen=True)
class ItemOptions:
    """How items are made of samples."""

    times: Times | None = None
    transform: ImageTransform | None = None
    return_uint8: bool = False
    depth_unit: Unit = "mm"

    def __post_init__(self) -> None:
        if self.transform is not None and not callable(self.transform):
            raise TypeError(f"expected a function or None as image_transforms, got {self.transform!r}")


def items_of(batch: Columns, meta: LeRobotDatasetMetadata, options: ItemOptions) -> list[dict[str, Any]]:
    columns = batch.flat
    times = options.times or {}
    features = {name: each for name, each in meta.stored.features.items() if each.path in columns}
    ordered = sorted(features, key=lambda name: features[name].dtype != "video")  # LeRobot has video first
    by_feature: dict[str, Any] = {}
    for name in ordered:
        feature, rows = features[name], columns[features[name].path]
        if feature.depth is not None:
            rows = depth_in(options.depth_unit, feature, feature.depth, np.asarray(rows))
        by_feature[name] = tensor_of(feature, rows, len(times.get(name, ())), raw=options.return_uint8)
    for name in times:
        mask = columns[f"{features[name].path}_mask"]
        by_feature[f"{name}_is_pad"] = torch.as_tensor(~np.asarray(mask))
    texts = columns.get(TASK)
    if isinstance(texts, Ragged):
        by_feature[TASK] = texts.strings()
    if (subtasks := meta.subtasks) is not None and "subtask_index" in by_feature:
        by_feature["subtask"] = [subtasks[int(number)] for number in by_feature["subtask_index"]]
    items = [{name: values[i] for name, values in by_feature.items()} for i in range(batch.n)]
    if options.transform is not None:
        for item in items:
            for name, feature in features.items():
                if feature.dtype in CAMERAS and feature.depth is None:
                    item[name] = options.transform(item[name])
    return items


def depth_in(unit: Unit, feature: Feature, depth: Depth, rows: AnyArray) -> AnyArray:
    """Return depth in a unit, as float32. Millimetres of video are whole, metres are as the code has them."""
    factor = factor_of(depth, unit)
    if feature.dtype == "video" and unit == "m" and depth.unit != "m":
        return replace(depth, unit="m").values[replace(depth, unit="mm").codes(rows)]
    numbers: AnyArray = rows.astype(np.float32)
    scaled: AnyArray = numbers / np.float32(1 / factor) if factor < 1 else numbers * np.float32(factor)
    return np.rint(scaled) if feature.dtype == "video" and unit == "mm" else scaled


def values_of(feature: Feature, rows: Ragged) -> list[Any]:
    """Return text, or lists of messages."""
    texts = rows.strings()
    return [json.loads(text) for text in texts] if feature.dtype == LANGUAGE else texts


def tensor_of(feature: Feature, rows: Array, times: int = 0, *, raw: bool = False) -> Any:
    """Return the values of a feature: a tensor with a row for each sample, or a list of text.

    Pictures are floats from 0 to 1; with `raw`, frames of videos stay bytes.
    """
    if isinstance(rows, Ragged):
        return values_of(feature, rows)
    if feature.shape == (1,):
        rows = rows[..., 0]
    if feature.dtype == "video" and times == 1:
        rows = rows[:, 0]  # LeRobot has no axis of one frame of a video, and one of a single image
    if feature.dtype in CAMERAS and rows.dtype == np.uint8:
        pictures = torch.as_tensor(rows)
        return pictures.movedim(-1, -3).contiguous() if raw and feature.dtype == "video" else _scaled(pictures)
    if feature.dtype in CAMERAS:  # depth is not scaled
        return torch.as_tensor(rows.astype(np.float32)).movedim(-1, -3)
    if rows.dtype.kind == "f":
        return torch.as_tensor(rows.astype(np.float32, copy=False))
    return torch.as_tensor(rows if rows.dtype == np.bool_ else rows.astype(np.int64, copy=False))


def _scaled(pictures: torch.Tensor) -> torch.Tensor:
    """Return floats from 0 to 1, channels first, of `[..., height, width, channels]` uint8.

    One picture at a time stays in the cache of the processor, and there are no copies of the whole batch.
    """
    source = pictures.movedim(-1, -3)
    scaled = torch.empty(source.shape, dtype=torch.float32)
    for picture, place in zip(source.flatten(0, -4), scaled.flatten(0, -4), strict=True):
        place.copy_(picture).div_(255)
    return scaled


class FrameReader:
    """Items of the chosen episodes of a dataset, as `reader` of a `LeRobotDataset`."""

    def __init__(
        self, meta: LeRobotDatasetMetadata, episodes: Sequence[int] | None, tolerance_s: float, options: ItemOptions
    ) -> None:
        self.meta = meta
        self.episodes = chosen_episodes(meta, episodes)
        self.tolerance_s = tolerance_s
        self.options = options
        self._opened: Frames | None = None

    @property
    def frames(self) -> Frames:
        """The chosen episodes. Opens the dataset, again after episodes were saved."""
        if self._opened is None:
            self._opened = open_frames(self.meta, self.episodes, self.options.times, self.tolerance_s)
        return self._opened

    def reload(self) -> None:
        """Read the metadata again, because episodes were saved."""
        self.meta.reload()
        self._opened = None

    def get_item(self, idx: int) -> dict[str, Any]:
        return self.get_items([idx])[0]

    def get_items(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several items at once."""
        return items_of(self.frames.samples[[operator.index(i) for i in indices]], self.meta, self.options)

    def set_image_transforms(self, image_transforms: ImageTransform | None) -> None:
        """Set the function that is applied to pictures in colour."""
        self.options = replace(self.options, transform=image_transforms)

    def clear_image_transforms(self) -> None:
        """Leave pictures as they are."""
        self.set_image_transforms(None)

    @property
    def num_frames(self) -> int:
        """Number of frames in the chosen episodes."""
        return len(self.frames.samples)

    @property
    def num_episodes(self) -> int:
        """Number of chosen episodes; one that was chosen twice counts twice, as in LeRobot."""
        return len(self.frames.episodes) if self.episodes is None else len(self.episodes)

    @property
    def delta_indices(self) -> dict[str, list[int]] | None:
        """`delta_timestamps` in frames."""
        times, fps = self.options.times, self.meta.fps
        return None if times is None else {name: [round(time * fps) for time in each] for name, each in times.items()}

    def get_episodes_file_paths(self) -> list[Path]:
        """Return the data and video files of the chosen episodes, below the folder of the dataset."""
        episodes = [entry.index for entry in self.meta.entries] if self.episodes is None else self.episodes
        data = [self.meta.get_data_file_path(episode) for episode in episodes]
        videos = [self.meta.get_video_file_path(each, name) for name in self.meta.video_keys for each in episodes]
        return list(dict.fromkeys(data + videos))
