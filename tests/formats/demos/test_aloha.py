"""ALOHA's HDF5, written by h5py and OpenCV as `record_episodes.py` does, and read as ACT's `EpisodicDataset` does."""

# pyright: basic

from __future__ import annotations

import io
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.errors import FormatError
from penstock.formats.base.format import recognise
from penstock.formats.demos import FORMAT
from penstock.formats.demos.aloha import AlohaKind

CAMERAS = ("cam_high", "cam_left_wrist")
PLAIN = MappingProxyType({})
GZIP = MappingProxyType({"compression": "gzip", "chunks": True})


def encoded(frames: np.ndarray) -> list[np.ndarray]:
    return [cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, 50])[1].reshape(-1) for frame in frames]


def write(path: Path, steps: int, *, compress: bool, options: Any = PLAIN, seed: int = 0) -> Path:
    rng = np.random.default_rng([seed, steps])
    smooth = rng.integers(0, 256, (len(CAMERAS), steps, 5, 6, 3), dtype=np.uint8)
    with h5py.File(path, "w", rdcc_nbytes=1024**2) as root:
        root.attrs["sim"] = False
        root.attrs["compress"] = compress
        images = root.create_group("observations").create_group("images")
        rows = [np.stack([cv2.resize(frame, (48, 40)) for frame in camera]) for camera in smooth]
        if compress:
            blobs = [encoded(frames) for frames in rows]
            longest = max(len(blob) for camera in blobs for blob in camera)
            rows = [np.stack([np.pad(blob, (0, longest - len(blob))) for blob in camera]) for camera in blobs]
            root["compress_len"] = np.array([[len(blob) for blob in camera] for camera in blobs], "f4")
        for name, camera in zip(CAMERAS, rows, strict=True):
            images.create_dataset(name, data=camera, chunks=(1, *camera.shape[1:]))
        for name in ("qpos", "qvel", "effort"):
            root.create_dataset(f"observations/{name}", data=rng.normal(size=(steps, 14)).astype("f4"), **options)
        root.create_dataset("action", data=rng.normal(size=(steps, 14)).astype("f4"), **options)
        root.create_dataset("base_action", data=rng.normal(size=(steps, 2)).astype("f4"), **options)
    return path


def as_act_reads(path: Path, step: int) -> dict[str, np.ndarray]:
    with h5py.File(path) as root:
        row = {f"observations/{name}": root[f"/observations/{name}"][step] for name in ("qpos", "qvel", "effort")}
        for name in CAMERAS:
            stored = root[f"/observations/images/{name}"][step]
            row[f"observations/images/{name}"] = cv2.imdecode(stored, 1) if root.attrs["compress"] else stored
        return {**row, "actions": root["/action"][step], "base_action": root["/base_action"][step]}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("options", [PLAIN, GZIP], ids=["contiguous", "gzip"])
def test_each_step_is_what_act_reads(tmp_path: Path, compress: bool, options: Any) -> None:
    files = [
        write(tmp_path / f"episode_{k}.hdf5", n, compress=compress, options=options) for k, n in enumerate((7, 1, 4))
    ]
    with penstock.open(str(tmp_path / "episode_*.hdf5")) as data:
        assert len(data) == 3
        for number, file in enumerate(files):
            episode = data[number]
            for step in range(len(episode)):
                expected = as_act_reads(file, step)
                assert {*expected, "terminations", "truncations"} == set(episode.columns)
                for name, value in expected.items():
                    np.testing.assert_array_equal(episode.columns[name][step], value, strict=True)
            assert not episode.columns["terminations"].any()
            assert np.flatnonzero(episode.columns["truncations"]).tolist() == [len(episode) - 1]
            assert episode.metadata["file"] == file.name
            assert episode.metadata["sim"] is False
        windows = data.windows(3, pad="repeat").shuffle(seed=4)
        loaders = [windows.loader(batch_size=4, threads=threads) for threads in (0, 2)]
        for one, other in zip(*loaders, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])


def test_channels_of_jpeg_are_those_of_opencv_or_of_the_image(tmp_path: Path) -> None:
    path = write(tmp_path / "episode_0.hdf5", 5, compress=True)
    name = f"observations/images/{CAMERAS[0]}"
    with h5py.File(path) as root:
        blobs = [row.tobytes().rstrip(b"\0") for row in root[name]]
    expected = np.stack([np.asarray(Image.open(io.BytesIO(blob))) for blob in blobs])
    rgb, bgr = (FORMAT.open(path, jpeg_order=order).episode(0).columns[name] for order in ("rgb", "bgr"))
    np.testing.assert_array_equal(rgb, expected)
    np.testing.assert_array_equal(bgr, expected[..., ::-1])
    with FORMAT.open(path, jpeg_order="rgb") as source, FORMAT.open(path) as other:
        again = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(again.episode(0).columns[name], expected)
        assert again.fingerprint == source.fingerprint != other.fingerprint
    with pytest.raises(TypeError, match=r"jpeg_order in \('bgr', 'rgb'\), got 'grb'"):
        FORMAT.open(path, jpeg_order="grb")


def test_grey_images_have_three_channels_as_opencv_gives_them(tmp_path: Path) -> None:
    path = write(tmp_path / "episode_0.hdf5", 2, compress=True)
    with h5py.File(path, "a") as root:
        grey = cv2.imencode(".jpg", np.arange(64, dtype=np.uint8).reshape(8, 8))[1].reshape(-1)
        root["observations/images/grey"] = np.stack([grey, grey])
        found = cv2.imdecode(grey, 1)
    with FORMAT.open(path) as source:
        np.testing.assert_array_equal(source.episode(0).columns["observations/images/grey"], np.stack([found, found]))


def test_only_such_files_are_recognised(tmp_path: Path) -> None:
    path = write(tmp_path / "anything.bin", 2, compress=False)
    assert recognise(path)[0] is not None
    assert [kind.recognises(path) for kind in (AlohaKind(),)] == [True]
    assert penstock.open(path).source.metadata["kind"] == "aloha"
    for name, contents in {
        "d4rl": ("action", "observations"),
        "none": ("observations/qpos",),
        "robomimic": ("data/demo_0/actions",),
    }.items():
        with h5py.File(tmp_path / name, "w") as root:
            for each in contents:
                root[each] = np.zeros((3, 2))
        assert not AlohaKind().recognises(tmp_path / name)
    (tmp_path / "cut").write_bytes(path.read_bytes()[:100])
    assert not any(AlohaKind().recognises(tmp_path / name) for name in ("cut", "nothing", "."))


def test_what_has_no_row_for_each_step_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "episode_0.hdf5", 4, compress=True)
    with h5py.File(path, "a") as root:
        root["reward"] = np.arange(4.0).reshape(4, 1)
        root["observations/touched"] = np.zeros(3)
        root["instruction"] = "fold the shirt"
        root["gone"] = h5py.SoftLink("/nowhere")
        root.attrs["task"] = "fold"
    with FORMAT.open(path) as source:
        assert {entry.where: entry.reason for entry in source.account.left_out} == {
            "gone": "damaged-part",
            "instruction": "unsupported-dtype",
            "observations/touched": "other-length",
        }
        assert source.account.used == {"action": "actions", "reward": "rewards"}
        np.testing.assert_array_equal(source.episode(0).columns["rewards"], np.arange(4.0))
        assert source.episode_metadata([0])[0]["task"] == "fold"


def read_all(path: Path) -> None:
    with penstock.open(path) as data:
        for name in data[0].columns:
            np.asarray(data[0].columns[name])


def test_damage_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "episode_0.hdf5", 3, compress=True)
    name = f"observations/images/{CAMERAS[1]}"
    with h5py.File(path, "a") as root:
        root[name][1] = 0
    with FORMAT.open(path) as source, pytest.raises(FormatError, match=f"episode_0.hdf5, {name}"):
        source.episode(0)
    with h5py.File(path, "a") as root:
        root[name][0] = 7
    with pytest.raises(FormatError, match=f"expected JPEG images.*{name}"):
        FORMAT.open(path)
    with h5py.File(tmp_path / "empty.hdf5", "w") as root:
        root["action"], root["observations/qpos"] = np.zeros((0, 2)), np.zeros((0, 2))
    with pytest.raises(FormatError, match="at least one step, got none - at action"):
        penstock.open(tmp_path / "empty.hdf5")
    with h5py.File(tmp_path / "text.hdf5", "w") as root:
        root["action"], root["observations/qpos"] = ["left"], np.zeros((1, 2))
    with pytest.raises(FormatError, match="expected actions of numbers - at action"):
        penstock.open(tmp_path / "text.hdf5")
    raw = write(tmp_path / "episode_1.hdf5", 3, compress=True).read_bytes()
    for cut in range(1, len(raw), max(len(raw) // 40, 1)):
        (tmp_path / "cut.hdf5").write_bytes(raw[:cut])
        with pytest.raises((FormatError, penstock.UnknownFormatError)):
            read_all(tmp_path / "cut.hdf5")
