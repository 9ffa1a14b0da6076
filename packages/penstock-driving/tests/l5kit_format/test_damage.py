"""Logs that are damaged: opening, reading and checking name the array and the row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FormatError, UnsafeDataError
from penstock_driving.formats.l5kit import AGENT_DTYPE, FORMAT, L5KitSource, L5KitWriter, Scene
from penstock_driving.formats.l5kit.dtypes import FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
from penstock_driving.formats.l5kit.source import offsets_in

Make = Callable[..., Scene]


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    return shutil.copytree(golden / "single.zarr", tmp_path / "log.zarr")


def replaced(folder: Path, name: str, **fields: Any) -> None:
    """Write an array of a `.npy` layout again, with other values."""
    path = folder / f"{name}.npy"
    rows = np.load(path)
    for field, (index, value) in fields.items():
        rows[field][index] = value
    np.save(path, rows)


@pytest.fixture
def flat(tmp_path: Path, make: Make) -> Path:
    with L5KitWriter.create(tmp_path / "flat", layout="npy") as writer:
        writer.write_scenes([make(1, (2, 3, 1)), make(2, (1, 2))])
    return tmp_path / "flat"


@pytest.mark.parametrize("name", ["scenes", "frames", "agents"])
def test_an_array_that_is_not_there(folder: Path, name: str) -> None:
    (folder / name / ".zarray").unlink()
    assert FORMAT.recognises(folder)
    with pytest.raises(FormatError, match=rf"expected an array '{name}'.* at {name}/\.zarray in"):
        L5KitSource(folder)
    (finding,) = FORMAT.check(folder)
    assert (finding.level, name in finding.message) == ("error", True)


def test_faces_may_be_missing_but_not_what_frames_say_of_them(folder: Path) -> None:
    shutil.rmtree(folder / "traffic_light_faces")
    with L5KitSource(folder) as source:
        assert source.agents[5]["track_id"] > 0
        with pytest.raises(
            FormatError, match=r"within 0:0, got 0:24 - at frames\.traffic_light_faces_index_interval\[0\]"
        ):
            source.episode(0)


def test_a_chunk_that_is_not_there(folder: Path) -> None:
    (folder / "agents" / "1").unlink()
    with L5KitSource(folder) as source:
        assert len(source.agents[:20_000]) == 20_000
        with pytest.raises(FormatError, match=r"chunk 1, of rows 20000:20802.*at agents/1 in"):
            source.episode(0)
    with L5KitSource(folder, missing="fill") as source:
        assert not source.agents[20_000:]["track_id"].any()
    (finding,) = FORMAT.check(folder)
    assert (finding.level, finding.where) == ("error", "agents/1")
    (folder / "scenes" / "0").unlink()
    with pytest.raises(FormatError, match="scenes/0"):
        L5KitSource(folder)


def test_chunks_that_are_foreign_or_cut(folder: Path) -> None:
    data = (folder / "agents" / "0").read_bytes()
    (folder / "agents" / "0").write_bytes(data[: len(data) // 2])
    (folder / "frames" / "0").write_bytes((folder / "scenes" / "0").read_bytes())
    with L5KitSource(folder) as source:
        with pytest.raises(FormatError, match="agents/0 in"):
            source.agents[3]
        with pytest.raises(FormatError, match="frames/0 in"):
            source.episode(0)
    assert [f.where for f in FORMAT.check(folder)] == ["frames/0", "agents/0"]


def test_rows_that_are_merely_claimed_end_soon(folder: Path) -> None:
    for name in ("agents", "scenes"):
        path = folder / name / ".zarray"
        path.write_text(json.dumps({**json.loads(path.read_text()), "shape": [1 << 50]}))
        assert 10 < len(list(FORMAT.check(folder))) < 30
    with pytest.raises(FormatError, match="scenes/1"):
        L5KitSource(folder)


@pytest.mark.parametrize(
    ("intervals", "message"),
    [
        ([[0, 5], [5, 11]], r"within 0:10, got 5:11 - at x\[1\] in log"),
        ([[-1, 5]], r"got -1:5 - at x\[0\]"),
        ([[0, 5], [5, 4]], r"got 5:4 - at x\[1\]"),
        ([[0, 5], [6, 7]], r"so 5 to begin with, got 6:7 - at x\[1\]"),
        ([[0, 5], [4, 7]], r"so 5 to begin with, got 4:7 - at x\[1\]"),
        ([[1, 5]], r"so 0 to begin with, got 1:5 - at x\[0\]"),
        ([[-(1 << 63), (1 << 63) - 1]], r"at x\[0\]"),
    ],
)
def test_intervals_that_do_not_fit(intervals: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        offsets_in(np.array(intervals, np.int64), 10, "x", "log")


@given(st.lists(st.tuples(st.integers(-3, 8), st.integers(-3, 8)), max_size=5))
@settings(max_examples=300)
def test_offsets_stay_within_the_rows(intervals: list[tuple[int, int]]) -> None:
    table = np.array(intervals, np.int64).reshape(-1, 2)
    try:
        offsets = offsets_in(table, 6, "x")
    except FormatError:
        return
    assert (offsets[0], offsets[-1] <= 6, np.all(np.diff(offsets) >= 0)) == (0, True, True)
    for i, (a, b) in enumerate(intervals):
        assert b - a == offsets[i + 1] - offsets[i]
        assert a == b or a == offsets[i]


def test_scenes_and_frames_that_leave_their_arrays(flat: Path) -> None:
    for field, value in (([0, 9], "0:9"), ([0, 2], "3:5"), ([2, 1], "2:1")):
        shutil.copy(flat / "scenes.npy", flat.parent / "kept")
        replaced(flat, "scenes", frame_index_interval=(0, field))
        with pytest.raises(FormatError, match=rf"{value} - at scenes\.frame_index_interval\["):
            L5KitSource(flat)
        assert [f.level for f in FORMAT.check(flat)] == ["error"]
        shutil.copy(flat.parent / "kept", flat / "scenes.npy")
    replaced(flat, "frames", agent_index_interval=(3, [6, 60]))
    with L5KitSource(flat) as source, pytest.raises(FormatError, match=r"frames\.agent_index_interval\[3\]"):
        source.read_ragged("agents/yaw", source_span(source))
    assert [f.where.split(" ")[0] for f in FORMAT.check(flat)] == ["frames.agent_index_interval[3]"]


def source_span(source: L5KitSource) -> Any:
    from penstock.core.selection import Selection

    zero = np.zeros(1, np.int64)
    return Selection(zero, zero, zero + source.steps, zero, (1, source.steps))


@pytest.mark.parametrize(
    ("name", "fields", "where", "message"),
    [
        ("frames", {"ego_rotation": (4, 2.0)}, "frames[4]", "no rotation"),
        ("frames", {"ego_translation": (2, np.nan)}, "frames[2]", "finite"),
        ("agents", {"track_id": (slice(2, 4), 9)}, "frames[1]", "track 9 is there twice"),
        ("agents", {"centroid": (7, np.inf)}, "agents[7]", "not finite"),
        ("scenes", {"end_time": (1, -5)}, "scenes.end_time[1]", "before they start"),
    ],
)
def test_what_check_finds(flat: Path, name: str, fields: Any, where: str, message: str) -> None:
    assert list(FORMAT.check(flat)) == []
    replaced(flat, name, **fields)
    (finding,) = FORMAT.check(flat)
    assert finding.level == "warning"
    assert finding.where.startswith(where + " in ")
    assert message in finding.message


def test_rows_that_nothing_names_are_found(flat: Path, make: Make) -> None:
    for name in ("frames", "agents"):
        rows = np.load(flat / f"{name}.npy")
        np.save(flat / f"{name}.npy", np.concatenate([rows, rows[-1:]]))
    frames = np.load(flat / "frames.npy")
    frames[-1]["agent_index_interval"] = frames[-1]["traffic_light_faces_index_interval"] = 0
    np.save(flat / "frames.npy", frames)
    assert [f.message for f in FORMAT.check(flat)] == ["1 agents are in no frame"]
    with FORMAT.open(flat) as source:
        (entry,) = source.account.left_out
    assert (entry.reason, entry.where, entry.count) == ("unused-rows", "frames", 1)
    (flat / "attributes.json").write_text(json.dumps({"labels": ["car"]}))
    assert len(list(FORMAT.check(flat))) == 2


def test_npy_files_that_lie(flat: Path) -> None:
    path = flat / "agents.npy"
    good = path.read_bytes()
    for bad in (b"", good[:5], good[:50], good[:-1], good.replace(b"(9,)", b"(-9,)"), b"\x93NUMPY\7\0" + good[8:]):
        path.write_bytes(bad)
        with pytest.raises(FormatError, match=r"agents\.npy"):
            L5KitSource(flat)
    for wrong in (np.zeros((2, 2), AGENT_DTYPE), np.zeros(3), np.asfortranarray(np.zeros((2, 3)))):
        np.save(path, wrong)
        with pytest.raises(FormatError, match="agents"):
            L5KitSource(flat)
    np.save(path, np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(FormatError, match=r"agents\.npy"):
        L5KitSource(flat)
    path.unlink()
    with pytest.raises(FormatError, match="found none"):
        L5KitSource(flat)


def test_what_is_none_is_not_recognised(tmp_path: Path, golden: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 no archive")
    (tmp_path / "text").write_text("scenes")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".zgroup").write_text('{"zarr_format": 2}')
    for path in (*tmp_path.iterdir(), tmp_path / "nothing"):
        assert not FORMAT.recognises(path)
    assert FORMAT.recognises(golden / "single.zarr")


def test_objects_are_never_made(folder: Path) -> None:
    path = folder / "agents" / ".zarray"
    told = json.loads(path.read_text())
    told["dtype"][0][1] = "|O"
    path.write_text(json.dumps(told))
    with pytest.raises(UnsafeDataError, match=r"agents/\.zarray"):
        L5KitSource(folder)


def test_an_agent_that_is_too_fast_is_named(tmp_path: Path) -> None:
    for speed, names in ((69.0, []), (71.0, ["impossible-speed"])):
        frames = np.zeros(2, FRAME_DTYPE)
        frames["agent_index_interval"] = [[0, 1], [1, 2]]
        frames["timestamp"] = [0, 100_000_000]
        frames["ego_rotation"] = np.eye(3)
        agents = np.zeros(2, AGENT_DTYPE)
        agents["velocity"][1, 1] = -speed
        path = tmp_path / str(speed)
        with L5KitWriter.create(path, compressor=None) as writer:
            writer.write_scene(np.zeros((), SCENE_DTYPE), frames, agents, np.zeros(0, TL_FACE_DTYPE))
        assert [finding.name for finding in FORMAT.check(path)] == names
        assert [finding.name for finding in FORMAT.check(path, deep=False)] == []
