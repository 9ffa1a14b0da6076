"""The compatibility package for LeRobot: items, metadata, recording, against what LeRobot returned and wrote."""

# pyright: basic

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

import penstock
from penstock.containers.video import packet_index
from penstock.errors import ArgumentError, DataError, LockedError, PlanError, SpecError
from penstock.formats.lerobot.info import INDICES
from penstock_mirrors.lerobot import (
    DepthEncoderConfig,
    LeRobotDataset,
    LeRobotDatasetMetadata,
    MultiLeRobotDataset,
    RGBEncoderConfig,
)
from tests.locations.server import serving

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "lerobot"
EXPECTED = np.load(GOLDEN / "v3_image_expected.npz")
ITEMS = (0, 1, 24, 25, 26, 64, 65, 77, 78, 108)
TIMES = {"observation.images.top": [-0.2, -0.1, 0.0], "action": [0.0, 0.1, 0.2, 0.3]}
TASKS = {0: "pick the cube", 1: "place it in the box"}
TOP, WRIST = "observation.images.top", "observation.images.wrist"


def opened(name: str, **options: Any) -> LeRobotDataset:
    return LeRobotDataset("me/set", root=GOLDEN / name, **options)


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Equal names in the same order, dtypes, shapes and values."""
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        if isinstance(value, str):
            assert found[name] == value
        else:
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
            assert torch.equal(found[name], value), name


def test_items_equal_those_of_lerobot() -> None:
    data = opened("v3_image", delta_timestamps=TIMES)
    for i, found in zip(ITEMS, data.__getitems__(ITEMS), strict=True):
        wanted: dict[str, Any] = {}
        for key in (key for key in EXPECTED if key.startswith(f"{i}/")):
            name, value = key.split("/", 1)[1], torch.as_tensor(EXPECTED[key])
            if name.endswith("_is_pad"):
                value = value.bool()
            elif ".images." in name:
                value = value.float() / 255
            wanted[name] = value
        same(found, wanted | {"task": TASKS[int(wanted["task_index"])]})
        same(data[i], found)
    same(data[-1], data[108])
    assert data.reader.delta_indices == {TOP: [-2, -1, 0], "action": [0, 1, 2, 3]}
    with pytest.raises(IndexError, match="109"):
        data[109]


def test_chosen_episodes() -> None:
    data, whole = (
        opened("v3_image", episodes=[3, 1], delta_timestamps=TIMES),
        opened("v3_image", delta_timestamps=TIMES),
    )
    assert (len(data), data.num_frames, data.num_episodes, data.meta.total_episodes) == (71, 71, 2, 4)
    same(data[0], whole[25])  # in the order of the dataset, as LeRobot
    same(data[40], whole[78])
    with pytest.warns(UserWarning, match=r"left out \[9, -1\]: the dataset has the episodes 0:4"):
        data = opened("v3_image", episodes=[2, 9, 0, -1, 2])
    assert (len(data), data.num_episodes, data.reader.episodes) == (38, 3, [2, 0, 2])  # as LeRobot counts
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ArgumentError, match=r"episodes 0:4, got \[9\]"):
        opened("v3_image", episodes=[9])
    long = opened("v3_image", episodes=[0, 1, 2], episode_filter=lambda row: row["length"] > 20)
    assert (long.episodes, long.num_frames) == ([0, 1], 65)
    assert long.absolute_to_relative_idx == {i: i for i in range(65)}
    with pytest.raises(ArgumentError, match="episode_filter that is true"):
        opened("v3_image", episode_filter=lambda row: False)
    assert [item["index"].item() for item in long[::-30]] == [64, 34, 4]


def test_frames_of_video_and_transforms() -> None:
    frames = penstock.open(GOLDEN / "v3_video").steps()[[3, 4, 30]]["observations"]["images"]
    data = opened("v3_video", delta_timestamps={TOP: [-0.1, 0.0], WRIST: [0.0]}, video_backend="pyav")
    item = data[4]
    assert list(item)[:2] == [TOP, WRIST]  # video first
    assert torch.equal(item[TOP], torch.as_tensor(frames["top"][:2]).movedim(-1, 1).float() / 255)
    assert torch.equal(item[WRIST], torch.as_tensor(frames["wrist"][1]).movedim(-1, 0).float() / 255)  # no axis for one
    assert item[f"{WRIST}_is_pad"].tolist() == [False]
    halved = opened("v3_video", image_transforms=lambda frame: frame[..., ::2, ::2])
    assert torch.equal(halved[30][TOP], torch.as_tensor(frames["top"][2]).movedim(-1, 0)[:, ::2, ::2].float() / 255)


def test_workers_read_what_the_dataset_reads() -> None:
    data = opened("v3_video", delta_timestamps={"action": [0.0, 0.1], TOP: [-0.1, 0.0]})
    data[0]  # opened before the fork
    wanted = list(DataLoader(data, batch_size=40))
    for number, batch in enumerate(DataLoader(data, batch_size=40, num_workers=2, multiprocessing_context="fork")):
        assert torch.equal(batch[TOP], wanted[number][TOP])
        assert batch["task"] == wanted[number]["task"]
    same(pickle.loads(pickle.dumps(data))[70], data[70])


@pytest.mark.parametrize("name", ["v3_image", "v3_video", "v21_image", "v21_video"])
def test_metadata_of_every_version(name: str) -> None:
    data = opened(name)
    meta = data.meta
    kind = "video" if "video" in name else "image"
    assert (data.fps, meta.robot_type, meta.total_frames, meta.total_tasks) == (10, "toyarm", 109, 2)
    assert (meta.tasks, meta.get_task_index("pick the cube"), meta.get_task_index("dance")) == (TASKS, 0, None)
    assert meta.camera_keys == [TOP, WRIST] == (meta.video_keys if kind == "video" else meta.image_keys)
    assert meta.features[TOP]["shape"] == meta.shapes[TOP] == (64, 96, 3)
    assert meta.names["action"] == ["j0", "j1", "j2", "j3", "j4", "j5"]
    assert meta.episodes["dataset_from_index"] == [0, 25, 65, 78]
    row = meta.episodes[1]
    assert (row["length"], row["dataset_to_index"], row["tasks"]) == (40, 65, ["place it in the box"])
    assert len(list(meta.episodes)) == len(meta.episodes) == 4
    assert meta.stats is not None
    actions = np.concatenate([e.actions for e in penstock.open(GOLDEN / name, columns=["action"])])
    np.testing.assert_allclose(meta.stats["action"]["mean"], actions.mean(0), rtol=1e-5)
    assert (data.root / meta.get_data_file_path(3)).is_file()
    if kind == "video":
        assert (data.root / meta.get_video_file_path(3, TOP)).is_file()
        assert row[f"videos/{TOP}/from_timestamp"] == (2.5 if name == "v3_video" else 0.0)
    with pytest.raises(IndexError, match="no episode 4; there are 0:4"):
        meta.get_data_file_path(4)
    assert "me/set" in repr(data) + repr(meta)


def features(kind: str = "image") -> dict[str, dict[str, Any]]:
    stored = json.loads((GOLDEN / "v3_image/meta/info.json").read_text())["features"]
    return {
        name: {**each, "dtype": kind if each["dtype"] == "image" else each["dtype"], "shape": tuple(each["shape"])}
        for name, each in stored.items()
        if name not in INDICES
    }


def frames_of(episode: int) -> list[dict[str, Any]]:
    """Frames of an episode of the golden dataset, with arrays as LeRobot wants them."""
    data = penstock.open(GOLDEN / "v3_image")
    columns, paths = data[episode].columns, {name: path for path, name in data.metadata["names"].items()}
    rows = {name: columns[paths[name]].reshape(-1, *each["shape"]) for name, each in features().items()}
    return [
        {name: column[t] for name, column in rows.items()} | {"task": columns["task"].strings()[t]}
        for t in range(len(rows["action"]))
    ]


def record(root: Path, kind: str = "image", episodes: tuple[int, ...] = (0, 1, 2, 3)) -> LeRobotDataset:
    data = LeRobotDataset.create(
        "me/set", 10, features(kind), root=root, robot_type="toyarm", use_videos=kind == "video"
    )
    for n, episode in enumerate(episodes):
        for frame in frames_of(episode):
            data.add_frame(frame)
        data.save_episode()
        assert (data.num_episodes, data.meta.total_episodes, data.meta.total_frames) == (n + 1, n + 1, len(data))
    return data


def test_recorded_files_are_those_of_lerobot(tmp_path: Path) -> None:
    data = record(tmp_path / "set")
    killed = LeRobotDataset("me/set", root=tmp_path / "set")  # not finalised
    assert (len(killed), killed.meta.tasks, killed.meta.info.splits) == (109, TASKS, {"train": "0:4"})
    data.finalize()
    whole = opened("v3_image")
    for i in range(0, 109, 9):
        same(data[i], whole[i])
    table, wanted = (pq.read_table(root / "data/chunk-000/file-000.parquet") for root in (data.root, whole.root))
    assert table.column_names == wanted.column_names
    for name in wanted.column_names:
        assert table.schema.field(name).type == wanted.schema.field(name).type or "images" in name
        if "images" not in name:
            assert table[name].to_pylist() == wanted[name].to_pylist(), name
    mine, theirs = (
        pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet") for root in (data.root, whole.root)
    )
    for name in theirs.column_names:
        if name.endswith("/std") and "images" in name:
            continue  # LeRobot squares bytes as bytes
        assert mine[name].to_pylist() == theirs[name].to_pylist(), name
    tasks = [pq.read_table(root / "meta/tasks.parquet").to_pydict() for root in (data.root, whole.root)]
    assert tasks[0] == tasks[1]
    mine, theirs = (json.loads((root / "meta/info.json").read_text()) for root in (data.root, whole.root))
    mine.pop("penstock")
    assert mine == theirs


def test_recording_goes_on_after_finalize_and_in_another_object(tmp_path: Path) -> None:
    data = record(tmp_path / "set", "video", episodes=(2,))
    with pytest.raises(RuntimeError, match=r"add_frame: expected a dataset from .*resume"):
        LeRobotDataset("me/set", root=data.root).add_frame(frames_of(2)[0])
    other = LeRobotDataset.resume("me/set", root=data.root)
    other.add_frame(frames_of(2)[0])
    with pytest.raises(LockedError):
        other.save_episode()
    data.finalize()
    data = LeRobotDataset.resume("me/set", root=data.root)
    for frame in frames_of(2)[:3]:
        data.add_frame(frame)
    assert data.has_pending_frames()
    data.clear_episode_buffer()
    assert data.writer is not None
    assert not data.has_pending_frames()
    for frame in frames_of(2):
        data.add_frame({name: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for name, v in frame.items()})
    data.save_episode(data.writer.episode_buffer)
    data.finalize()
    assert [path.name for path in sorted((data.root / "data/chunk-000").iterdir())] == [
        f"file-00{i}.parquet" for i in (0, 1)
    ]
    assert (len(data), data.meta.episodes["episode_index"], data[25]["frame_index"].item()) == (26, [0, 1], 12)
    source = opened("v3_image", episodes=[2])
    for i in (0, 12):
        assert torch.equal(data[13 + i]["action"], source[i]["action"])
        assert (data[13 + i][TOP] - source[i][TOP]).abs().mean() < 0.05  # video loses detail
        assert torch.equal(data[13 + i][TOP], data[i][TOP])
    data.writer.episode_buffer = {**data.writer.create_episode_buffer(7), "size": 1}
    with pytest.raises(DataError, match="expected episode_index 2"):
        data.save_episode()
    data.finalize()


def test_frames_are_checked(tmp_path: Path) -> None:
    data = LeRobotDataset.create("me/set", 10, features(), root=tmp_path / "set")
    frame = frames_of(0)[0]
    with pytest.raises(DataError, match="got none"):
        data.save_episode()
    for change, message in (
        ({"action": np.zeros(6)}, r"'action': expected float32 \(6,\), got float64"),
        ({"action": 1.0}, "expected an array or a tensor, got float"),
        ({"next.done": np.array(True)}, r"expected bool \(1,\), got bool \(\)"),
        ({TOP: np.zeros((64, 64, 3), np.uint8)}, r"expected \(64, 96, 3\) or \(3, 64, 96\)"),
        ({TOP: np.full((64, 96, 3), 2.0)}, "floats from 0 to 1"),
        ({TOP: np.zeros((64, 96, 3), np.int64)}, "uint8 or floats, got int64"),
        ({TOP: "picture"}, "a picture, got str"),
        ({"task": 3}, "text as 'task', got int"),
        ({"timestamp": 0.0, "odd": 1}, "no feature 'odd'; no feature 'timestamp'"),
    ):
        with pytest.raises(DataError, match=message):
            data.add_frame(frame | change)
    with pytest.raises(DataError, match="no value of 'gripper'"):
        data.add_frame({name: value for name, value in frame.items() if name != "gripper"})
    first = frame[TOP].transpose(2, 0, 1)
    for picture in (
        first,
        np.minimum(first / 255 + 1e-9, 1),
        torch.as_tensor(first.copy()),
        PIL.Image.fromarray(frame[TOP]),
    ):
        data.add_frame(frame | {TOP: picture})
    data.save_episode()
    assert all(torch.equal(data[i][TOP], opened("v3_image")[0][TOP]) for i in range(4))
    data.finalize()


def test_text_and_scalars_of_a_shape_are_recorded(tmp_path: Path) -> None:
    kinds = {"note": {"dtype": "string", "shape": (1,), "names": None}, "n": {"dtype": "uint8", "shape": (2, 1)}}
    data = LeRobotDataset.create("me/set", 29.5, kinds, root=tmp_path / "set")
    for n in range(3):
        data.add_frame({"note": f"step {n}", "n": np.full((2, 1), n, np.uint8), "task": ""})
    data.save_episode()
    assert (data[2]["note"], data[2]["n"].dtype, data[2]["n"].tolist(), data.fps) == (
        "step 2",
        torch.int64,
        [[2], [2]],
        29.5,
    )
    data.finalize()
    with pytest.raises(ArgumentError, match="got text"):
        LeRobotDataset("me/set", root=tmp_path / "set", delta_timestamps={"note": [0.0]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"revision": "main"}, "expected revision=None, got 'main'"),
        ({"force_cache_sync": True}, "force_cache_sync"),
        ({"token": "hf_x"}, "token=None"),
        ({"depth_output_unit": "cm"}, r"depth_output_unit among \['m', 'mm'\], got 'cm'"),
        ({"video_backend": "torchcodec"}, "video_backend None or 'pyav', got 'torchcodec'"),
        ({"delta_timestamps": {"actions": [0.0]}}, r"no features \['actions'\]"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        opened("v3_image", **options)


def test_times_between_frames_are_refused() -> None:
    with pytest.raises(PlanError, match=r"\[0\.15\]"):
        opened("v3_image", delta_timestamps={"action": [0.15]})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"video_backend": "torchcodec"}, ArgumentError, "video_backend"),
        ({"fps": 0}, ArgumentError, "fps above 0"),
        ({"features": {"a/b": {"dtype": "float32", "shape": (1,)}}}, SpecError, "a/b"),
        ({"features": {"a": {"dtype": "complex64", "shape": (1,)}}}, SpecError, "complex64"),
        (
            {"features": {"a": {"dtype": "image", "shape": (4, 5, 1)}}},
            SpecError,
            "3 channels, or is_depth_map in its info, got 1",
        ),
        ({"features": {"a": {"dtype": "int8", "shape": (1, 2, 1, 2, 1, 2)}}}, SpecError, "5 axes"),
        ({"features": features("video"), "use_videos": False}, SpecError, "use_videos"),
    ],
)
def test_datasets_that_cannot_be_recorded(tmp_path: Path, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        LeRobotDataset.create(
            **{"repo_id": "a/b", "fps": 10, "features": features(), "root": tmp_path / "set"} | options
        )
    assert not (tmp_path / "set").exists()


def test_datasets_are_found_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="HF_LEROBOT_HOME; nothing is downloaded"):
        LeRobotDataset("me/set")
    shutil.copytree(GOLDEN / "v21_image", tmp_path / "me" / "set")
    assert len(LeRobotDataset("me/set")) == 109
    assert LeRobotDatasetMetadata("me/set").root == tmp_path / "me" / "set"
    monkeypatch.delenv("HF_LEROBOT_HOME")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with pytest.raises(FileNotFoundError, match=r"hub/lerobot/me/set/meta/info\.json"):
        LeRobotDatasetMetadata("me/set")


def test_sizes_of_files_are_changed(tmp_path: Path) -> None:
    data = record(tmp_path / "set", "video", episodes=(2,))
    with pytest.raises(LockedError):
        data.meta.update_chunk_settings(chunks_size=5)
    data.finalize()
    data.meta.update_chunk_settings(chunks_size=5, video_files_size_in_mb=7)
    settings = {"chunks_size": 5, "data_files_size_in_mb": 100, "video_files_size_in_mb": 7}
    assert (
        data.meta.get_chunk_settings() == settings == LeRobotDatasetMetadata("me/set", data.root).get_chunk_settings()
    )
    with pytest.raises(ArgumentError, match="at least 1"):
        data.meta.update_chunk_settings(data_files_size_in_mb=0)


def test_the_encoding_of_videos_is_noted_as_by_lerobot(tmp_path: Path) -> None:
    """As lerobot 0.6.1 notes it in `depth_video`; also by a dataset that is converted."""
    record(tmp_path / "set", "video", episodes=(2,)).finalize()
    penstock.convert(penstock.open(tmp_path / "set"), tmp_path / "b", format="lerobot", options={"cameras": "video"})
    theirs = LeRobotDatasetMetadata("me/set", GOLDEN / "depth_video").features[TOP]["info"]
    for root in (tmp_path / "set", tmp_path / "b"):
        mine = LeRobotDatasetMetadata("me/set", root).features[TOP]["info"]
        sizes = {"video.height": 64, "video.width": 96}
        other = {} if root.name == "set" else {"video.preset": None, "video.extra_options": {}}
        assert mine == theirs | sizes | other


def test_encoders_are_configured_as_in_lerobot(tmp_path: Path) -> None:
    rgb = RGBEncoderConfig(vcodec="h264", g=5, crf=12, preset="ultrafast", extra_options={"profile": "high"})
    assert rgb.get_codec_options(3) == {"g": 5, "crf": 12, "preset": "ultrafast", "profile": "high", "threads": 3}
    assert RGBEncoderConfig().get_codec_options(as_strings=True) == {
        **{"g": "2", "crf": "30", "preset": "12", "svtav1-params": "fast-decode=0"}
    }
    data = LeRobotDataset.create("me/set", 10, features("video"), root=tmp_path / "set", rgb_encoder=rgb)
    for frame in frames_of(2):
        data.add_frame(frame)
    data.save_episode()
    data.finalize()
    info = data.meta.features[TOP]["info"]
    assert (info["video.codec"], info["video.preset"], info["video.extra_options"]) == (
        "h264",
        "ultrafast",
        {"profile": "high"},
    )
    assert RGBEncoderConfig.from_video_info(info) == rgb
    file = data.root / data.meta.get_video_file_path(0, TOP)
    assert packet_index(file).keys.tolist() == [0, 5, 10]
    with pytest.raises(ArgumentError, match="vcodec among"):
        RGBEncoderConfig(vcodec="mpeg2")
    with pytest.raises(ArgumentError, match="without loss"):
        DepthEncoderConfig(vcodec="libsvtav1")


def test_info_is_an_object(tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "v3_image", tmp_path / "set"))
    meta = LeRobotDatasetMetadata("me/set", root)
    assert (meta.info.fps, meta.info.get("total_frames"), meta.info.get("odd", 3), "splits" in meta.info) == (
        10,
        109,
        3,
        True,
    )
    with pytest.warns(DeprecationWarning, match=r"use info\.fps"):
        assert meta.info["fps"] == 10
    with pytest.warns(DeprecationWarning, match="odd"), pytest.raises(KeyError, match="no entry 'odd'"):
        meta.info["odd"] = 1
    stored = json.loads((root / "meta/info.json").read_text())
    assert meta.info.to_dict() == {name: each for name, each in stored.items() if name != "tools"}
    assert [tool["function"]["name"] for tool in meta.tools] == ["say"]
    meta.tools = [{"type": "function", "function": {"name": "look"}}]
    assert LeRobotDatasetMetadata("me/set", root).tools == meta.tools == penstock.open(root).metadata["tools"]
    meta.tools = None
    assert json.loads((root / "meta/info.json").read_text()) == stored


def test_frames_of_video_as_bytes() -> None:
    raw, whole = opened("v3_video", return_uint8=True)[30], opened("v3_video")[30]
    assert raw[TOP].dtype == torch.uint8
    assert torch.equal(raw[TOP].float() / 255, whole[TOP])
    assert opened("v3_image", return_uint8=True)[0][TOP].dtype == torch.float32  # pictures are no video


@pytest.mark.filterwarnings("ignore::penstock.errors.DamageWarning")  # rows of the episode without metadata
def test_episodes_have_the_numbers_of_their_index(tmp_path: Path) -> None:
    """A dataset without its episode 1: metadata, files and statistics are found by index, and recording goes on."""
    root = Path(shutil.copytree(GOLDEN / "v3_video", tmp_path / "set"))
    file = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.filter(pc.field("episode_index") != 1), file)
    data, whole = LeRobotDataset("me/set", root=root), opened("v3_video")
    assert data.meta.episodes["episode_index"] == [0, 2, 3]
    assert data.meta.episodes[2] == whole.meta.episodes[2]
    assert data.meta.get_video_file_path(3, TOP) == whole.meta.get_video_file_path(3, TOP)
    with pytest.raises(IndexError, match=r"no episode 1; there are 3: \[0, 2, 3\]"):
        data.meta.episodes[1]
    with pytest.warns(UserWarning, match=r"left out \[1\]: the dataset has the episodes 3: \[0, 2, 3\]"):
        chosen = LeRobotDataset("me/set", root=root, episodes=[1, 2, 3], delta_timestamps={TOP: [-0.1, 0.0]})
    assert torch.equal(chosen[0][TOP][1], whole[65][TOP])
    assert (len(chosen), chosen[0]["index"].item()) == (44, 65)
    data = LeRobotDataset.resume("me/set", root=root)
    data.add_frame(frames_of(0)[0])
    data.save_episode()
    data.finalize()
    assert data.meta.episodes["episode_index"] == [0, 2, 3, 4]


def test_annotations_are_lists_of_messages(tmp_path: Path) -> None:
    expected = json.loads((GOLDEN / "language_expected.json").read_text())
    data = opened("language")
    for i, wanted in enumerate(expected):
        found = {name: each.tolist() if isinstance(each, torch.Tensor) else each for name, each in data[i].items()}
        assert list(found.items()) == list(wanted.items())
    assert data.meta.has_language_columns
    assert data.get_raw_item(4)["language_events"] == expected[4]["language_events"]
    described = {name: dict(each) for name, each in data.features.items() if name not in INDICES}
    copy = LeRobotDataset.create("me/set", 10, described, root=tmp_path / "set")
    for i, row in enumerate(expected):
        frame = {name: data[i][name].numpy() for name in ("observation.state", "action")} | {"task": row["task"]}
        copy.add_frame(frame | {name: row[name] for name in ("language_persistent", "language_events") if row[name]})
        if i in (2, 6):
            copy.save_episode()
    copy.finalize()
    for i, wanted in enumerate(expected):
        assert {name: copy[i][name] for name in wanted if "language" in name} == {
            name: each for name, each in wanted.items() if "language" in name
        }
    with pytest.raises(ArgumentError, match="got text"):
        opened("language", delta_timestamps={"language_events": [0.0]})


def test_subtasks_are_texts(tmp_path: Path) -> None:
    described = {"dtype": "int64", "shape": (1,), "names": None}
    data = LeRobotDataset.create("me/set", 10, {"action": described, "subtask_index": described}, root=tmp_path / "set")
    for number in (1, 0, 1):
        data.add_frame({"action": np.array([5]), "subtask_index": np.array([number]), "task": "cook"})
    data.save_episode()
    data.finalize()
    assert (data.meta.subtasks, "subtask" in data[0]) == (None, False)
    table = pa.table({"subtask_index": [0, 1], "subtask": ["cut", "stir"]})
    pq.write_table(table, tmp_path / "set/meta/subtasks.parquet")
    data = LeRobotDataset("me/set", root=tmp_path / "set")
    assert [item["subtask"] for item in data.__getitems__([0, 1, 2])] == ["stir", "cut", "stir"]
    assert list(data[0])[-2:] == ["task", "subtask"]


def test_several_datasets_follow_each_other(tmp_path: Path) -> None:
    for name in ("v3_image", "v21_image"):
        shutil.copytree(GOLDEN / name, tmp_path / "me" / name)
    ids = ["me/v3_image", "me/v21_image"]
    with pytest.warns(UserWarning, match=r"left out: \['observation\.effort'\]"):
        data = MultiLeRobotDataset(ids, tmp_path, episodes={ids[0]: [1], ids[1]: [3, 0]}, delta_timestamps=TIMES)
    parts = [
        opened("v3_image", episodes=[1], delta_timestamps=TIMES),
        opened("v21_image", episodes=[3, 0], delta_timestamps=TIMES),
    ]
    assert (len(data), data.num_frames, data.num_episodes, data.fps) == (96, 96, 3, 10)
    for i, owner, inside in ((0, 0, 0), (39, 0, 39), (40, 1, 0), (95, 1, 55)):
        wanted = {**parts[owner][inside], "dataset_index": torch.tensor(owner)}
        wanted.pop("observation.effort", None)
        same(data[i], wanted)
    batch = next(iter(DataLoader(data, batch_size=96)))
    assert batch["dataset_index"].tolist() == [0] * 40 + [1] * 56
    assert data.camera_keys == [TOP, WRIST]
    assert data.repo_id_to_index == {ids[0]: 0, ids[1]: 1}
    assert data.stats["action"]["count"].tolist() == [218]
    with pytest.raises(IndexError, match="0:96"):
        data[96]


def test_a_dataset_behind_a_url_is_read_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    record(tmp_path / "set").finalize()
    files = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in (tmp_path / "set").rglob("*") if p.is_file()}
    with serving(files) as site:
        remote = LeRobotDataset("me/set", root=f"{site.url}/set")
        local = LeRobotDataset("me/set", root=tmp_path / "set")
        assert (len(remote), remote.meta.tasks) == (len(local), local.meta.tasks)
        same(remote[3], local[3])
        resume = lambda: LeRobotDataset.resume("me/set", root=f"{site.url}/set")  # noqa: E731
        for write in (resume, lambda: remote.meta.update_chunk_settings(3)):
            with pytest.raises(DataError, match="a dataset on this machine to write to, got one behind a URL"):
                write()
        with pytest.raises(DataError, match="a path on this machine to write to"):
            LeRobotDataset.create("me/new", fps=10, features=features(), root=f"{site.url}/new")
