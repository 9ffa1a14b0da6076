"""Logs of the original: what is in them, older ones as rows of the current version, and every way to ask for rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.containers.zarr.group import ZarrGroup
from penstock.errors import DataError, FormatError
from penstock.formats.base.format import recognise
from penstock_driving.formats.l5kit import (
    AGENT_DTYPE,
    FORMAT,
    FRAME_DTYPE,
    LABELS,
    PERCEPTION_LABEL_TO_INDEX,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    TL_FACE_LABEL_TO_INDEX,
    L5KitSource,
)
from penstock_driving.formats.l5kit.tables import MemoryRows, current


def test_the_dtypes_have_the_sizes_of_the_format() -> None:
    assert [d.itemsize for d in (SCENE_DTYPE, FRAME_DTYPE, AGENT_DTYPE, TL_FACE_DTYPE)] == [96, 136, 116, 140]
    assert (len(LABELS), PERCEPTION_LABEL_TO_INDEX["PERCEPTION_LABEL_PEDESTRIAN"]) == (17, 14)
    assert TL_FACE_LABEL_TO_INDEX == {"ACTIVE": 0, "INACTIVE": 1, "UNKNOWN": 2}


def test_the_scene_is_what_the_original_says(golden: Path) -> None:
    with L5KitSource(golden / "single.zarr") as source, np.load(golden / "zu_concat3.npz") as expected:
        assert (len(source), source.steps, source.format_version, source.labels) == (1, 248, 2, LABELS)
        assert [len(rows) for rows in (source.agents, source.tl_faces)] == [20_802, 3_216]
        assert source.frames[:].tobytes() == expected["frames"][:248].tobytes()
        assert source.tl_faces[:].tobytes() == expected["tl_faces"][:3216].tobytes()
        assert source.agents[:64].tobytes() == expected["agents_head"].tobytes()
        assert source.scenes[:].tobytes() == expected["scenes"][:1].tobytes()
        labels = source.agents["label_probabilities"].argmax(1)
        counts = np.bincount(labels, minlength=17)
        found = {name: counts[PERCEPTION_LABEL_TO_INDEX[f"PERCEPTION_LABEL_{name}"]] for name in ("UNKNOWN", "CAR")}
        assert found == {"UNKNOWN": 14_666, "CAR": 5_749}
        assert counts[[12, 14]].tolist() == [78, 309]
        assert len(np.unique(source.agents["track_id"])) == 1653
        per_frame = np.diff(source.agent_offsets)
        assert (per_frame.min(), per_frame.max(), round(per_frame.mean(), 1)) == (52, 145, 83.9)


def test_the_scene_as_an_episode(golden: Path) -> None:
    data = penstock.open(golden / "single.zarr")
    assert recognise(golden / "single.zarr")[0].name == "l5kit"
    episode: Any = data[0]
    with L5KitSource(golden / "single.zarr") as source:
        agents, frames = source.agents[:], source.frames[:]
    assert episode.columns["ego_rotation"].tobytes() == np.ascontiguousarray(frames["ego_rotation"]).tobytes()
    for t in (0, 100, 247):
        a, b = frames["agent_index_interval"][t]
        centroids = episode.columns["agents/centroid"][t].reshape(-1, 2)
        assert centroids.tolist() == agents["centroid"][a:b].tolist()
        assert episode.columns["agents/track_id"][t].tolist() == agents["track_id"][a:b].tolist()
    assert episode.metadata["host"] == "host-a101"
    windows = data.windows(11, pad="zero").shuffle(seed=0)
    batch = windows[np.arange(40)]
    assert batch["ego_translation"].shape == (40, 11, 3)
    assert batch["agents/yaw"].shape == (40, 11)


@pytest.mark.parametrize("index", [slice(0, 900), slice(19_000, 20_802), slice(None), slice(None, None, 37), 5, -1])
def test_rows_are_those_of_the_whole_array(golden: Path, index: Any) -> None:
    with L5KitSource(golden / "single.zarr") as source:
        whole = source.agents[:]
        assert source.agents[index].tobytes() == whole[index].tobytes()
        assert source.agents[index]["centroid"].tolist() == whole[index]["centroid"].tolist()


def test_version_1_is_read_as_the_current_one(golden: Path) -> None:
    group = ZarrGroup(golden / "version1.zarr")
    stored = {name: group.array(name)[:] for name in ("scenes", "frames", "agents")}
    assert stored["agents"].dtype.itemsize == 104
    with L5KitSource(golden / "version1.zarr") as source:
        assert (source.format_version, len(source), source.steps) == (1, 1, 60)
        assert (source.frames.dtype, source.agents.dtype) == (FRAME_DTYPE, AGENT_DTYPE)
        assert (len(source.tl_faces), source.tl_faces.dtype) == (0, TL_FACE_DTYPE)
        for rows, name in ((source.frames, "frames"), (source.agents, "agents")):
            for field in stored[name].dtype.names or ():
                found, expected = rows[:][field], stored[name][field]
                assert found.tolist() == expected.tolist()
                assert rows[field].tolist() == expected.tolist()
                assert rows[7][field].tolist() == expected[7].tolist()
                assert rows[[50, 3]][field].tolist() == expected[[50, 3]].tolist()
        assert not source.frames["traffic_light_faces_index_interval"].any()
        assert source.face_offsets.tolist() == [0] * 61
        assert source.scene(0).agents.tobytes() == source.agents[:].tobytes()
        assert list(FORMAT.check(golden / "version1.zarr")) == []


def test_the_older_mask_is_an_array_like_others(golden: Path) -> None:
    with L5KitSource(golden / "version1.zarr") as source:
        group = source.group
    assert group is not None
    mask = group.array("agents_mask/0_12_0.5")
    assert (mask.dtype, len(mask)) == (np.dtype(bool), len(group.array("agents")))
    assert mask[:].any()
    assert not mask[:].all()


def test_names_of_before_the_release(tmp_path: Path) -> None:
    old = np.dtype([("gid", "<U16"), ("traffic_light_gid", "<U16"), ("traffic_light_face_status", "<f4", (3,))])
    rows = np.zeros(2, old)
    rows["gid"] = ["a", "b"]
    found = current(MemoryRows(rows), TL_FACE_DTYPE, "traffic_light_faces", None)
    assert found[:]["face_id"].tolist() == found["face_id"].tolist() == ["a", "b"]
    frames = np.dtype(
        [("tl_faces_index_interval" if "light" in n else n, FRAME_DTYPE[n]) for n in FRAME_DTYPE.names or ()]
    )
    rows = np.ones(3, frames)
    assert current(MemoryRows(rows), FRAME_DTYPE, "frames", None)[1:].tobytes() == rows[1:].tobytes()


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("yaw", "<f8", "yaw as"),
        ("yaw", "<i8", "yaw as"),
        ("track_id", "<f4", "track_id as"),
        ("extent", ("<f4", (2,)), "extent as"),
        ("extent", None, "'extent'"),
        ("speed", "<f4", "speed"),
    ],
)
def test_rows_that_are_of_no_version(name: str, dtype: Any, message: str) -> None:
    fields: dict[str, Any] = {n: AGENT_DTYPE[n] for n in AGENT_DTYPE.names or ()} | {name: dtype}
    wrong = np.dtype([(n, d) if not isinstance(d, tuple) else (n, *d) for n, d in fields.items() if d is not None])
    with pytest.raises(FormatError, match=rf"{message}.*at agents in logs"):
        current(MemoryRows(np.zeros(2, wrong)), AGENT_DTYPE, "agents", "logs")
    with pytest.raises(FormatError, match="one axis"):
        current(MemoryRows(np.zeros((2, 2), AGENT_DTYPE)), AGENT_DTYPE, "agents", "logs")


def test_negative_tracks_of_older_versions_are_refused(golden: Path) -> None:
    rows = ZarrGroup(golden / "version1.zarr").array("agents")[:10]
    rows["track_id"][3] = -1
    found = current(MemoryRows(rows), AGENT_DTYPE, "agents", "logs")
    assert len(found[:3]) == 3
    with pytest.raises(FormatError, match="track_id from 0 on, got -1 - at agents"):
        found[2:5]


def test_a_version_that_is_not_known(golden: Path, tmp_path: Path) -> None:
    path = shutil.copytree(golden / "single.zarr", tmp_path / "a.zarr")
    for version in (3, 0, "2", None, True):
        (path / ".zattrs").write_text(json.dumps({"format_version": version}))
        with pytest.raises(FormatError, match="format_version 1 or 2"):
            L5KitSource(path)
    (path / ".zattrs").unlink()
    with L5KitSource(path) as source:
        assert (source.format_version, source.labels, source.metadata) == (2, LABELS, {})


def test_other_options_are_refused(golden: Path) -> None:
    for wrong in ({"missing": "zero"}, {"cache_bytes": -1}):
        with pytest.raises(DataError):
            L5KitSource(golden / "single.zarr", **wrong)  # pyright: ignore[reportArgumentType]


def test_a_closed_source_says_so(golden: Path) -> None:
    source = L5KitSource(golden / "single.zarr")
    held = source.agents
    source.close()
    for read in (lambda: source.episode(0), lambda: source.value_offsets("agents/yaw")):
        with pytest.raises(FormatError, match="closed"):
            read()
    assert len(held) == 20_802


def test_info_and_check(golden: Path) -> None:
    done = CliRunner().invoke(app, ["info", str(golden / "single.zarr"), "--json"])
    assert done.exit_code == 0
    told = json.loads(done.output)
    assert "l5kit" in done.output
    assert "248" in done.output
    assert isinstance(told, dict)
    assert CliRunner().invoke(app, ["info", str(golden / "version1.zarr")]).exit_code == 0
    for name in ("single.zarr", "version1.zarr"):
        done = CliRunner().invoke(app, ["check", str(golden / name)])
        assert done.exit_code == 0, done.output


def test_memory_rows_are_rows_too() -> None:
    rows = np.zeros(20, FRAME_DTYPE)
    rows["timestamp"] = np.arange(20)
    held = MemoryRows(rows)
    assert held[3].tobytes() == rows[3].tobytes()
    assert held[[4, 2]].tobytes() == rows[[4, 2]].tobytes()
    assert held["timestamp"].tolist() == list(range(20))
    assert (held.nbytes, "MemoryRows([20]" in repr(held)) == (rows.nbytes, True)
