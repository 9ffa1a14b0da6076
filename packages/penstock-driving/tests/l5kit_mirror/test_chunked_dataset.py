"""`ChunkedDataset`: opened, printed, made, written to, cut to a scene, handed to processes."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import DataError, FormatError
from penstock_driving.formats.l5kit import L5KitSource
from penstock_driving.l5kit.data import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, ChunkedDataset
from penstock_driving.l5kit.data.table import framed

# As PrettyTable prints it.
TABLE = """
+------------+------------+------------+---------------+-----------------+----------------------+----------------------+----------------------+---------------------+
| Num Scenes | Num Frames | Num Agents | Num TR lights | Total Time (hr) | Avg Frames per Scene | Avg Agents per Frame | Avg Scene Time (sec) | Avg Frame frequency |
+------------+------------+------------+---------------+-----------------+----------------------+----------------------+----------------------+---------------------+
|     1      |    248     |   20802    |      3216     |       0.01      |        248.00        |        83.88         |        24.80         |        10.00        |
+------------+------------+------------+---------------+-----------------+----------------------+----------------------+----------------------+---------------------+
"""  # noqa: E501
CENTRED = """
+----------+-----+------+
|    a     |  bc | def  |
+----------+-----+------+
| 20802.00 | 123 | 1234 |
+----------+-----+------+
"""


def test_the_four_arrays(drive: ChunkedDataset, golden: Path) -> None:
    assert [len(rows) for rows in (drive.scenes, drive.frames, drive.agents, drive.tl_faces)] == [1, 248, 20802, 3216]
    with L5KitSource(golden / "single.zarr") as source:
        for name in ("scenes", "frames", "agents", "tl_faces"):
            assert getattr(drive, name)[:].tobytes() == getattr(source, name)[:].tobytes()
    one = np.stack([drive.agents[idx]["centroid"] for idx in range(50)])
    assert (one == drive.agents[slice(50)]["centroid"]).all()
    assert drive.scenes["frame_index_interval"][:, 1].tolist() == [248]


def test_arrays_are_empty_until_it_is_opened(tmp_path: Path) -> None:
    fresh = ChunkedDataset(str(tmp_path / "none.zarr"))
    assert (len(fresh.agents), fresh.agents.dtype, fresh.scenes.dtype) == (0, AGENT_DTYPE, SCENE_DTYPE)
    with pytest.raises(FileNotFoundError):
        fresh.open()


@pytest.mark.parametrize("cached", [True, False])
def test_the_cache_is_bounded_or_none(golden: Path, cached: bool) -> None:
    drive = ChunkedDataset(golden / "single.zarr").open(cached=cached, cache_size_bytes=300_000)
    assert len(drive.agents[::50]) == len(range(0, 20802, 50))
    assert drive.source is not None
    assert drive.source.cache.nbytes <= 300_000
    assert (drive.source.cache.nbytes > 0) == cached


def test_the_printed_table(drive: ChunkedDataset, tmp_path: Path) -> None:
    assert str(drive) == TABLE.strip()
    assert framed({"a": "20802.00", "bc": "123", "def": "1234"}) == CENTRED.strip()
    empty = ChunkedDataset(tmp_path / "a.zarr").initialize()
    assert str(empty).splitlines()[3].split()[1::2] == ["0", "0", "0", "0", "0.00", "0.00", "0.00", "0.00", "10"]


def test_a_scene_in_memory(drive: ChunkedDataset) -> None:
    one = drive.get_scene_dataset(0)
    assert isinstance(one, ChunkedDataset)
    assert isinstance(one.frames, np.ndarray)
    assert str(one) == str(drive)
    one.frames["ego_translation"] = 0
    assert drive.frames[5]["ego_translation"].any()
    with pytest.raises(ValueError, match=r"within 0:1, got 1"):
        drive.get_scene_dataset(1)


def test_what_is_assigned_and_appended_is_there(tmp_path: Path, rng: np.random.Generator) -> None:
    made = ChunkedDataset(str(tmp_path / "new.zarr")).initialize("w", 1, 25_000)
    stamps = rng.integers(1, 1 << 40, 25_010)
    rows = np.zeros(25_010, FRAME_DTYPE)
    rows["timestamp"] = stamps
    made.frames[9_990:20_020] = rows[9_990:20_020]  # across three chunks
    made.frames[:9_990] = rows[:9_990]
    made.frames[20_020:25_000] = rows[20_020:25_000]
    made.frames.append(rows[25_000:])
    made.frames[-1] = rows[3]
    made.scenes[0] = (([0, 25_010]), "host", 1, 2)
    rows[-1] = rows[3]
    assert (made.frames["timestamp"] == rows["timestamp"]).all()
    again = ChunkedDataset(str(tmp_path / "new.zarr")).open()
    assert again.frames[:].tobytes() == rows.tobytes()
    assert again.scenes[0]["host"] == "host"
    for wrong in (slice(0, 10, 2), 25_010):
        with pytest.raises(IndexError):
            made.frames[wrong] = rows[0]
    with pytest.raises(ValueError, match="broadcast"):
        made.frames[:3] = rows[:2]


def test_a_dataset_is_opened_for_writing(golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.zarr"
    shutil.copytree(golden / "single.zarr", path)
    writable = ChunkedDataset(path).open("r+")
    agents = writable.agents[100:200]
    agents["yaw"] += 1
    writable.agents[100:200] = agents
    before, after = ChunkedDataset(golden / "single.zarr").open(), ChunkedDataset(path).open()
    changed = np.flatnonzero(before.agents["yaw"] != after.agents["yaw"])
    assert changed.tolist() == list(range(100, 200))
    with pytest.raises(FormatError, match="current version"):
        ChunkedDataset(golden / "version1.zarr").open("r+")


def test_modes_and_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    ChunkedDataset(path).initialize(num_agents=3)
    with pytest.raises(FileExistsError):
        ChunkedDataset(path).initialize("x")
    assert len(ChunkedDataset(path).initialize("w").agents) == 0
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError):  # no dataset, so it is not removed
        ChunkedDataset(tmp_path / "mine").initialize()
    for call in (lambda: ChunkedDataset(path).initialize("a"), lambda: ChunkedDataset(path).open("w")):
        with pytest.raises(DataError, match="expected mode"):
            call()
    with pytest.raises(DataError, match="key"):
        ChunkedDataset(path, "group")


def test_processes_open_it_anew(drive: ChunkedDataset) -> None:
    raw = pickle.dumps(drive)
    assert len(raw) < 2000
    copy = pickle.loads(raw)
    assert copy.frames[7]["timestamp"] == drive.frames[7]["timestamp"]
    assert copy.fingerprint == drive.fingerprint is not None
    scene = pickle.loads(pickle.dumps(drive.get_scene_dataset(0)))
    assert scene.agents.tobytes() == drive.agents[:].tobytes()
    assert scene.fingerprint is None


def test_older_stores_are_upgraded(golden: Path) -> None:
    old = ChunkedDataset(golden / "version1.zarr").open()
    assert (old.agents.dtype, len(old.tl_faces)) == (AGENT_DTYPE, 0)
