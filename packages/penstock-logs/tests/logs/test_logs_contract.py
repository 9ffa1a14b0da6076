"""The contract of sources, for logs: MCAP with messages as JSON and bags of ROS 2, joined by a clock."""

# pyright: basic

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from mcap.writer import CompressionType, Writer
from rosbags.rosbag1 import Writer as BagWriter
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.formats.base.source import Source
from penstock.formats.mapping import FORMAT
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract

LENGTHS = (3, 1, 7, 2)
FIELDS = {
    "observations": Field(np.dtype("f8"), (2,)),
    "actions": Field(np.dtype("f8")),
    "words": Field(np.dtype("u1"), kind="text"),
    "timestamps": Field(np.dtype("f8")),
}
OTHERS = {"observations": Field(np.dtype("f4"), (2,)), "tokens": Field(np.dtype("i4"), kind="ragged")}
SECOND = 10**9
TYPES = {int: "int64", float: "float64", str: "string", bool: "bool"}


def rules(episodes: Sequence[Episode]) -> dict[str, str]:
    """Metadata are the fields of one message, of which some files have fewer."""
    return {name: f"meta/{name}" for episode in episodes for name in episode.metadata}


class LogContract(SourceContract):
    """Episodes in files, each column in a topic, with messages that no step takes between."""

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        """Each has its file, its number and the time at which it starts."""
        listed = source.episode_metadata(range(len(episodes)))
        assert [entries["n"] for entries in listed] == [str(e) for e in range(len(episodes))]
        assert [entries["start_ns"] for entries in listed] == [SECOND * (10 * e + 1) for e in range(len(episodes))]


def plain(column: Any, row: int) -> Any:
    return column.strings()[row] if isinstance(column, Ragged) else column[row].tolist()


class TestMcap(LogContract):
    """Each file has other chunks, packed or not, with or without an index."""

    examples: ClassVar[Sequence[Example]] = (Example("messages", Spec(FIELDS), LENGTHS),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        for e, episode in enumerate(episodes):
            packed = (CompressionType.ZSTD, CompressionType.LZ4, CompressionType.NONE)[e % 3]
            with (path / f"run_{e}.mcap").open("wb") as file:
                writer = Writer(file, chunk_size=200, compression=packed, use_chunking=e != 2)
                writer.start()
                whole = {name: {"type": "integer"} for name in ("seed",)}
                schema = writer.register_schema("meta", "jsonschema", json.dumps({"properties": whole}).encode())
                meta = writer.register_channel("/meta", "json", schema)
                writer.add_message(meta, 0, json.dumps(episode.metadata).encode(), 0)
                for name, column in episode.columns.items():
                    channel = writer.register_channel(f"/{name}", "json", 0)
                    for row in range(len(episode)):
                        time = SECOND * (10 * e + row + 1)
                        for shift in (0, SECOND // 2) if name != "actions" else (0,):
                            message = json.dumps({"value": plain(column, row)}).encode()
                            writer.add_message(channel, time + shift, message, time)
                writer.finish()
        columns = {name: f"{name}/value" for name in episodes[0].spec}
        clock = {"reference": "actions", "within": 0.2}
        return FORMAT.open(path, files="run_{n}.mcap", columns=columns, clock=clock, metadata=rules(episodes))


class TestBags(LogContract):
    """Bags of ROS 1 with a message that has a field of each type."""

    examples: ClassVar[Sequence[Example]] = (Example("bags", Spec({**FIELDS, **OTHERS}), LENGTHS),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        store = get_typestore(Stores.ROS1_NOETIC)
        text = "float32[2] observations\nfloat64 actions\nstring words\nint32[] tokens\nfloat64 timestamps\n"
        store.register(get_types_from_msg(text, "own_msgs/msg/Step"))
        for kind in range(2):
            fields = "".join(f"{TYPES[type(value)]} {name}\n" for name, value in episodes[kind].metadata.items())
            store.register(get_types_from_msg(fields, f"own_msgs/msg/Meta{kind}"))
        Step = store.types["own_msgs/msg/Step"]
        for e, episode in enumerate(episodes):
            with BagWriter(path / f"run_{e}.bag") as writer:
                name = f"own_msgs/msg/Meta{e % 2}"
                meta = store.serialize_ros1(store.types[name](**episode.metadata), name)
                writer.write(writer.add_connection("/meta", name, typestore=store), 0, meta)
                connection = writer.add_connection("/step", "own_msgs/msg/Step", typestore=store)
                for row in range(len(episode)):
                    values = {name: column[row] for name, column in episode.columns.items() if name != "words"}
                    step = Step(**values, words=plain(episode.columns["words"], row))
                    data = store.serialize_ros1(step, "own_msgs/msg/Step")
                    writer.write(connection, SECOND * (10 * e + row + 1), data)
        columns: dict[str, Any] = {name: f"step/{name}" for name in episodes[0].spec}
        clock = {"reference": "actions", "within": 0}
        return FORMAT.open(path, files="run_{n}.bag", columns=columns, clock=clock, metadata=rules(episodes))
