"""Frames of a recording: their values are checked against the features, as LeRobot does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array
from penstock.errors import DataError, require
from penstock.formats.lerobot.info import CAMERAS, INDICES, Feature

TASK = "task"


def checked_frame(frame: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, Any]:
    """Return copies of the values of a frame, as they are stored."""
    expected = {name for name in features if name not in INDICES} | {TASK}
    wrong = [f"no value of {name!r}" for name in sorted(expected - frame.keys())]
    wrong += [f"no feature {name!r}" for name in sorted(frame.keys() - expected)]
    if not wrong and not isinstance(frame[TASK], str):
        wrong.append(f"expected text as {TASK!r}, got {type(frame[TASK]).__name__}")
    values: dict[str, Any] = {TASK: frame.get(TASK)}
    for name in features:
        if name in frame:
            try:
                values[name] = _value(features[name], frame[name])
            except ValueError as error:
                wrong.append(f"{name!r}: {error}")
    if wrong:
        raise DataError(f"expected a frame with the features of the dataset, got {'; '.join(wrong)}")
    return values


def _value(feature: Feature, value: Any) -> Any:
    """Return a value as it is stored."""
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
