"""`hf_dataset` and `StreamingLeRobotDataset` against what lerobot 0.4.4 returned, and names that need the Hub."""

# pyright: basic

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

import penstock
from penstock.errors import ArgumentError
from penstock.formats.lerobot.info import INDICES
from penstock.formats.lerobot.joining import video_info
from penstock_mirrors.lerobot import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    MultiLeRobotDataset,
    RGBEncoderConfig,
    StreamingLeRobotDataset,
)
from tests.formats.lerobot.test_lerobot_damage import changed

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "lerobot"
TABLE = np.load(GOLDEN / "v3_image_table.npz")
TOP = "observation.images.top"
TIMES = {"action": [0.0, 0.1], "observation.state": [-0.1, 0.0]}


@functools.cache
def dataset(name: str = "v3_image", **options: Any) -> LeRobotDataset:
    return LeRobotDataset("me/set", root=GOLDEN / name, **options)


def test_rows_of_the_table_equal_those_of_lerobot() -> None:
    table = dataset().hf_dataset
    assert (table.num_rows, table.num_columns) == table.shape == (109, 13)
    assert table.column_names == TABLE["names"].tolist() == list(table.features)
    rows = {0: table[0], 30: table[[3, 30]], 108: table[-1]}
    rows[30] = {name: values[1] for name, values in rows[30].items()}
    for i, row in rows.items():
        assert list(row) == table.column_names
        for name, value in row.items():
            wanted = torch.as_tensor(TABLE[f"{i}/{name}"])
            wanted = wanted.float() / 255 if ".images." in name else wanted
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), name
            assert torch.equal(value, wanted), name


def test_columns_selections_and_filters() -> None:
    table = dataset().hf_dataset
    third = table.filter(lambda row: row["episode_index"] == 2)  # as the scripts of LeRobot that replay an episode
    actions = third.select_columns("action")
    assert len(actions) == 13
    assert [list(row) for row in actions] == [["action"]] * 13
    assert torch.equal(torch.stack(actions["action"]), torch.stack(table["action"])[65:78])
    assert torch.equal(torch.stack(third[2:5]["action"]), torch.stack(table["action"])[67:70])
    bright = third.filter(lambda row: row[TOP].mean() > 2 and "action" in row and len(row) == 13)
    assert len(bright) == len(bright.select([])) == 0
    assert table.unique("episode_index") == [0, 1, 2, 3]
    assert "index" not in table.remove_columns(["index", TOP]).column_names
    assert dataset(episodes=(1, 3)).hf_dataset.unique("episode_index") == [1, 3]
    assert TOP not in dataset("v3_video").hf_dataset.column_names


def test_formats_of_the_table() -> None:
    table = dataset().hf_dataset.select_columns([TOP, "action", "next.done"])
    plain, arrays = table.with_format(None)[7], table.with_format("numpy")[7:9]
    assert isinstance(plain[TOP], PIL.Image.Image)
    assert plain["next.done"] is False
    assert np.float32(plain["action"]).tolist() == table[7]["action"].tolist() == arrays["action"][0].tolist()
    assert np.array_equal(np.asarray(plain[TOP]), arrays[TOP][0])


def test_wrong_names_rows_and_formats_of_a_table() -> None:
    table = dataset().hf_dataset
    with pytest.raises(KeyError, match="no column 'actions'"):
        table["actions"]
    with pytest.raises(IndexError, match="within 0:109"):
        table[109]
    with pytest.raises(ArgumentError, match=r"no columns \['a'\]"):
        table.select_columns(["a"])
    with pytest.raises(ArgumentError, match="got 'jax'"):
        table.with_format("jax")  # type: ignore[arg-type]


def streamed(**options: Any) -> StreamingLeRobotDataset:
    return StreamingLeRobotDataset("me/set", **{"root": GOLDEN / "v3_image", **options})


@pytest.mark.parametrize("buffer_size", [1, 7, 50, 1000])
def test_an_epoch_has_each_item_once_and_the_next_one_another_order(buffer_size: int) -> None:
    data = streamed(buffer_size=buffer_size, seed=buffer_size)
    orders = [[int(item["index"]) for item in data] for _ in range(2)]
    assert [sorted(order) for order in orders] == [list(range(109))] * 2
    assert orders[0] != orders[1]
    again = streamed(buffer_size=buffer_size, seed=buffer_size)
    assert [int(item["index"]) for item in again] == orders[0]
    fixed = streamed(buffer_size=buffer_size, shuffle=False)
    assert [int(item["index"]) for item in fixed] == [int(item["index"]) for item in fixed]


def test_streamed_items_equal_those_by_number() -> None:
    data = streamed(delta_timestamps=TIMES, rng=np.random.default_rng(3), image_transforms=lambda picture: 1 - picture)
    numbered = LeRobotDataset("me/set", root=GOLDEN / "v3_image", delta_timestamps=TIMES)
    assert (data.num_frames, data.num_episodes, data.fps) == (109, 4, 10)
    for item in data:
        wanted = numbered[int(item["index"])]
        assert list(item) == list(wanted)
        for name, value in wanted.items():
            same = 1 - value if ".images." in name else value
            assert item[name] == value if isinstance(value, str) else torch.equal(item[name], same), name


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of one core
def test_worker_processes_share_an_epoch() -> None:
    data = streamed(episodes=[0, 2], buffer_size=16)
    loader = DataLoader(data, batch_size=5, num_workers=2)
    numbers = sorted(int(number) for batch in loader for number in batch["index"])
    assert numbers == [*range(25), *range(65, 78)]


@pytest.fixture
def served() -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(GOLDEN))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v3_image/"
        server.shutdown()
        thread.join()


def test_a_dataset_behind_a_url_is_streamed(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    items = {int(item["index"]): item for item in streamed(root=served)}
    assert torch.equal(items[30]["action"], torch.as_tensor(TABLE["30/action"]))
    assert len(items) == 109
    capfd.readouterr()  # the server's log


def test_what_streaming_cannot_honour() -> None:
    with pytest.raises(ArgumentError, match="buffer_size of at least 1"):
        streamed(buffer_size=0)
    with pytest.raises(ArgumentError, match="revision"):
        streamed(revision="main")
    with pytest.raises(FileNotFoundError, match="hf download"):
        streamed(root="/nowhere")


def test_the_hub_is_left_to_its_own_tools() -> None:
    data = dataset(episodes=(1,))
    with pytest.raises(ArgumentError, match=r"hf upload me/set .*v3_image --repo-type dataset"):
        data.push_to_hub(tags=["robot"], author="me")
    with pytest.raises(FileNotFoundError, match="hf download me/other --repo-type dataset"):
        LeRobotDataset("me/other", root="/nowhere")
    assert data.meta.url_root == "hf://datasets/me/set"
    for wrong in ({"repo_type": "model"}, {"repo_type": "bucket", "root": GOLDEN / "v3_image"}, {"token": "hf_x"}):
        with pytest.raises(ArgumentError, match=r"expected (repo_type among|root=None|token=None)"):
            streamed(**wrong)


def test_files_of_chosen_episodes() -> None:
    assert dataset("v3_video").reader.get_episodes_file_paths()[0] == Path("data/chunk-000/file-000.parquet")
    assert [str(path) for path in dataset("v21_image", episodes=(1, 3)).reader.get_episodes_file_paths()] == [
        "data/chunk-000/episode_000001.parquet",
        "data/chunk-000/episode_000003.parquet",
    ]


def test_the_encoding_of_cameras_is_noted() -> None:
    meta = LeRobotDatasetMetadata("me/set", GOLDEN / "v3_video")
    noted = {name: meta.features[name].pop("info") | {"is_depth_map": False} for name in meta.video_keys}
    for info in noted.values():  # as LeRobot noted it before 0.6
        del info["video.is_depth_map"]
    meta.update_video_info(TOP)
    assert [name for name in meta.video_keys if "info" in meta.features[name]] == [TOP]
    meta.update_video_info()
    assert {name: meta.features[name]["info"] for name in meta.video_keys} == noted
    meta.features[TOP]["info"] |= {"video.is_depth_map": False, "video.fps": 3, "video.crf": 1}
    meta.update_video_info(TOP, RGBEncoderConfig(crf=7), preserve_keys=["video.fps"])
    assert meta.features[TOP]["info"] | noted[TOP] | {"video.fps": 3} == meta.features[TOP]["info"]
    assert (meta.features[TOP]["info"]["video.crf"], "video.is_depth_map" in meta.features[TOP]["info"]) == (7, False)
    with pytest.raises(ArgumentError, match="no camera 'action'"):
        meta.update_video_info("action")


def test_cameras_of_several_datasets() -> None:
    several = MultiLeRobotDataset(["v3_video"], GOLDEN)
    assert several.video
    assert TOP in several.video_frame_keys
    assert several.tolerance_s == pytest.approx(0.0999)


@pytest.mark.parametrize("streaming", [False, True])
def test_frames_are_encoded_while_they_are_added(tmp_path: Path, streaming: bool) -> None:
    """Both ways give the same files of frames, and dropped frames are in neither."""
    features = {
        TOP: {"dtype": "video", "shape": (48, 64, 3), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
    }
    data = LeRobotDataset.create(
        *("me/set", 10, features, tmp_path / "set"),
        rgb_encoder=RGBEncoderConfig(vcodec="h264", crf=23),
        streaming_encoding=streaming,
        encoder_threads=1,
    )
    pictures = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3), np.uint8).repeat(8, 1).repeat(8, 2)
    for start, kept in ((0, False), (0, True), (2, True)):
        for picture in pictures[start:]:
            data.add_frame({TOP: picture, "action": np.zeros(2, np.float32), "task": "go"})
        if kept:
            data.save_episode()
        else:
            data.clear_episode_buffer()
    data.finalize()
    assert data.num_frames == 6
    read = torch.stack([data[i][TOP] for i in range(6)]).movedim(1, -1)
    for i, number in enumerate([0, 1, 2, 3, 2, 3]):
        distances = [(read[i] - torch.as_tensor(each) / 255).abs().mean() for each in pictures]
        assert int(torch.stack(distances).argmin()) == number
    assert not list(tmp_path.glob(".*"))  # folders of encoders
    changed(tmp_path / "set/meta/info.json", lambda info: info.pop("penstock"))  # as LeRobot's own writer leaves it
    for encoder in (None, RGBEncoderConfig(vcodec="hevc")):  # as before, or in another way
        data = LeRobotDataset.resume("me/set", tmp_path / "set", rgb_encoder=encoder, streaming_encoding=streaming)
        data.add_frame({TOP: pictures[0], "action": np.zeros(2, np.float32), "task": "go"})
        data.save_episode()
        data.finalize()
    files = [tmp_path / "set" / data.meta.get_video_file_path(episode, TOP) for episode in range(4)]
    assert [video_info(file, 10)["video.codec"] for file in files] == ["h264", "h264", "h264", "hevc"]
    assert len(set(files)) == 3  # every recording begins with new files


def test_every_type_of_features_is_read_and_recorded_as_by_lerobot(tmp_path: Path) -> None:
    """Twelve dtypes, one to five axes, text, images by both orders of axes, and names as lists and dicts."""
    expected = np.load(GOLDEN / "v3_types_expected.npz")
    data = dataset("v3_types")
    described = {name: {**each, "info": None} for name, each in data.features.items() if name not in INDICES}
    copied = LeRobotDataset.create("me/set", data.fps, described, root=tmp_path / "set", use_videos=False)
    stored = penstock.open(GOLDEN / "v3_types").steps()[:].flat
    paths = {name: feature.path for name, feature in data.meta.stored.features.items()}
    for i, item in enumerate(data.__getitems__(range(5))):
        frame: dict[str, Any] = {"task": item["task"]}
        for name, value in item.items():
            wanted = expected[f"{i}/{name}"]
            if isinstance(value, str):
                assert value == str(wanted)
            else:
                found = (value * 255).round().to(torch.uint8) if ".images." in name else value
                assert (found.numpy().dtype, tuple(found.shape)) == (wanted.dtype, wanted.shape), name
                assert np.array_equal(found.numpy(), wanted), name
            if name in described:
                rows = stored[paths[name]]
                frame[name] = value if isinstance(value, str) else np.asarray(rows[i]).reshape(rows.shape[1:] or 1)
        copied.add_frame(frame)
        if i in (2, 4):
            copied.save_episode()
    copied.finalize()
    for item, other in zip(data.__getitems__(range(5)), copied.__getitems__(range(5)), strict=True):
        for name, value in item.items():
            if name != "task_index":  # LeRobot numbers the tasks of an episode in the order of a set
                assert value == other[name] if isinstance(value, str) else torch.equal(value, other[name]), name
    for name, figures in (data.meta.stats or {}).items():
        for figure, value in figures.items():
            if name == "task_index" or figure == "std":
                continue  # 0.4.4 squared small integers in their own dtype, which overflows
            bin = np.max((figures["max"].astype(float) - figures["min"]) / 2000) if figure.startswith("q") else 1e-9
            found = (copied.meta.stats or {})[name][figure]
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=bin, err_msg=f"{name} {figure}")
