"""Depth maps of `LeRobotDataset`: items equal those of lerobot 0.6.1, and recording goes on without other depths."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.errors import DataError
from penstock_mirrors.lerobot import LeRobotDataset, StreamingLeRobotDataset

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "lerobot"
KINDS = ("depth_image_mm", "depth_image_m", "depth_video", "depth_video_3")
NAME, TOP = "observation.images.depth", "observation.images.top"


def depth(step: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Depth from 0.2 m on."""
    millimetres = np.arange(48 * 64).reshape(48, 64, 1) + 200 + step
    return (millimetres / 1000 if dtype == np.float32 else millimetres).astype(dtype)


def record(data: LeRobotDataset, dtype: Any) -> None:
    for step in range(3):
        values = {
            name: np.zeros(each["shape"], each["dtype"])
            for name, each in data.features.items()
            if each["dtype"] == "float32"
        }
        values.pop("timestamp")
        values |= {TOP: np.full((48, 64, 3), 9, np.uint8)} if TOP in data.features else {}
        data.add_frame({**values, NAME: depth(step, dtype), "task": "reach"})
    data.save_episode()


@pytest.mark.parametrize("kind", KINDS)
def test_items_equal_those_of_lerobot_and_transforms_leave_depth_alone(kind: str) -> None:
    expected = np.load(GOLDEN / f"{kind}.npz")["depth"]
    data = LeRobotDataset("me/set", root=GOLDEN / kind, image_transforms=lambda picture: picture * 0)
    for i in (0, 7, 17):
        item = data[i]
        assert (item[NAME].dtype, item[TOP].max()) == (torch.float32, 0)
        assert np.array_equal(item[NAME].numpy(), expected[i])
    stats = data.meta.stats
    assert stats is not None
    assert abs(float(stats[NAME]["max"].item()) - expected.max()) <= 1  # also millimetres
    windows = LeRobotDataset("me/set", root=GOLDEN / kind, delta_timestamps={NAME: [-0.1, 0.0]})
    assert np.array_equal(windows[7][NAME].numpy(), expected[6:8])
    if "image" in kind:
        stored = data.hf_dataset[7][NAME].numpy()
        assert np.array_equal(stored * np.float32(1000 if kind == "depth_image_m" else 1), expected[7])


@pytest.mark.parametrize("kind", KINDS)
def test_depth_and_its_statistics_in_metres(kind: str) -> None:
    """lerobot 0.6.1 returns the same but for the last bit before `shift` is taken off (`depth_metres.npz`)."""
    data = LeRobotDataset("me/set", root=GOLDEN / kind, depth_output_unit="m")
    wanted = np.load(GOLDEN / "depth_metres.npz")[kind]
    found = np.stack([data[i][NAME].numpy() for i in (0, 7, 17)])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    metres, millimetres = data.meta.stats, LeRobotDataset("me/set", root=GOLDEN / kind).meta.stats
    assert metres is not None
    assert millimetres is not None
    np.testing.assert_allclose(metres[NAME]["max"] * 1000, millimetres[NAME]["max"], rtol=1e-6)
    assert metres[NAME]["count"] == millimetres[NAME]["count"]
    assert data.depth_output_unit == "m"
    assert next(iter(StreamingLeRobotDataset("me/set", GOLDEN / kind, depth_output_unit="m")))[NAME].max() < 20


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_recording_goes_on_with_the_depth_of_the_dataset(kind: str, streaming: bool, tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / kind, tmp_path / "set"))
    data = LeRobotDataset.resume("me/set", root=root, streaming_encoding=streaming)
    right, wrong = (np.float32, np.uint16) if kind == "depth_image_m" else (np.uint16, np.float32)
    with pytest.raises(DataError, match=f"{NAME}': expected {np.dtype(right).name} .*, got {np.dtype(wrong).name}"):
        record(data, wrong)
    record(data, right)
    data.finalize()
    read = penstock.open(root)[3].columns["observations/images/depth"]
    assert read.dtype == right
    if "video" in kind:  # codes of 12 bits, as LeRobot stores them
        assert np.abs(read.astype(int) - np.stack([depth(step, right) for step in range(3)]).astype(int)).max() <= 1
    else:
        assert np.array_equal(read, np.stack([depth(step, right) for step in range(3)]))
    old = np.stack([data[i][NAME].numpy() for i in range(18)])
    assert np.array_equal(old, np.load(GOLDEN / f"{kind}.npz")["depth"])


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
@pytest.mark.parametrize("kind", ["image", "video"])
def test_the_unit_of_new_depth_is_that_of_the_first_frame(kind: str, dtype: Any, tmp_path: Path) -> None:
    camera = {"dtype": kind, "shape": (48, 64, 1), "names": ["height", "width", "channels"]}
    features = {
        NAME: {**camera, "info": {"is_depth_map": True}},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
    }
    data = LeRobotDataset.create("me/set", 10, features, root=tmp_path / "set")
    for _ in range(2):
        record(data, dtype)
    data.finalize()
    info = json.loads((tmp_path / "set/meta/info.json").read_text())["features"][NAME]["info"]
    assert info["depth_unit"] == ("m" if dtype == np.float32 else "mm")
    assert ("video.depth_max" in info) == (kind == "video")
    assert np.abs(data[5][NAME].numpy() - np.moveaxis(depth(2, np.uint16), -1, 0)).max() <= (
        1 if kind == "video" else 1e-3
    )
    assert penstock.check(tmp_path / "set", deep=True).sound
