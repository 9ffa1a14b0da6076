"""Recordings by the libraries whose files these are: mcap, mcap-ros2-support, mcap-protobuf-support and rosbags."""

# pyright: basic

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mcap.writer import CompressionType, IndexType, Writer
from mcap_ros2.writer import Writer as Ros2Writer
from PIL import Image
from rosbags.rosbag1 import Writer as Bag1
from rosbags.rosbag2 import Writer as Bag2
from rosbags.typesys import Stores, get_typestore

JOINTS = ("shoulder", "elbow_10", "elbow_2")
STAMP = "================================================================================\nMSG: std_msgs/Header\n"
HEADER = f"{STAMP}builtin_interfaces/Time stamp\nstring frame_id\n"
JOINT_STATE = (
    f"std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n{HEADER}"
)
COMPRESSED = f"std_msgs/Header header\nstring format\nuint8[] data\n{HEADER}"
PIXELS = (
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\n"
    f"uint8[] data\n{HEADER}"
)
START = 1_700_000_000 * 10**9


def stamp(nanoseconds: int) -> dict[str, Any]:
    return {"stamp": {"sec": nanoseconds // 10**9, "nanosec": nanoseconds % 10**9}, "frame_id": "base"}


def picture(i: int, size: tuple[int, int] = (6, 5)) -> np.ndarray:
    return np.full((*size, 3), [i % 256, 2 * i % 256, 200], np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def robot(path: Path, seconds: float = 2.0, seed: int = 0, **options: Any) -> dict[str, Any]:
    """A robot by the writer of ROS 2: joints at 50 Hz in an order that changes, a camera at 10 Hz as PNG, one as pixels
    with longer rows, and a command. Returns what was written."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {"joints": [], "joint_times": [], "frames": [], "commands": []}
    with path.open("wb") as file:
        writer = Ros2Writer(file, **options)
        joints = writer.register_msgdef("sensor_msgs/msg/JointState", JOINT_STATE)
        camera = writer.register_msgdef("sensor_msgs/msg/CompressedImage", COMPRESSED)
        pixels = writer.register_msgdef("sensor_msgs/msg/Image", PIXELS)
        command = writer.register_msgdef("std_msgs/msg/Float32", "float32 data\n")
        for k in range(int(seconds * 50)):
            time = START + k * 20_000_000
            order = rng.permutation(len(JOINTS))
            position = rng.normal(size=3)
            made["joints"].append(position)
            made["joint_times"].append(time)
            message = {"header": stamp(time - 3_000_000), "name": [JOINTS[i] for i in order], "effort": []}
            message |= {"position": position[order].tolist(), "velocity": (-position[order]).tolist()}
            writer.write_message("/robot/joint_states", joints, message, time, time - 1_000_000, k)
            if k % 5 == 0:
                frame = picture(k // 5)
                made["frames"].append(frame)
                message = {"header": stamp(time), "format": "png", "data": png(frame)}
                writer.write_message("/camera/image/compressed", camera, message, time + 1_000_000, time)
                rows = np.zeros((6, 20), np.uint8)
                rows[:, :15] = frame[:, :, ::-1].reshape(6, 15)
                message = {"header": stamp(time), "height": 6, "width": 5, "encoding": "bgr8", "is_bigendian": 0}
                message |= {"step": 20, "data": rows.tobytes()}
                writer.write_message("/camera/image_raw", pixels, message, time + 1_000_000, time)
            if k % 2 == 0:
                made["commands"].append(np.float32(k / 7))
                writer.write_message("/command", command, {"data": k / 7}, time + 500_000, time)
        writer.finish()
    return made


def json_log(path: Path, topics: dict[str, Sequence[tuple[int, Any]]], schema: Any = None, **options: Any) -> Path:
    """Messages as JSON, `(time, value)` by topic."""
    with path.open("wb") as file:
        writer = Writer(file, **options)
        writer.start()
        number = 0
        if schema is not None:
            number = writer.register_schema(name="made", encoding="jsonschema", data=json.dumps(schema).encode())
        channels = {topic: writer.register_channel(topic, "json", number) for topic in topics}
        listed = sorted((time, topic, json.dumps(value)) for topic, rows in topics.items() for time, value in rows)
        for time, topic, text in listed:
            writer.add_message(channels[topic], time, text.encode(), time)
        writer.finish()
    return path


def counting(n: int, step: int = 10**7, first: int = 0) -> list[tuple[int, Any]]:
    return [(i * step + first, {"q": [i, 2 * i], "mode": f"m{i % 3}", "on": i % 2 == 0}) for i in range(n)]


LAYOUTS: dict[str, dict[str, Any]] = {
    "zstd": {"chunk_size": 700},
    "lz4": {"compression": CompressionType.LZ4, "chunk_size": 700},
    "none": {"compression": CompressionType.NONE, "chunk_size": 700},
    "unchunked": {"use_chunking": False},
    "without indexes": {"index_types": IndexType.NONE, "chunk_size": 700},
    "chunk index alone": {"index_types": IndexType.CHUNK, "chunk_size": 700},
    "without summary": {
        "chunk_size": 700,
        "repeat_channels": False,
        "repeat_schemas": False,
        "use_statistics": False,
        "use_summary_offsets": False,
    },
}
"""Options of the writer: with all indexes, with some, and without."""


def cut(path: Path, keep: Callable[[int], int]) -> Path:
    raw = path.read_bytes()
    path.write_bytes(raw[: keep(len(raw))])
    return path


def bag(path: Path, n: int = 5) -> None:
    """A bag of ROS 1, or of ROS 2 in SQLite, by rosbags."""
    is_ros1 = path.suffix == ".bag"
    store = get_typestore(Stores.ROS1_NOETIC if is_ros1 else Stores.ROS2_HUMBLE)
    with tempfile.TemporaryDirectory() as folder:
        writer: Any = Bag1(path) if is_ros1 else Bag2(Path(folder) / "a", version=9)
        if is_ros1:
            writer.set_compression(Bag1.CompressionFormat.LZ4)
        with writer:
            connection = writer.add_connection("/point", "geometry_msgs/msg/Point", typestore=store)
            for i in range(n):
                point = store.types["geometry_msgs/msg/Point"](float(i), 0.5, -float(i))
                serialize = store.serialize_ros1 if is_ros1 else store.serialize_cdr
                writer.write(connection, i * 10**8, serialize(point, "geometry_msgs/msg/Point"))
        if not is_ros1:
            shutil.copyfile(next((Path(folder) / "a").glob("*.db3")), path)
