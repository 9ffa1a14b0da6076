"""Datasets that LeRobot wrote, read equal to LeRobot's own reading."""

# pyright: basic

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import av
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers import images
from penstock.core.columns import flatten
from penstock.core.ragged import Ragged
from penstock.errors import ArgumentError, MissingExtraError
from penstock.formats.base.format import recognise
from penstock.formats.lerobot import FORMAT
from penstock.formats.lerobot.info import path_of

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
NAMES = ("v3_image", "v3_video", "v21_image", "v21_video", "v20_image")
ITEMS = (0, 1, 24, 25, 26, 64, 65, 77, 78, 108)
EXPECTED = np.load(GOLDEN / "v3_image_expected.npz")


def item(index: int) -> dict[str, Any]:
    """An item as LeRobot returns it, without windows: the last image of the window is the item's own."""
    found = {name.split("/", 1)[1]: EXPECTED[name] for name in EXPECTED if name.startswith(f"{index}/")}
    found = {name: value for name, value in found.items() if not name.endswith("_is_pad")}
    found["observation.images.top"] = found["observation.images.top"][-1]
    found["action"] = found["action"][0]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_dataset_opens_and_checks_clean(name: str) -> None:
    assert recognise(GOLDEN / name)[0] is FORMAT
    data = penstock.open(GOLDEN / name)
    assert data.source.offsets.tolist() == [0, 25, 65, 78, 109]
    assert list(FORMAT.check(GOLDEN / name)) == []
    assert data[1].columns["task"].strings() == ["place it in the box"] * 40
    assert data.source.episode_metadata([2]) == [{"episode_index": 2, "tasks": ["pick the cube"]}]
    assert (data.metadata["fps"], data.metadata["robot_type"]) == (10, "toyarm")


@pytest.mark.parametrize("index", ITEMS)
def test_items_equal_those_of_lerobot(index: int) -> None:
    found = flatten(penstock.open(GOLDEN / "v3_image").steps()[index])
    for name, value in item(index).items():
        array = np.asarray(found[path_of(name)])
        array = np.moveaxis(array, -1, 0) if ".images." in name else array
        np.testing.assert_array_equal(array.astype(value.dtype), value)  # LeRobot has float32 for float64


def test_version_2_equals_its_files() -> None:
    data = penstock.open(GOLDEN / "v21_image")
    for e in range(4):
        rows = pq.read_table(GOLDEN / f"v21_image/data/chunk-000/episode_00000{e}.parquet").to_pylist()
        for name in rows[0]:
            found = data[e].columns[path_of(name)]
            if ".images." in name:
                image = PIL.Image.open(io.BytesIO(rows[-1][name]["bytes"]))
                assert np.array_equal(found[-1], np.asarray(image))
            else:
                assert found.tolist() == [row[name] for row in rows]


def test_version_2_0_equals_version_2_1() -> None:
    old, new = penstock.open(GOLDEN / "v20_image"), penstock.open(GOLDEN / "v21_image")
    assert (old.metadata["codebase_version"], new.metadata["codebase_version"]) == ("v2.0", "v2.1")
    for one, other in zip(old, new, strict=True):
        assert list(one.columns) == list(other.columns)
        for name, column in one.columns.items():
            if isinstance(column, Ragged):
                assert column.strings() == other.columns[name].strings()
            else:
                np.testing.assert_array_equal(column, other.columns[name])
    actions = np.concatenate([episode.actions for episode in old])
    np.testing.assert_allclose(old.metadata["statistics"]["actions"]["mean"], actions.mean(0), rtol=1e-5)
    assert old.source.episode_statistics([0]) == [{}]  # the dataset has statistics of all frames alone


def test_images_stay_encoded_on_request() -> None:
    data = penstock.open(GOLDEN / "v3_image", decode="bytes", columns=["observations/images/top"])
    assert list(data.spec) == ["observations/images/top"]
    assert data[2].columns["observations/images/top"][3].tobytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("thread_bytes", [0, images.THREAD_BYTES])
def test_overlapping_windows_decode_each_image_once(thread_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.formats.lerobot import columns

    monkeypatch.setattr(images, "THREAD_BYTES", thread_bytes)
    monkeypatch.setattr(images, "cores", lambda: 3)
    decoded = []
    real = columns.decode_into
    monkeypatch.setattr(
        columns, "decode_into", lambda blob, *rest, **options: decoded.append(1) or real(blob, *rest, **options)
    )
    data = penstock.open(GOLDEN / "v3_image", columns=["observation.images.wrist"])
    batch = data.windows(5)[np.arange(20)]["observations"]["images"]["wrist"]
    assert len(decoded) == 24
    assert np.array_equal(batch[3, 2], data[0].columns["observations/images/wrist"][5])


def test_statistics_are_those_of_the_files() -> None:
    data = penstock.open(GOLDEN / "v3_image")
    stored = data.metadata["statistics"]["actions"]
    computed = penstock.statistics(data)["actions"]
    np.testing.assert_allclose(stored["mean"], computed.mean, rtol=1e-5)
    for name, each in (("v3_image", "q50"), ("v21_image", "mean")):
        figures = FORMAT.open(GOLDEN / name).episode_statistics([1, 0])
        assert (figures[0]["actions"]["count"], len(figures[1]["actions"][each])) == ([40], 6)


@pytest.mark.parametrize("name", ["v3_video", "v21_video"])
def test_frames_equal_those_of_pyav(name: str) -> None:
    data = penstock.open(GOLDEN / name)
    frames = np.load(GOLDEN / "video_frames.npz")
    keys = [key for key in frames if key.startswith(name) and key.endswith("/rgb")]
    assert len(keys) == (2 if name == "v3_video" else 8)
    for key in keys:
        camera = "top" if "images.top" in key else "wrist"
        first = 0 if name == "v3_video" else int(data.source.offsets[int(key.split("episode_")[1][:6])])
        rows = first + frames[key.replace("/rgb", "/frame")]
        found = data.steps()[rows]["observations"]["images"][camera]
        np.testing.assert_array_equal(found, frames[key])


def test_windows_of_video_in_any_order() -> None:
    data = penstock.open(GOLDEN / "v3_video", columns=["observation.images.wrist", "index"])
    whole = np.concatenate([episode.columns["observations/images/wrist"] for episode in data])
    windows = data.windows(3, pad="repeat").shuffle(seed=1)[:40]
    assert np.array_equal(windows["observations"]["images"]["wrist"], whole[windows["index"]])


def test_packets_of_video_are_kept_on_request() -> None:
    data = penstock.open(GOLDEN / "v21_video", decode="bytes", columns=["observation.images.top"])
    packets = data[2].columns["observations/images/top"]
    assert (len(packets), data.spec["observations/images/top"].kind) == (13, "ragged")
    assert (
        int(packets.offsets[-1])
        < (GOLDEN / "v21_video/videos/chunk-000/observation.images.top/episode_000002.mp4").stat().st_size
    )
    assert data.source.value_offsets("observations/images/top")[-1] > int(packets.offsets[-1])


def test_options_of_video() -> None:
    """Frames are scaled as PyAV scales them, and the option is part of what is pickled."""
    top = "observations/images/top"
    data = penstock.open(GOLDEN / "v21_video", size=(24, 40), frame_cache_bytes=1 << 20)
    assert data.spec[top].shape == (24, 40, 3)
    with av.open(str(GOLDEN / "v21_video/videos/chunk-000/observation.images.top/episode_000002.mp4")) as film:
        frames = [frame.to_ndarray(format="rgb24", height=24, width=40) for frame in film.decode(video=0)]
    for read in (data, pickle.loads(pickle.dumps(data))):
        for _ in range(2):  # the second time from the cache
            np.testing.assert_array_equal(read[2].columns[top], np.stack(frames))
    assert data.source.fingerprint != penstock.open(GOLDEN / "v21_video").source.fingerprint


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("v21_image", {"size": (8, 8)}),
        ("v21_video", {"size": (8, 8), "decode": "bytes"}),
        ("v21_video", {"size": (8, 8), "columns": ["actions"]}),
        ("v21_video", {"size": (0, 8)}),
        ("v21_video", {"device": "cuda"}),
        ("v21_video", {"decoder": "decord"}),
        ("v21_video", {"decoder": "torchcodec", "size": (8, 8)}),
    ],
)
def test_options_of_video_that_do_not_fit(name: str, options: dict[str, Any]) -> None:
    with pytest.raises((ArgumentError, MissingExtraError), match=r"expected|torchcodec"):
        penstock.open(GOLDEN / name, **options)
