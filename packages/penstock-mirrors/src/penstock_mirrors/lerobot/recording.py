"""Recording: frames of one episode in memory, which are checked against the features, and the writer of the format.

From `save_episode` on, an episode lasts, and can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.narrowing import is_array
from penstock.core.ragged import Array, Ragged
from penstock.errors import DataError, require
from penstock.formats.lerobot.creation import features_spec, note_depth_units
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.info import CAMERAS, INDICES, LANGUAGE, TASK, Feature
from penstock.formats.lerobot.language import MESSAGE_FIELDS
from penstock.formats.lerobot.recording import CameraStream
from penstock.formats.lerobot.video import EncoderSettings
from penstock.formats.lerobot.writer import LeRobotWriter
from penstock_mirrors.lerobot.arguments import require_local
from penstock_mirrors.lerobot.reading import FrameReader


class FrameRecorder:
    """Frames that are added to a dataset, as `writer` of a `LeRobotDataset`."""

    def __init__(self, reader: FrameReader, encoders: EncoderSettings | None, *, streaming: bool) -> None:
        require_local(reader.meta.root)
        self._reader = reader
        self._meta = reader.meta
        self._encoders = encoders
        self._streaming = streaming
        self._cameras: CameraStream | None = None  # encodes the frames of `episode_buffer`
        self._writer: LeRobotWriter | None = None
        self.episode_buffer: dict[str, Any] = self.create_episode_buffer()

    def create_episode_buffer(self, episode_index: int | None = None) -> dict[str, Any]:
        last = self._meta.entries[-1].index if self._meta.entries else -1
        index = last + 1 if episode_index is None else episode_index
        columns: dict[str, Any] = {name: [] for name in self._meta.features}
        return {"size": 0, TASK: [], **columns, "episode_index": index}

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame to the episode. Values are copied, and stay in memory until `save_episode`."""
        self._note_depth_units(frame)
        values = checked_frame(frame, self._reader.frames.features)
        buffer = self.episode_buffer
        for name, value in values.items():
            buffer[name].append(value)
        self._encode(values)
        buffer["frame_index"].append(buffer["size"])
        buffer["timestamp"].append(buffer["size"] / self._meta.fps)
        buffer["size"] += 1

    def _note_depth_units(self, frame: Mapping[str, Any]) -> None:
        """Note the units of depth maps whose features have none, from the dtypes of the first frame."""
        depths = {name: each.depth for name, each in self._meta.stored.features.items() if each.depth is not None}
        unknown = [name for name, depth in depths.items() if depth.unit is None and name in frame]
        if unknown and not self._meta.total_episodes:
            note_depth_units(self._meta.root, {name: Depth.unit_of(np.asarray(frame[name]).dtype) for name in unknown})
            self._reader.reload()

    def _encode(self, values: Mapping[str, Any]) -> None:
        """Encode the pictures of a frame while the episode goes on, if `streaming_encoding` says so."""
        paths = {name: self._meta.stored.features[name].path for name in self._meta.video_keys}
        if not self._streaming or not paths:
            return
        if self._cameras is None:
            depths = {each.path: each.depth for each in self._meta.stored.features.values()}
            encoders = self._encoders or EncoderSettings.of(self._meta.stored.internal)
            self._cameras = CameraStream(self._meta.root, list(paths.values()), self._meta.fps, encoders, depths)
        self._cameras.append({path: values[name] for name, path in paths.items()})

    def save_episode(self, episode_data: Mapping[str, Any] | None = None, parallel_encoding: bool = True) -> None:
        """Save the episode. From then on it lasts, and can be read."""
        buffer = self.episode_buffer if episode_data is None else episode_data
        if not buffer["size"]:
            raise DataError("expected frames to save, got none; add them with add_frame")
        spec = features_spec(self._reader.frames.features)
        if self._writer is None:
            self._writer = LeRobotWriter(self._meta.root, spec, exact_depth=False, encoders=self._encoders)
        wanted = self.create_episode_buffer()["episode_index"]
        if int(buffer["episode_index"]) != wanted:
            raise DataError(f"expected episode_index {wanted}, the next one, got {buffer['episode_index']}")
        columns: dict[str, Array] = {TASK: Ragged.from_strings(buffer[TASK])}
        for name, feature in self._meta.stored.features.items():
            if feature.path in spec and name != TASK:
                rows = buffer[name]
                columns[feature.path] = Ragged.from_strings(rows) if feature.is_text else np.stack(rows)
        encoded = self._cameras.finish() if self._cameras is not None and episode_data is None else None
        self._writer.write(Episode(spec, columns, wanted, {}), videos=encoded)
        self._reader.reload()
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
            self._reader.reload()

    def start_image_writer(self, num_processes: int = 0, num_threads: int = 4) -> None:
        """Do nothing: frames stay in memory until `save_episode`, so there is no image writer."""

    def stop_image_writer(self) -> None:
        """Do nothing: no image writer runs."""


def checked_frame(frame: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, Any]:
    """Return copies of the values of a frame, as they are stored."""
    expected = {name for name in features if name not in INDICES} | {TASK}
    wrong = [f"no value of {name!r}" for name in sorted(expected - frame.keys()) if name not in MESSAGE_FIELDS]
    wrong += [f"no feature {name!r}" for name in sorted(frame.keys() - expected)]
    if not wrong and not isinstance(frame[TASK], str):
        wrong.append(f"expected text as {TASK!r}, got {type(frame[TASK]).__name__}")
    values: dict[str, Any] = {TASK: frame.get(TASK)}
    for name in features:
        if name in frame or name in MESSAGE_FIELDS:
            try:
                values[name] = _value(features[name], frame.get(name))
            except ValueError as error:
                wrong.append(f"{name!r}: {error}")
    if wrong:
        raise DataError(f"expected a frame with the features of the dataset, got {'; '.join(wrong)}")
    return values


def _value(feature: Feature, value: Any) -> Any:
    if feature.dtype == LANGUAGE:  # the writer checks the messages
        return json.dumps([] if value is None else value)
    if feature.dtype == "string":
        if not isinstance(value, str):
            raise ValueError(f"expected text, got {type(value).__name__}")
        return value
    if isinstance(value, require("torch", "torch").Tensor):
        value = value.detach().cpu().numpy()
    if feature.dtype in CAMERAS:
        return _picture(feature.shape, value) if feature.pixels == np.uint8 else _depth(feature, value)
    if not is_array(value):
        raise ValueError(f"expected an array or a tensor, got {type(value).__name__}")
    shape = feature.shape or (1,)
    if value.dtype != np.dtype(feature.dtype) or value.shape != shape:
        raise ValueError(f"expected {feature.dtype} {shape}, got {value.dtype} {value.shape}")
    return value.reshape(feature.shape).copy()


def _picture(shape: tuple[int, ...], value: Any) -> AnyArray:
    """Return `[height, width, 3]` uint8 of a picture, an array of bytes, or one of floats from 0 to 1."""
    if not is_array(value):
        if not isinstance(value, require("PIL.Image", "images").Image):
            raise ValueError(f"expected an array, a tensor or a picture, got {type(value).__name__}")
        value = np.asarray(value.convert("RGB"))
    first = (shape[2], *shape[:2])
    array: AnyArray = value.transpose(1, 2, 0) if value.shape == first else value
    if array.shape != shape:
        raise ValueError(f"expected {shape} or {first}, got {array.shape}")
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):
            raise ValueError(f"expected floats from 0 to 1, got {array.min()} to {array.max()}")
        return (array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise ValueError(f"expected uint8 or floats, got {array.dtype}")
    return array.copy()


def _depth(feature: Feature, value: Any) -> AnyArray:
    """Return `[height, width, 1]` depth as it is stored, of an array with or without the axis of the channel."""
    if not is_array(value):
        value = np.asarray(value)
    height, width = feature.shape[:2]
    if value.shape not in ((height, width), (height, width, 1), (1, height, width)):
        raise ValueError(f"expected {(height, width, 1)} or {(1, height, width)}, got {value.shape}")
    if value.dtype != feature.pixels:
        unit = feature.depth.unit if feature.depth is not None else None
        raise ValueError(f"expected {feature.pixels}{f' ({unit})' if unit else ''}, got {value.dtype}")
    return value.reshape(height, width, 1).copy()
