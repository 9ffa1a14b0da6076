"""Images in messages: packed ones, and pixels by rows of `step` bytes. They become RGB, or have one channel."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.containers.images import decode
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array
from penstock.errors import FormatError

PACKED = ("sensor_msgs/msg/CompressedImage", "foxglove_msgs/msg/CompressedImage", "foxglove.CompressedImage")
PIXELS = ("sensor_msgs/msg/Image", "foxglove_msgs/msg/RawImage", "foxglove.RawImage")
VIDEO = ("foxglove_msgs/msg/CompressedVideo", "foxglove.CompressedVideo")
PARTS = ("data", "format", "encoding", "height", "width", "step", "is_bigendian")
"""Fields of an image, which its pixels have."""
DEPTH_HEAD = 12  # bytes of `compressedDepth` before the PNG file
ORDERS: Mapping[str, tuple[str, list[int]]] = {
    "rgb8": ("u1", [0, 1, 2]),
    "bgr8": ("u1", [2, 1, 0]),
    "8UC3": ("u1", [0, 1, 2]),
    "rgba8": ("u1", [0, 1, 2, 3]),
    "bgra8": ("u1", [2, 1, 0, 3]),
    "rgb16": ("u2", [0, 1, 2]),
    "bgr16": ("u2", [2, 1, 0]),
    **dict.fromkeys(("mono8", "8UC1"), ("u1", [0])),
    **dict.fromkeys(("mono16", "16UC1"), ("u2", [0])),
    "32FC1": ("f4", [0]),
}
"""Type of the values of an encoding of pixels, and the place of each channel."""


def full_type(type: str) -> str:
    """Return the name of a type of ROS with `msg` in it; others as they are."""
    package, slash, message = type.partition("/")
    return f"{package}/msg/{message}" if slash and not message.startswith("msg/") else type


def is_image(type: str) -> bool:
    """Whether the messages of a type are images."""
    return full_type(type) in (*PACKED, *PIXELS)


def pixels_of(message: Mapping[str, Any], type: str) -> AnyArray:
    """Return the pixels of a message, `[height, width, channels]`. Raises `FormatError`."""
    data = message.get("data")
    if isinstance(data, str):  # JSON
        data = base64.b64decode(data)
    blob = np.asarray(data, np.uint8).tobytes() if is_array(data) or isinstance(data, list) else bytes(data or b"")
    if full_type(type) in PIXELS:
        return _rows(message, blob)
    format = str(message.get("format", ""))
    if "compressedDepth" in format:
        if "png" not in format or "32FC1" in format:
            raise FormatError(f"expected depth as 16-bit PNG, got {format!r}")
        blob = blob[DEPTH_HEAD:]
    return decode(blob)


def _rows(message: Mapping[str, Any], blob: bytes) -> AnyArray:
    encoding = str(message["encoding"])
    height, width = int(message["height"]), int(message["width"])
    if encoding not in ORDERS:
        raise FormatError(f"expected pixels as one of {list(ORDERS)}, got {encoding!r}")
    kind, order = ORDERS[encoding]
    dtype = np.dtype(kind).newbyteorder(">" if message.get("is_bigendian") else "<")
    row = width * len(order) * dtype.itemsize
    step = int(message.get("step") or row)
    if step < row or len(blob) < step * (height - 1) + row or height < 1 or width < 1:
        expected = f"{height} rows of {step} bytes with {row} bytes of pixels"
        raise FormatError(f"expected {expected}, got {len(blob)} bytes")
    lines = np.lib.stride_tricks.as_strided(np.frombuffer(blob, np.uint8), (height, row), (step, 1), writeable=False)
    values = np.ascontiguousarray(lines).view(dtype).reshape(height, width, len(order))
    return np.ascontiguousarray(values[..., order], dtype.newbyteorder("="))
