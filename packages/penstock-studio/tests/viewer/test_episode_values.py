"""What the page of an episode asks for: exact values, differences, texts, paths, depth, packets, predictions."""

# pyright: basic

from __future__ import annotations

import hashlib
import io
import json
import struct
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.columns import Ragged
from penstock.core.spec import Field
from penstock.errors import ArgumentError
from penstock_studio.viewer.answers import STATIC
from penstock_studio.viewer.column_facts import column_facts
from penstock_studio.viewer.depth_colors import colored, is_depth, table
from penstock_studio.viewer.episode_contents import AlignedEpisode, EpisodeContents
from penstock_studio.viewer.packets import codec_text
from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import serving
from viewer.test_server import ask

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"  # of dist/uPlot.iife.min.js


def contents_of(columns: dict[str, object], lengths: list[int], **metadata: object) -> EpisodeContents:
    return EpisodeContents(penstock.from_arrays(columns, lengths, metadata=metadata))


def test_values_are_those_of_the_row_even_where_json_has_none() -> None:
    columns = {
        "rewards": np.array([0.1, np.nan, np.inf]),
        "count": np.array([0, -(2**62), 2**53], np.int64),
        "done": np.array([False, True, True]),
    }
    contents = contents_of(columns, [3])
    assert contents.values(0, 0) == {"rewards": [0.1], "count": [0], "done": [0]}
    assert contents.values(0, 1) == {"rewards": ["nan"], "count": [str(-(2**62))], "done": [1]}
    assert contents.values(0, 9) == {"rewards": ["inf"], "count": [2**53], "done": [1]}
    json.dumps(contents.values(0, 1), allow_nan=False)
    series, _ = contents.series(0, "rewards")
    assert series.dtype == np.float64  # to the last bit
    assert series[0, 0, 0] == 0.1


def test_a_difference_is_taken_at_the_rows_beside_each_other_and_thinned_afterwards() -> None:
    values = np.random.default_rng(5).normal(size=900)
    contents = contents_of({"x": values}, [500, 400])
    for first, zero, step in ((0, 0, 1.0), (7, 3, 1.0), (0, 0, 2.0), (4, 0, 0.5)):
        other = AlignedEpisode(contents, 1, first, zero, step)
        found = contents.series(0, "x", minus=other)[0][:, 0, 0]
        for row in range(500):
            beside = round(zero + (row - first) / step)
            wanted = values[row] - values[500 + beside] if 0 <= beside < 400 else np.nan
            np.testing.assert_equal(found[row], wanted)
    whole = contents.series(0, "x", minus=AlignedEpisode(contents, 1, 0, 0, 1.0))[0]
    few = contents.series(0, "x", minus=AlignedEpisode(contents, 1, 0, 0, 1.0), points=9)[0]
    assert np.nanmin(few) == np.nanmin(whole)
    assert np.nanmax(few) == np.nanmax(whole)


def test_changes_of_a_column_and_columns_that_never_change() -> None:
    contents = contents_of({"mode": np.array([1, 1, 2, 2, 3, 3, 5]), "x": np.array([np.nan] * 6 + [1.0])}, [6, 1])
    assert contents.changes(0, "mode") == {"first": 2, "last": 4}
    assert contents.changes(0, "x") == contents.changes(1, "mode") == {"first": None, "last": None}


def test_facts_of_columns_are_those_of_the_metadata() -> None:
    with penstock.open(GOLDEN / "lerobot" / "v3_video") as data:
        facts = {path: column_facts(path, field, data.metadata) for path, field in data.spec.items()}
    assert facts["observations/state"]["names"] == [f"j{i}" for i in range(6)]
    assert facts["terminations"]["form"] == "state"
    assert facts["terminations"]["values"] == {"0": "false", "1": "true"}
    assert (facts["gripper"]["form"], facts["actions"]["form"], facts["timestamp"]["unit"]) == ("step", "line", "s")
    motors = {"features": {"action": {"names": {"motors": ["a", "b"]}}}, "names": {"actions": "action"}}
    assert column_facts("actions", Field(np.dtype("f4"), (2,)), motors)["names"] == ["a", "b"]
    assert column_facts("actions", Field(np.dtype("f4"), (3,)), motors)["names"] == []
    meant = {"action_meanings": ["NOOP", "FIRE"], "units": {"actions": "m"}}
    found = column_facts("actions", Field(np.dtype("i8")), meant)
    assert (found["form"], found["values"], found["unit"]) == ("state", {"0": "NOOP", "1": "FIRE"}, "m")
    for strange in ({"units": 3, "features": [], "names": None, "value_names": "x"}, {"features": {"actions": 1}}):
        assert column_facts("actions", Field(np.dtype("i8"), (2,)), strange)["names"] == []
    named = {"element_names": {"state": ["arm.y", "arm.x", "grip"]}}
    assert column_facts("state", Field(np.dtype("f4"), (3,)), named)["path"] == [1, 0]
    assert column_facts("ego/position", Field(np.dtype("f8"), (3,)), {})["path"] == [0, 1, 2]
    assert column_facts("rewards", Field(np.dtype("f8")), {})["path"] == []


def test_a_path_has_the_rows_of_its_points() -> None:
    walk = np.random.default_rng(2).normal(size=(9000, 2)).cumsum(0).astype("f4")
    contents = contents_of({"agent_pos": walk, "rewards": np.zeros(9000)}, [9000])
    path = contents.path(0, "agent_pos")
    assert len(path) == 4000
    np.testing.assert_array_equal(path[:, 1:], walk[path[:, 0].astype(int)])
    with pytest.raises(ArgumentError, match="positions among"):
        contents.path(0, "rewards")


def test_texts_where_they_change() -> None:
    with penstock.open(GOLDEN / "lerobot" / "v3_types") as data:
        contents, texts = EpisodeContents(data), data[0].columns["task"].strings()
    found = contents.text(0, "task")
    assert not found["more"]
    said = dict(found["texts"])
    now = ""
    for row, text in enumerate(texts):
        now = said.get(row, now)
        assert now == text
    with pytest.raises(ArgumentError, match="no text 'tasks'; did you mean 'task'"):
        contents.text(0, "tasks")


def test_what_nothing_draws_is_text() -> None:
    columns = {
        "answer": np.array(["yes", "no", "no"]),
        "phase": np.array([1 + 2j, 1, 1]),
        "tokens": Ragged.from_rows([np.array(row, np.int64) for row in ([1, 2], [], [3])]),
    }
    contents = EpisodeContents(penstock.from_arrays(columns, lengths=[1, 2]))
    assert contents.texts == list(columns)
    assert contents.text(1, "answer")["texts"] == [[0, "no"]]
    assert contents.text(0, "phase")["texts"] == [[0, "(1+2j)"]]
    assert contents.text(1, "tokens")["texts"] == [[0, "[]"], [1, "[3]"]]


def test_depth_is_coloured_on_one_scale_for_an_episode() -> None:
    with penstock.open(GOLDEN / "lerobot" / "depth_image_mm") as data:
        contents = EpisodeContents(data)
        camera = next(each for each in contents.cameras_of(1) if each["path"] == "observations/images/depth")
        rows = np.asarray(data[1].columns["observations/images/depth"])
        picture = np.asarray(Image.open(io.BytesIO(contents.picture(1, "observations/images/depth", 2))))
    depth = camera["depth"]
    assert depth["unit"] == "mm"
    assert rows.min() <= depth["low"] < depth["high"] <= rows.max()
    np.testing.assert_array_equal(picture, colored(rows[2:3], (depth["low"], depth["high"]))[0])
    ends = colored(np.array([[[0.0, np.nan, -1.0, 1.0, 3.0, 99.0]]]), (1.0, 3.0))[0, 0]
    np.testing.assert_array_equal(ends, [[0, 0, 0]] * 3 + [table()[0], table()[255], table()[255]])
    assert not is_depth("state", Field(np.dtype("f4"), (4, 4)))
    assert not is_depth("planes", Field(np.dtype("f4"), (3, 32, 32)))


@pytest.mark.parametrize("codec", ["libx264", "libsvtav1"])
def test_packets_decode_to_the_frames_of_the_rows(tmp_path: Path, codec: str) -> None:
    """FFmpeg, fed with what the browser gets, returns each frame under its number."""
    random = np.random.default_rng(11)
    frames = np.repeat(random.integers(0, 255, (70, 17, 20, 3), np.uint8), 16, 1).repeat(16, 2)
    data = penstock.from_arrays({"camera": frames, "actions": np.zeros(70, "f4")}, [40, 30], metadata={"fps": 10})
    options = {"cameras": "video", "codec": codec, "g": 13}
    penstock.convert(data, tmp_path / "video", format="lerobot", options=options, certificate=False)
    with penstock.open(tmp_path / "video") as stored:
        contents, rows = EpisodeContents(stored), np.asarray(stored[1].columns["camera"])
        assert contents.cameras_of(1)[0] | {"video": True, "encoding": "jpeg"} == contents.cameras_of(1)[0]
        message = contents.packets(1, "camera", 0)
        assert contents.packets(0, "camera", 1) != message
    (size,) = struct.unpack_from("<I", message)
    header, place = json.loads(message[4 : 4 + size]), 4 + size
    decoder = av.CodecContext.create("h264" if codec == "libx264" else "libdav1d", "r")
    decoder.extradata = bytes(header["config"].get("description", b""))
    found = {}
    for number, (length, frame, is_key) in enumerate(header["packets"]):
        packet = av.Packet(message[place : place + length])
        packet.pts, packet.dts, packet.is_keyframe = frame, number, is_key
        found |= {out.pts: out.to_ndarray(format="rgb24") for out in decoder.decode(packet)}
        place += length
    found |= {out.pts: out.to_ndarray(format="rgb24") for out in decoder.decode(None)}
    assert place == len(message)
    assert header["packets"][0][2]
    for row, frame in enumerate(header["frames"]):
        np.testing.assert_array_equal(found[frame], rows[row])


def test_codecs_as_browsers_write_them() -> None:
    """The values of RFC 6381, and those that FFmpeg's HLS muxer writes for the same streams."""
    assert codec_text("h264", bytes.fromhex("0164001fffe1")) == "avc1.64001f"
    assert codec_text("av1", bytes.fromhex("81050c00")) == "av01.0.05M.08"
    hevc = bytes.fromhex("01016000000090000000000078")
    assert codec_text("hevc", hevc) == "hvc1.1.6.L120.90"
    assert codec_text("h264", b"") is codec_text("mpeg4", b"\x01\x02\x03\x04") is None


def test_only_stored_video_has_packets(tmp_path: Path) -> None:
    frames = np.zeros((3, 300, 300, 3), np.uint8)
    contents = contents_of({"camera": frames}, [3])
    assert contents.cameras_of(0)[0]["video"] is False
    with pytest.raises(ArgumentError, match="expected a camera in video files"):
        contents.packets(0, "camera", 0)


def test_predictions_of_the_same_steps(tmp_path: Path) -> None:
    actions = np.arange(24, dtype="f4").reshape(12, 2)
    penstock.convert(penstock.from_arrays({"actions": actions}, [5, 7]), tmp_path / "data", certificate=False)
    chunks = np.arange(12 * 3 * 2, dtype="f8").reshape(12, 3, 2)
    cases = {"policy": ({"actions": chunks}, [5, 7]), "single": ({"actions": actions + 1}, [5, 7])}
    cases |= {"short": ({"actions": chunks[:11]}, [5, 6]), "other": ({"rewards": np.zeros(12)}, [5, 7])}
    for name, (columns, lengths) in cases.items():
        penstock.convert(penstock.from_arrays(columns, lengths), tmp_path / name, certificate=False)
    data = str(tmp_path / "data")
    with serving(data, predictions=str(tmp_path / "policy")) as server:
        assert json.loads(ask(server, "/api/data/episode/1")[2])["predicted"] == {"actions": 3}
        _, headers, body = ask(server, "/api/data/predicted/1?column=actions&first=2&last=99")
        assert headers["X-Shape"] == "5,3,2"
        np.testing.assert_array_equal(np.frombuffer(body, headers["X-Type"]).reshape(5, 3, 2), chunks[7:])
        assert ask(server, "/api/data/predicted/1?column=rewards")[0] == 400
    with serving(data, predictions=str(tmp_path / "single")) as server:
        _, headers, body = ask(server, "/api/data/series/0?column=actions&predicted=1")
        values = np.frombuffer(body[: 5 * 2 * 2 * int(headers["X-Type"][1])], headers["X-Type"]).reshape(5, 2, 2)
        np.testing.assert_array_equal(values[:, 0], actions[:5] + 1)
    with pytest.raises(ArgumentError, match="expected predictions for the same steps, 7, got 6 steps in episode 1"):
        ViewerServer([data], predictions=str(tmp_path / "short"))
    with pytest.raises(ArgumentError, match="expected a column of the dataset"):
        ViewerServer([data], predictions=str(tmp_path / "other"))
    with pytest.raises(ArgumentError, match="one dataset with its predictions"):
        ViewerServer([data, data], predictions=data)


def test_uplot_is_as_it_was_published_with_its_licence() -> None:
    text = (STATIC / "uplot.js").read_text("utf-8")
    licence, _, code = text.partition("*/\n")
    assert "The MIT License (MIT)" in licence
    assert "Leon Sorokin" in licence
    code, _, rest = code.rpartition("\nexport default")
    assert rest == " uPlot;\n"
    assert hashlib.sha256(code.encode() + b"\n").hexdigest() == UPLOT


def test_a_pixel_has_the_values_of_the_data() -> None:
    random = np.random.default_rng(3)
    depth = random.random((4, 20, 30, 1)).astype(np.float32)
    depth[1, 2, 3] = np.nan
    cameras = random.integers(0, 255, (4, 20, 30, 3), np.uint8)
    metadata = {"units": {"depth": "m"}}
    columns = {"depth": depth, "camera": cameras, "gray": cameras[..., :1]}
    contents = EpisodeContents(penstock.from_arrays(columns, lengths=[1, 3], metadata=metadata))
    assert contents.pixel(1, "depth", 1, 7, 19) == {"values": [float(depth[2, 19, 7, 0])], "unit": "m"}
    assert contents.pixel(1, "depth", 0, 3, 2) == {"values": ["nan"], "unit": "m"}
    assert contents.pixel(1, "camera", 2, 29, 0) == {"values": cameras[3, 0, 29].tolist(), "unit": ""}
    for place in ((3, 0, 0), (0, 30, 0), (0, 0, 20), (0, -1, 0)):
        with pytest.raises(ArgumentError):
            contents.pixel(1, "camera", *place)
