"""Reports from robomimic, ALOHA, Diffusion Policy, Minari, h5py and Zarr about files of robots."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import numpy as np
import pytest

import penstock
from penstock.errors import DamageWarning, FormatError, SpecError
from penstock.formats.base.format import named
from tests.reports.reported import report

ZARR = Path(__file__).parents[1] / "golden/zarr"


def demonstrations(path: Path, lengths: dict[str, int], **more: Any) -> Path:
    """A file of robomimic; each demonstration has its number in all rows. `more` makes further datasets."""
    with h5py.File(path, "w") as file:
        for name, steps in lengths.items():
            number = int(name.split("_")[1])
            demo = file.create_group(f"data/{name}")
            demo.attrs["num_samples"] = steps
            demo["actions"] = np.full((steps, 2), number, "f4")
            demo["obs/eef"] = np.full((steps, 3), number, "f8")
            for key, make in more.items():
                demo[key.replace("__", "/")] = make(steps, number)
    return path


def found(path: Path, **options: Any) -> set[tuple[str, str]]:
    return {(finding.name, finding.where) for finding in penstock.check(path, **options).findings}


@report("SimarKareer/EgoMimic#7", "demonstrations that are in the train and in the valid mask are a finding")
def test_splits_that_overlap(tmp_path: Path) -> None:
    path = demonstrations(tmp_path / "a.hdf5", {f"demo_{i}": 3 for i in range(4)})
    with h5py.File(path, "a") as file:
        file["mask/train"] = np.array(["demo_0", "demo_1", "demo_2"], "S")
        file["mask/valid"] = np.array(["demo_2", "demo_3"], "S")
    (finding,) = [each for each in penstock.check(path).findings if each.name == "leak"]
    assert (finding.where, finding.message) == ("mask/train", "1 demonstrations are in mask/valid too: demo_2")
    with penstock.open(path, filter_key="valid") as data:
        assert [int(episode.actions[0, 0]) for episode in data] == [2, 3]


@report("isaac-sim/IsaacLab-Arena#781", "demonstrations are in the order of their numbers, not of their names")
def test_demo_10_comes_after_demo_2(tmp_path: Path) -> None:
    with penstock.open(demonstrations(tmp_path / "a.hdf5", {f"demo_{i}": 2 for i in (10, 2, 1, 0, 11)})) as data:
        assert [int(episode.actions[0, 0]) for episode in data] == [0, 1, 2, 10, 11]


@report("robocasa/robocasa#124", "states that are more than actions are left out by name, and the rest is read")
def test_more_states_than_actions(tmp_path: Path) -> None:
    lengths = {"demo_1": 17, "demo_2": 30}
    path = demonstrations(tmp_path / "a.hdf5", lengths, states=lambda steps, number: np.zeros((steps + 50, 5)))
    with pytest.warns(DamageWarning, match="states .expected a row for each of 17 steps, got 67"):
        data = penstock.open(path)
    assert [len(episode) for episode in data] == [17, 30]
    assert ("other-length", "states") in found(path)


@report("LightwheelAI/leisaac#142", "actions and observed actions of another width are two columns")
def test_actions_among_the_observations(tmp_path: Path) -> None:
    path = demonstrations(tmp_path / "a.hdf5", {"demo_0": 4}, obs__actions=lambda steps, number: np.ones((steps, 8)))
    with penstock.open(path) as data:
        assert data[0].actions.shape == (4, 2)
        assert data[0].columns["observations/actions"].shape == (4, 8)


def aloha(path: Path, cameras: tuple[str, ...], value: int) -> Path:
    with h5py.File(path, "w") as file:
        file["action"] = np.full((4, 14), value, "f4")
        file["observations/qpos"] = np.full((4, 14), value, "f4")
        for camera in cameras:
            file[f"observations/images/{camera}"] = np.full((4, 6, 8, 3), value, "u1")
    return path


@report("MarkFzp/act-plus-plus#45", "hidden files next to episodes are no episodes")
def test_hidden_episodes(tmp_path: Path) -> None:
    for e in range(3):
        aloha(tmp_path / f"episode_{e}.hdf5", ("top",), e)
    (tmp_path / ".episode_0.hdf5").write_bytes(b"\0\5\26\7 of a file manager")
    with penstock.open(f"{tmp_path}/*.hdf5") as data:
        assert [int(episode.actions[0, 0]) for episode in data] == [0, 1, 2]


@report("MarkFzp/act-plus-plus#4", "a camera that some episodes lack is named, with the file")
def test_cameras_that_differ(tmp_path: Path) -> None:
    aloha(tmp_path / "episode_0.hdf5", ("top", "left_wrist"), 0)
    aloha(tmp_path / "episode_1.hdf5", ("top",), 1)
    with pytest.raises((SpecError, FormatError), match=r"episode_1(?s:.*)left_wrist"):
        penstock.open(f"{tmp_path}/episode_*.hdf5")


@report("h5py/h5py#1546", "a virtual dataset whose source moved is an error, not zeros")
@report("HDFGroup/hdf5#5088", "a source of a virtual dataset that is not there is an error, not fill values")
def test_a_virtual_dataset_without_its_source(tmp_path: Path) -> None:
    path = demonstrations(tmp_path / "a.hdf5", {"demo_0": 3})
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((3, 2), "f4")
        layout[...] = h5py.VirtualSource("moved.hdf5", "x", (3, 2))
        del file["data/demo_0/actions"]
        file.create_virtual_dataset("data/demo_0/actions", layout)
    with h5py.File(path) as file:
        theirs: Any = file["data/demo_0/actions"]
        assert not theirs[:].any()  # as others read it
    with pytest.raises(FormatError, match=r"a virtual dataset.* copy its values .*/data/demo_0/actions"):
        penstock.open(path)


@report("h5py/h5py#641", "booleans that PyTables wrote are read")
@report("astropy/astropy#6473", "a boolean column of PyTables is read, not refused")
def test_bit_fields(tmp_path: Path) -> None:
    path, dones = demonstrations(tmp_path / "a.hdf5", {"demo_0": 3}), np.array([0, 0, 1], "u1")
    with h5py.File(path, "a") as file:
        for name in ("dones", "success"):
            space, kind = h5py.h5s.create_simple((3,)), h5py.h5t.NATIVE_B8
            stored = h5py.h5d.create(file["data/demo_0"].id, name.encode(), kind, space)
            stored.write(h5py.h5s.ALL, h5py.h5s.ALL, dones, mtype=kind)
    with penstock.open(path) as data:
        assert data[0].terminations.tolist() == [False, False, True]
        np.testing.assert_array_equal(data[0].columns["success"], [0, 0, 1])


@report("zarr-developers/zarr-python#2792", "text of Zarr 2 with a fill value of 0 does not close a buffer")
@report("scverse/anndata-rs#15", "an array whose fill value does not fit its type is named, the others are read")
@report("zarr-developers/VirtualiZarr#1053", "text without a fill value is named, and the other arrays are read")
@pytest.mark.parametrize("fill", [0, "", None])
def test_text_in_a_buffer(tmp_path: Path, fill: Any) -> None:
    with ZipFile(ZARR / "pusht.zarr.zip") as archive:
        archive.extractall(tmp_path / "buffer")
    place = tmp_path / "buffer/data/language"
    place.mkdir()
    described = {"chunks": [5], "compressor": None, "dtype": "|O", "filters": [{"id": "vlen-utf8"}], "order": "C"}
    (place / ".zarray").write_text(json.dumps({**described, "fill_value": fill, "shape": [24], "zarr_format": 2}))
    with pytest.warns(DamageWarning, match="left out 1 array: data/language"):
        data = penstock.open(tmp_path / "buffer")
    with np.load(ZARR / "pusht.npz") as expected:
        np.testing.assert_array_equal(np.concatenate([e.actions for e in data]), expected["data__action"])


@report("zarr-developers/zarr-python#3005", "numbers of the other order of bytes are the same numbers")
def test_big_endian(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=">i4") * 1000
    for folder in ("data/action", "meta/episode_ends"):
        (tmp_path / folder).mkdir(parents=True)
    for place in ("", "data/", "meta/"):
        (tmp_path / place / ".zgroup").write_text('{"zarr_format": 2}')
    for name, array in {"data/action": rows, "meta/episode_ends": np.array([2, 6], ">i8")}.items():
        described = {"chunks": [len(array)], "compressor": None, "fill_value": 0, "filters": None, "order": "C"}
        described |= {"dtype": array.dtype.str, "shape": [len(array)], "zarr_format": 2}
        (tmp_path / name / ".zarray").write_text(json.dumps(described))
        (tmp_path / name / "0").write_bytes(array.tobytes())
    with penstock.open(tmp_path) as data:
        assert [episode.actions.tolist() for episode in data] == [[0, 1000], [2000, 3000, 4000, 5000]]


def minari(path: Path) -> Path:
    data = penstock.from_arrays(
        {"observations": np.arange(9.0)[:, None], "actions": np.arange(9.0)[:, None], "rewards": np.arange(9.0)},
        lengths=[4, 5],
    )
    penstock.convert(data, path, format="minari", fill_missing=True, certificate=False)
    return path


@report("Farama-Foundation/Minari#43", "an empty group after the last episode is not an episode")
def test_an_empty_group(tmp_path: Path) -> None:
    path = minari(tmp_path / "a-v0")
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file.create_group("episode_2")
    with pytest.warns(DamageWarning, match="left out 1 episode: episode_2"):
        data = penstock.open(path)
    assert len(data) == 2
    assert ("no-steps", "episode_2") in found(path)


@report("Farama-Foundation/Minari#129", "the steps of some episodes are their own, whatever the metadata state")
def test_total_steps(tmp_path: Path) -> None:
    path = minari(tmp_path / "a-v0")
    file = path / "data/metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "total_steps": 99}))
    with penstock.open(path) as data:
        assert (data.total_steps, data.filter("total_steps > 4").total_steps) == (9, 5)
    assert "totals" in {name for name, _ in found(path)}


@report("real-stanford/scalingup#13", "a buffer without episodes has none, and its check says so")
def test_an_empty_buffer(tmp_path: Path) -> None:
    spec = penstock.Spec({"actions": penstock.Field(np.dtype("f4"), (2,))})
    named("zarr").create(tmp_path / "buffer", spec).close()
    with penstock.open(tmp_path / "buffer") as data:
        assert (len(data), data.total_steps) == (0, 0)
    assert "no-episodes" in {name for name, _ in found(tmp_path / "buffer")}


@report("carla-simulator/imitation-learning#5", "an HDF5 file that is damaged is named, not passed over")
def test_a_damaged_file_among_others(tmp_path: Path) -> None:
    for e in range(3):
        aloha(tmp_path / f"episode_{e}.hdf5", ("top",), e)
    raw = (tmp_path / "episode_1.hdf5").read_bytes()
    (tmp_path / "episode_1.hdf5").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(FormatError, match="episode_1"):
        penstock.open(f"{tmp_path}/*.hdf5")
    shutil.copy(tmp_path / "episode_0.hdf5", tmp_path / "episode_1.hdf5")
    with penstock.open(f"{tmp_path}/*.hdf5") as data:
        assert len(data) == 3
