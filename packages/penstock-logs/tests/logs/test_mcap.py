"""MCAP files of the original writers, read by topics and joined; what cannot be read is said."""

# pyright: basic

from __future__ import annotations

import ast
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from mcap.reader import make_reader
from mcap.writer import Writer
from mcap_protobuf.writer import Writer as ProtobufWriter

import penstock
from logs.recordings import JOINTS, LAYOUTS, START, counting, cut, json_log, picture, robot
from penstock.errors import DamageWarning, FormatError, UnknownFormatError
from penstock_logs.tree import McapTree

CLOCK = {"reference": "observations/camera", "within": 0.03}
COLUMNS: dict[str, Any] = {
    "observations/camera": "camera/image/compressed/image",
    "observations/joints": [f"robot/joint_states/position/{name}" for name in JOINTS],
    "actions": {"from": "command/data", "rule": "next", "within": 0.05},
}


def opened(path: Path, **entries: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        return penstock.open(path, format="mapping", **entries)


def reasons(data: Any) -> dict[str, str]:
    return {entry.where: entry.reason for entry in data.source.account.left_out}


def test_a_robot_is_joined_at_the_times_of_its_camera(tmp_path: Path) -> None:
    made = robot(tmp_path / "a.mcap", chunk_size=2000)
    with opened(tmp_path / "a.mcap", columns=COLUMNS, clock=CLOCK) as data:
        episode = data[0]
        batch = next(iter(data.windows(3).loader(batch_size=2)))
    n = len(episode)
    assert n == 20
    assert np.array_equal(episode.columns["observations/camera"], made["frames"][:n])
    assert np.allclose(episode.columns["observations/joints"], np.array(made["joints"])[::5][:n])
    # a frame comes 1 ms after its joints, and a command 0.5 ms after the joints of each even number
    assert episode.columns["actions"].tolist() == [made["commands"][k // 2 + 1] for k in range(0, 5 * n, 5)]
    assert np.allclose(np.diff(episode.columns["timestamps"]), 0.1)
    assert episode.metadata["start_ns"] == START + 1_000_000
    assert batch["observations/camera"].shape == (2, 3, 6, 5, 3)


def test_three_clocks_by_name(tmp_path: Path) -> None:
    robot(tmp_path / "a.mcap")
    position = "robot/joint_states/position/shoulder"
    for clock, shift in (("log_time", 0), ("publish_time", -1_000_000), ("header.stamp", -3_000_000)):
        columns = {"x": {"from": position, "times": clock}}
        with opened(tmp_path / "a.mcap", columns=columns, clock={"reference": "x", "within": 0}) as data:
            assert data[0].metadata["start_ns"] == START + shift
    with pytest.raises(FormatError, match="expected an array 'stamp'"):
        opened(tmp_path / "a.mcap", columns={"x": position}, clock={"reference": "x", "within": 0, "times": "stamp"})


def test_pixels_by_rows_of_a_step_are_rgb(tmp_path: Path) -> None:
    made = robot(tmp_path / "a.mcap")
    columns = {"camera": "camera/image_raw/image"}
    with opened(tmp_path / "a.mcap", columns=columns, clock={"reference": "camera", "within": 0}) as data:
        assert np.array_equal(data[0].columns["camera"], made["frames"])


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_layout_has_the_messages_that_the_library_reads(layout: str, tmp_path: Path) -> None:
    topics = {"/joints": counting(40), "/late/joints": counting(7, 5 * 10**7, 3)}
    path = json_log(tmp_path / "a.mcap", topics, **LAYOUTS[layout])
    tree = McapTree(path)
    if layout != "without summary":  # without repeated channels the library itself raises KeyError
        with path.open("rb") as file:
            assert len(list(make_reader(file).iter_messages())) == 47
    for topic, written in topics.items():
        name = topic.removeprefix("/")
        times = tree.read(f"{name}/log_time", 0, len(written))
        assert times.tolist() == [time for time, _ in written]
        q = tree.read(f"{name}/q", 0, len(written))
        assert q.tolist() == [value["q"] for _, value in written]
        assert tree.read(f"{name}/mode", 3, 6).strings() == [value["mode"] for _, value in written[3:6]]
        assert tree.read(f"{name}/on", 0, len(written)).dtype == np.bool_
    assert [entry for entry in tree.left_out if entry.reason != "document"] == []


def test_few_chunks_are_unpacked_for_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = json_log(tmp_path / "a.mcap", {"/joints": counting(5000)}, chunk_size=2000)
    tree = McapTree(path)
    _ = tree.leaves
    unpacked: list[int] = []
    load = type(tree._log)._load
    monkeypatch.setattr(type(tree._log), "_load", lambda self, file, n: (unpacked.append(n), load(self, file, n))[1])
    rows = tree.read("joints/q", 3005, 3010)
    assert rows[:, 0].tolist() == [3005, 3006, 3007, 3008, 3009]
    assert len(unpacked) < 20 < len(tree._log._places)


def test_whole_numbers_are_those_of_the_schema(tmp_path: Path) -> None:
    rows = [(i, {"n": i, "x": i, "list": [i]}) for i in range(3)]
    whole = {"type": "integer"}
    schema = {"type": "object", "properties": {"n": whole, "list": {"type": "array", "items": whole}}}
    tree = McapTree(json_log(tmp_path / "a.mcap", {"/a": rows}, schema))
    assert {name: str(leaf.field.dtype) for name, leaf in tree.leaves.items() if not leaf.is_time} == {
        "a/n": "int64",
        "a/x": "float64",
        "a/list": "int64",
    }


def test_episodes_end_at_marks_and_silence(tmp_path: Path) -> None:
    quiet = [(time if i < 12 else time + 5 * 10**9, value) for i, (time, value) in enumerate(counting(20))]
    marks = [(time, {}) for time in (25_000_000, 85_000_000)]
    path = json_log(tmp_path / "a.mcap", {"/joints": quiet, "/episode/start": marks})
    columns = {"q": "joints/q"}
    clock = {"reference": "q", "within": 0}
    with opened(path, columns=columns, clock={**clock, "gap": 1}) as data:
        assert [len(episode) for episode in data] == [12, 8]
    starts = {"from": "episode/start/log_time", "unit": "ns"}
    with opened(path, columns=columns, clock={**clock, "starts": starts}) as data:
        assert [episode.columns["q"][0, 0] for episode in data] == [3, 9]
        assert next(entry.count for entry in data.source.account.left_out if entry.reason == "unused-rows") == 3


def test_one_topic_opens_by_itself_and_several_ask(tmp_path: Path) -> None:
    path = json_log(tmp_path / "one.mcap", {"/joints": counting(20)})
    data = penstock.open(path)
    assert data[0].columns["joints/q"][:, 1].tolist() == list(range(0, 40, 2))
    assert data.spec["joints/mode"].kind == "text"
    robot(tmp_path / "several.mcap")
    with pytest.raises(UnknownFormatError, match="50 a second") as caught:
        penstock.open(tmp_path / "several.mcap")
    call = str(caught.value).partition("open it with a mapping, as ")[2].partition(", or write that")[0]
    entries = re.fullmatch(r"penstock\.open\('.*?', format='mapping', columns=(.*), leave_out=(.*), clock=(.*)\)", call)
    assert entries is not None
    columns, leave_out, clock = map(ast.literal_eval, entries.groups())
    data = penstock.open(
        tmp_path / "several.mcap", format="mapping", columns=columns, clock=clock, leave_out=leave_out
    )  # as a user would paste it
    assert data.source.metadata["mapping"]["clock"]["within"] == 0.2
    assert len(data[0]) == 20


def test_names_of_joints_decide_and_not_their_places(tmp_path: Path) -> None:
    def at(names: list[str]) -> dict[str, Any]:
        return {"name": names, "position": [float(len(name)) for name in names]}

    rows = [(i, at(["a", "bb"] if i % 2 else ["bb", "a"])) for i in range(6)]
    tree = McapTree(json_log(tmp_path / "a.mcap", {"/j": rows}))
    assert tree.read("j/position/a", 0, 6).tolist() == [1.0] * 6
    assert tree.read("j/position/bb", 0, 6).tolist() == [2.0] * 6
    robot(tmp_path / "b.mcap")
    json_log(tmp_path / "a.mcap", {"/j": [(0, at(["a", "bb"])), (1, at(["a", "ccc"]))]})
    with opened(tmp_path / "a.mcap", columns={"x": ["j/position/bb"]}, clock={"reference": "x", "within": 0}) as data:
        assert np.array_equal(data[0].columns["x"].reshape(-1), [2.0, np.nan], equal_nan=True)
    with pytest.raises(FormatError, match="expected an array 'j/position/d'"):
        opened(tmp_path / "a.mcap", columns={"x": ["j/position/d"]}, clock={"reference": "x", "within": 0})


def test_a_message_that_does_not_fit_is_named(tmp_path: Path) -> None:
    rows = counting(300)
    rows[150] = (rows[150][0], {"q": [1], "mode": "m", "on": True})
    rows[151] = (rows[151][0], {"q": [1, 2], "on": True})
    path = json_log(tmp_path / "a.mcap", {"/joints": rows})
    with pytest.raises(FormatError, match=r"expected float64\[2\] as in other messages, got \[1.0\] in message 150"):
        McapTree(path).read("joints/q", 0, 300)


def test_protobuf_by_the_descriptor_in_the_file(tmp_path: Path) -> None:
    Sample, made = protobuf_class()
    with (tmp_path / "a.mcap").open("wb") as file:
        writer = ProtobufWriter(file)
        for i in range(5):
            message = Sample(x=0 if i == 0 else i + 0.5, n=i, values=[i] * 3, names=["s"], kind=1)
            message.at.seconds, message.at.nanos = 9, i
            message.points.add(z=i)
            if i != 2:
                message.maybe = i
            writer.write_message("/sample", message, log_time=i * 10, publish_time=i * 10 - 1 if i else 0)
        writer.finish()
    tree = McapTree(tmp_path / "a.mcap")
    read = {name.removeprefix("sample/"): tree.read(name, 0, 5) for name in tree.leaves}
    assert read["x"].tolist() == [0, 1.5, 2.5, 3.5, 4.5]  # a zero is not stored
    assert read["n"].tolist() == list(range(5))
    assert read["at"].tolist() == [9 * 10**9 + i for i in range(5)]
    assert read["values"].tolist() == [[i] * 3 for i in range(5)]
    assert read["values"].dtype == np.float32
    assert read["points/z"].tolist() == [[i] for i in range(5)]
    assert np.array_equal(read["maybe"], [0, 1, np.nan, 3, 4], equal_nan=True)
    assert read["kind"].tolist() == [1] * 5
    assert read["publish_time"].tolist() == [0, 9, 19, 29, 39]
    assert [entry.where for entry in tree.left_out] == ["sample/names"]
    assert made


def protobuf_class() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="made.proto", package="made", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.enum_type.add(name="Kind").value.add(name="NONE", number=0)
    file.enum_type[0].value.add(name="ONE", number=1)
    point = file.message_type.add(name="Point")
    point.field.add(name="z", number=1, type=1, label=1)
    sample = file.message_type.add(name="Sample")
    for number, (name, type, label) in enumerate(
        [("x", 1, 1), ("n", 5, 1), ("values", 2, 3), ("names", 9, 3)], start=1
    ):
        sample.field.add(name=name, number=number, type=type, label=label)
    sample.field.add(name="at", number=5, type=11, label=1, type_name=".google.protobuf.Timestamp")
    sample.field.add(name="points", number=6, type=11, label=3, type_name=".made.Point")
    sample.field.add(name="kind", number=7, type=14, label=1, type_name=".made.Kind")
    sample.oneof_decl.add(name="_maybe")
    sample.field.add(name="maybe", number=8, type=1, label=1, proto3_optional=True, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    made = pool.Add(file) or pool.FindFileByName("made.proto")
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("made.Sample")), made


def test_what_a_file_has_beside_messages_is_said(tmp_path: Path) -> None:
    with (tmp_path / "a.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        json_channel = writer.register_channel("/a", "json", 0)
        first = writer.register_schema("one", "jsonschema", b"{}")
        second = writer.register_schema("two", "jsonschema", b"{}")
        mixed = [writer.register_channel("/mixed", "json", number) for number in (first, second)]
        twice = [writer.register_channel("/twice", "json", first) for _ in range(2)]
        cbor = writer.register_channel("/packed", "cbor", 0)
        writer.register_channel("/empty", "json", 0)
        for i in range(4):
            writer.add_message(json_channel, i, b'{"x": 1, "words": ["a"], "none": []}', i)
            writer.add_message(mixed[i % 2], i, b'{"x": 1}', i)
            writer.add_message(twice[i % 2], 3 - i, json.dumps({"x": i}).encode(), i)
            writer.add_message(cbor, i, b"\xa0", i)
        writer.add_attachment(0, 0, "notes.txt", "text/plain", b"hello")
        writer.add_metadata("run", {"operator": "Ada"})
        writer.finish()
    clock = {"reference": "x", "within": 0}
    with opened(tmp_path / "a.mcap", columns={"x": "a/x", "twice": "twice/x"}, clock=clock) as data:
        assert data[0].metadata["run/operator"] == "Ada"
        assert data[0].columns["twice"].tolist() == [3, 2, 1, 0]  # both channels, in the order of their times
        said = reasons(data)
    assert said["a.mcap: notes.txt"] == "document"
    assert said["a.mcap: /mixed"] == "unsupported-dtype"
    assert said["a.mcap: /packed"] == "unsupported-dtype"
    assert said["a.mcap: /empty"] == "document"
    assert said["a.mcap: a/words"] == "unsupported-dtype"
    assert said["a.mcap: a/none"] == "document"


@pytest.mark.parametrize("layout", ["zstd", "unchunked", "without indexes"])
def test_a_cut_file_has_its_whole_messages_and_says_so(layout: str, tmp_path: Path) -> None:
    whole = json_log(tmp_path / "a.mcap", {"/joints": counting(200)}, **LAYOUTS[layout])
    raw = whole.read_bytes()
    counts: list[int] = []
    for part in (0.1, 0.25, 0.4):
        path = tmp_path / f"{part}.mcap"
        path.write_bytes(raw[: int(len(raw) * part)])
        with pytest.warns(DamageWarning, match=r"the file was cut, .* whole messages of more"):
            data = penstock.open(path)
        counts.append(len(data[0]))
        assert data[0].columns["joints/q"][:, 0].tolist() == list(range(counts[-1]))
    assert 0 < counts[0] < counts[1] < counts[2] <= 200
    with pytest.raises(FormatError, match="expected"):
        penstock.open(cut(whole, lambda _: 40))


def test_a_chunk_with_another_checksum_is_an_error_or_left_out(tmp_path: Path) -> None:
    path = json_log(tmp_path / "a.mcap", {"/joints": counting(2000)}, **LAYOUTS["none"])
    raw = bytearray(path.read_bytes())
    place = raw.index(b'"q": [1000, 2000]')
    raw[place + 6] = ord("9")
    path.write_bytes(raw)
    tree = McapTree(path)
    assert tree.read("joints/q", 0, 20)[:, 0].tolist() == list(range(20))
    with pytest.raises(FormatError, match="expected the bytes of a chunk that have its checksum"):
        tree.read("joints/q", 900, 1100)
    assert tree.read("joints/q", 1500, 1510)[:, 0].tolist() == list(range(1500, 1510))
    path = json_log(
        tmp_path / "b.mcap", {"/joints": counting(200)}, **{**LAYOUTS["without indexes"], **LAYOUTS["none"]}
    )
    raw = bytearray(path.read_bytes())
    raw[raw.index(b'"q": [100, 200]') + 6] = ord("9")
    path.write_bytes(raw[: -200 - 1])  # without its summary, so that all chunks are looked at
    with opened(path, columns={"q": "joints/q"}, clock={"reference": "q", "within": 0}) as data:
        assert 100 < len(data[0]) < 200
        assert "checksum" in reasons(data).values()


def test_a_summary_with_another_checksum_is_not_trusted(tmp_path: Path) -> None:
    path = json_log(tmp_path / "a.mcap", {"/joints": counting(20)})
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(b"/joints")] ^= 1
    path.write_bytes(raw)
    with pytest.warns(DamageWarning, match=r"the summary does not have its checksum"):
        data = penstock.open(path)
    assert data[0].columns["joints/q"][:, 0].tolist() == list(range(20))


def test_another_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.mcap").write_bytes(b"not one")
    with pytest.raises(FormatError, match="expected an MCAP file"):
        penstock.open(tmp_path / "a.mcap")


def test_images_of_another_size_and_kind_are_named(tmp_path: Path) -> None:
    from logs.recordings import COMPRESSED, Ros2Writer, png, stamp

    with (tmp_path / "a.mcap").open("wb") as file:
        writer = Ros2Writer(file)
        camera = writer.register_msgdef("sensor_msgs/msg/CompressedImage", COMPRESSED)
        video = writer.register_msgdef("foxglove_msgs/msg/CompressedVideo", COMPRESSED)
        for i in range(3):
            frame = picture(i, (6, 5) if i < 2 else (4, 4))
            writer.write_message("/a", camera, {"header": stamp(i), "format": "png", "data": png(frame)}, i, i)
            writer.write_message(
                "/depth", camera, {"header": stamp(i), "format": "32FC1; compressedDepth", "data": b""}, i
            )
            writer.write_message("/video", video, {"header": stamp(i), "format": "h264", "data": b"x"}, i, i)
        writer.finish()
    with opened(tmp_path / "a.mcap", columns={"a": "a/image"}, clock={"reference": "a", "within": 0}) as data:
        assert reasons(data)["a.mcap: video"] == "unsupported-dtype"
        assert reasons(data)["a.mcap: depth"] == "damaged-part"
        assert np.array_equal(data.steps()[[0, 1]]["a"], [picture(0), picture(1)])
        with pytest.raises(FormatError, match=r"expected an image uint8\[6, 5, 3\] as the first, got uint8\[4, 4, 3\]"):
            data.steps()[[2]]
