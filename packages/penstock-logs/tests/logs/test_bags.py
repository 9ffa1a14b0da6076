"""Bags of ROS 1 and ROS 2 that rosbags wrote, and MCAP files with messages of ROS 1."""

# pyright: basic

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_typestore

import penstock
from penstock.errors import DamageWarning, FormatError
from penstock_logs.tree import Bag1Tree, Bag2Tree, McapTree

ROS1, ROS2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.ROS2_HUMBLE)
N = 30


def messages(store: Any, seed: int) -> tuple[Any, Any, np.ndarray]:
    """Joints and an image, and the positions in the order of the names."""
    rng = np.random.default_rng(seed)
    types = store.types
    Header, Time = types["std_msgs/msg/Header"], types["builtin_interfaces/msg/Time"]
    Joints, Image = types["sensor_msgs/msg/JointState"], types["sensor_msgs/msg/Image"]
    names = ["b", "a"]
    positions = rng.normal(size=(N, 2))

    def header(i: int) -> Any:
        seq = {"seq": i} if "seq" in Header.__dataclass_fields__ else {}
        return Header(stamp=Time(sec=5, nanosec=i), frame_id="x", **seq)

    joints = []
    for i in range(N):
        order = rng.permutation(2)
        given = [names[k] for k in order]
        joints.append(Joints(header(i), given, positions[i][order], np.zeros(0), np.zeros(0)))
    data = [np.full(24, i, np.uint8) for i in range(N)]
    images = [Image(header(i), 2, 4, "rgb8", 0, 12, data[i]) for i in range(N)]
    return joints, images, positions


def write(writer: Any, store: Any, seed: int = 0) -> np.ndarray:
    joints, images, positions = messages(store, seed)
    serialize = store.serialize_ros1 if isinstance(writer, Writer1) else store.serialize_cdr
    listed = (("/robot/joints", "sensor_msgs/msg/JointState", joints), ("/camera", "sensor_msgs/msg/Image", images))
    with writer:
        for topic, type, rows in listed:
            connection = writer.add_connection(topic, type, typestore=store)
            for i, row in enumerate(rows):
                writer.write(connection, (i + 1) * 10**8, serialize(row, type))
        writer.add_connection("/nothing", "sensor_msgs/msg/Image", typestore=store)
    return positions


def check(tree: Any, positions: np.ndarray) -> None:
    for k, name in enumerate(("b", "a")):
        assert np.array_equal(tree.read(f"robot/joints/position/{name}", 0, N), positions[:, k])
    assert tree.read("robot/joints/log_time", 2, 4).tolist() == [3 * 10**8, 4 * 10**8]
    assert tree.read("camera/header.stamp", 0, 3).tolist() == [5 * 10**9, 5 * 10**9 + 1, 5 * 10**9 + 2]
    images = tree.read("camera/image", 7, 9)
    assert images.shape == (2, 2, 4, 3)
    assert np.unique(images[0]).tolist() == [7]
    assert {entry.where for entry in tree.left_out if entry.thing == "topic"} <= {"/nothing"}


@pytest.mark.parametrize("compression", [None, Writer1.CompressionFormat.BZ2, Writer1.CompressionFormat.LZ4])
def test_a_bag_of_ros_1(compression: Any, tmp_path: Path) -> None:
    writer = Writer1(tmp_path / "a.bag")
    if compression is not None:
        writer.set_compression(compression)
    positions = write(writer, ROS1)
    check(Bag1Tree(tmp_path / "a.bag"), positions)
    clock = {"reference": "observations/camera", "within": 0.05}
    columns = {"observations/camera": "camera/image", "actions": [f"robot/joints/position/{name}" for name in "ba"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        data = penstock.open(tmp_path / "a.bag", format="mapping", columns=columns, clock=clock)
    assert np.array_equal(data[0].columns["actions"], positions)


def test_a_bag_of_ros_2_in_both_storages(tmp_path: Path) -> None:
    positions = write(Writer2(tmp_path / "a", version=9), ROS2)
    check(Bag2Tree(next((tmp_path / "a").glob("*.db3"))), positions)
    positions = write(Writer2(tmp_path / "b", version=9, storage_plugin=StoragePlugin.MCAP), ROS2, seed=1)
    check(McapTree(next((tmp_path / "b").glob("*.mcap"))), positions)


def test_a_folder_of_a_bag_of_ros_2(tmp_path: Path) -> None:
    positions = write(Writer2(tmp_path / "a", version=9), ROS2)
    columns = {"actions": [f"robot/joints/position/{name}" for name in "ba"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        data = penstock.open(
            tmp_path / "a", format="mapping", columns=columns, clock={"reference": "actions", "within": 0}
        )
    assert np.array_equal(data[0].columns["actions"], positions)


def test_an_old_bag_without_definitions_is_read_as_humble_and_says_so(tmp_path: Path) -> None:
    positions = write(Writer2(tmp_path / "a", version=9), ROS2)
    file = next((tmp_path / "a").glob("*.db3"))
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE message_definitions")
        database.execute("UPDATE topics SET type = 'own_msgs/msg/Own' WHERE name = '/camera'")
    tree = Bag2Tree(file)
    assert np.array_equal(tree.read("robot/joints/position/a", 0, N), positions[:, 1])
    said = {entry.where: (entry.reason, entry.message) for entry in tree.left_out}
    assert said["/robot/joints"][0] == "guessed"
    assert said["/camera"][0] == "unsupported-dtype"
    assert "has no definition of own_msgs/msg/Own" in said["/camera"][1]


def test_bags_that_were_cut_or_are_none_are_named(tmp_path: Path) -> None:
    write(Writer1(tmp_path / "a.bag"), ROS1)
    raw = (tmp_path / "a.bag").read_bytes()
    (tmp_path / "a.bag").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(FormatError, match="expected a whole bag of ROS 1"):
        penstock.open(tmp_path / "a.bag")
    (tmp_path / "b.db3").write_bytes(b"none")
    with pytest.raises(FormatError, match="expected a bag of ROS 2 in SQLite"):
        penstock.open(tmp_path / "b.db3")
    write(Writer2(tmp_path / "c", version=9), ROS2)
    file = next((tmp_path / "c").glob("*.db3"))
    file.write_bytes(file.read_bytes()[:9000])
    with pytest.raises(FormatError, match="expected data that can be read"):
        penstock.open(file)


def test_messages_of_ros_1_in_mcap(tmp_path: Path) -> None:
    from mcap.writer import Writer

    text, _ = ROS1.generate_msgdef("geometry_msgs/msg/PointStamped")
    types = ROS1.types
    with (tmp_path / "a.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("geometry_msgs/PointStamped", "ros1msg", text.encode())
        channel = writer.register_channel("/point", "ros1", schema)
        for i in range(4):
            header = types["std_msgs/msg/Header"](i, types["builtin_interfaces/msg/Time"](i, 5), "map")
            point = types["geometry_msgs/msg/PointStamped"](header, types["geometry_msgs/msg/Point"](i, 0.5, -i))
            data = bytes(ROS1.serialize_ros1(point, "geometry_msgs/msg/PointStamped"))
            writer.add_message(channel, i, data, i)
        writer.finish()
    tree = McapTree(tmp_path / "a.mcap")
    assert tree.read("point/point/z", 0, 4).tolist() == [0, -1, -2, -3]
    assert tree.read("point/header.stamp", 0, 4).tolist() == [i * 10**9 + 5 for i in range(4)]


def test_packed_messages_of_ros_2_are_named(tmp_path: Path) -> None:
    writer = Writer2(tmp_path / "a", version=9)
    writer.set_compression(CompressionMode.FILE, CompressionFormat.ZSTD)
    write(writer, ROS2)
    with pytest.raises(FormatError, match=r"\.zstd|expected files"):
        penstock.open(tmp_path / "a", format="mapping")
