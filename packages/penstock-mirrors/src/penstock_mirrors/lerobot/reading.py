"""Frames of an opened dataset, and their columns as the tensors that LeRobot's items have.

Floats are float32 and integers int64, because LeRobot makes tensors of Python numbers. Depth is in millimetres.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.core.columns import Columns
from penstock.core.damage import warn_damage
from penstock.core.ragged import Array, Ragged
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, require
from penstock.formats.lerobot.depth import MM
from penstock.formats.lerobot.info import CAMERAS, Feature
from penstock.formats.lerobot.source import LeRobotSource
from penstock_mirrors.lerobot.frames import TASK
from penstock_mirrors.lerobot.metadata import LeRobotDatasetMetadata

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
    if texts := [name for name in wanted if source.state.info.features[name].dtype == "string"]:
        raise ArgumentError(f"expected numbers or cameras for delta_timestamps, got text: {texts}")
    samples = data.delta_timestamps(wanted, tolerance=tolerance_s) if wanted else data.steps()
    return Frames(data, samples, source.state.info.features)


def items_of(
    batch: Columns, meta: LeRobotDatasetMetadata, times: Times | None, transform: ImageTransform | None
) -> list[dict[str, Any]]:
    """Return the items of a batch of samples."""
    columns = batch.flat
    features = {name: each for name, each in meta.stored.features.items() if each.path in columns}
    ordered = sorted(features, key=lambda name: features[name].dtype != "video")  # LeRobot has video first
    by_feature = {
        name: tensor_of(features[name], columns[features[name].path], len((times or {}).get(name, ())))
        for name in ordered
    }
    for name, feature in features.items():
        if feature.depth is not None and feature.depth.unit == "m":
            depth = by_feature[name] * MM
            by_feature[name] = depth.round() if feature.dtype == "video" else depth
    for name in times or {}:
        mask = columns[f"{features[name].path}_mask"]
        by_feature[f"{name}_is_pad"] = torch.as_tensor(~np.asarray(mask))
    texts = columns.get(TASK)
    if isinstance(texts, Ragged):
        by_feature[TASK] = texts.strings()
    if (subtasks := meta.subtasks) is not None and "subtask_index" in by_feature:
        by_feature["subtask"] = [subtasks[int(number)] for number in by_feature["subtask_index"]]
    items = [{name: values[i] for name, values in by_feature.items()} for i in range(batch.n)]
    if transform is not None:
        for item in items:
            for name, feature in features.items():
                if feature.dtype in CAMERAS and feature.depth is None:
                    item[name] = transform(item[name])
    return items


def tensor_of(feature: Feature, rows: Array, times: int = 0) -> Any:
    """Return the values of a feature: a tensor with a row for each sample, or a list of text."""
    if isinstance(rows, Ragged):
        return rows.strings()
    if feature.shape == (1,):
        rows = rows[..., 0]
    if feature.dtype == "video" and times == 1:
        rows = rows[:, 0]  # LeRobot has no axis of one frame of a video, and one of a single image
    if feature.dtype in CAMERAS and rows.dtype == np.uint8:
        return _scaled(torch.as_tensor(rows))
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
