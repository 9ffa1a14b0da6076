"""Scenes of four data sets have the values that the readers of their own packages give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.damage import collected_damage
from penstock_driving.formats.l5kit import LABELS
from penstock_driving.formats.scenarios import ScenarioSource
from penstock_driving.geometry import rotation33_as_yaw

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "driving"
# pyquaternion, with which nuPlan and py123d make yaws, has the sign of x * y the other way round than rotations have.
TILTED = 1e-4


def opened(name: str) -> ScenarioSource:
    with collected_damage():
        source: Any = penstock.open(GOLDEN / name).source
    return source


def agents_of(source: ScenarioSource, e: int) -> dict[tuple[int, str], Any]:
    """The agents of a scene by frame and id."""
    scene, ids = source.scene(e), source.track_ids(e)
    first = int(scene.agents.shape[0] and scene.frames["agent_index_interval"][0, 0])
    rows = {}
    for t, (low, high) in enumerate((scene.frames["agent_index_interval"] - first).tolist()):
        rows |= {(t, ids[int(row["track_id"]) - 1]): row for row in scene.agents[low:high]}
    assert len(rows) == len(scene.agents)
    return rows


def label(row: Any) -> str:
    assert row["label_probabilities"].sum() == 1
    return LABELS[int(row["label_probabilities"].argmax())].rpartition("LABEL_")[2]


def faces_of(source: ScenarioSource, e: int, t: int) -> list[tuple[str, list[float]]]:
    faces = source.part(e, t, t + 1).columns
    status = np.asarray(faces["tl_faces/traffic_light_face_status"][0]).reshape(-1, 3)
    return list(zip(faces["tl_faces/face_id"][0].tolist(), status.tolist(), strict=True))


@pytest.mark.parametrize("e", [0, 1])
def test_argoverse_2(e: int) -> None:
    source = opened("argoverse2")
    with np.load(GOLDEN / f"argoverse2_{e}.npz") as theirs:
        is_ego = theirs["track_id"] == "AV"
        scene, entries = source.scene(e), source.episode_metadata([e])[0]
        np.testing.assert_allclose(scene.frames["timestamp"], theirs["timestamps_ns"], rtol=0, atol=256)  # float64
        assert entries["end_time"] - scene.frames["timestamp"][-1] == 0
        order = np.argsort(theirs["timestep"][is_ego])
        ego = theirs["values"][is_ego][order]
        assert scene.frames["ego_translation"].tolist() == np.pad(ego[:, :2], ((0, 0), (0, 1))).tolist()
        np.testing.assert_allclose(rotation33_as_yaw(scene.frames["ego_rotation"]), ego[:, 2], atol=1e-12)
        ours = agents_of(source, e)
        assert len(ours) == np.sum(~is_ego)
        rows = zip(*(theirs[name][~is_ego] for name in ("timestep", "track_id", "values", "object_type")), strict=True)
        kinds = {"vehicle": "CAR", "static": "DONTCARE", "background": "DONTCARE", "construction": "DONTCARE"}
        kinds["riderless_bicycle"] = "BICYCLE"
        for step, track, values, kind in rows:
            row = ours[int(step), str(track)]
            assert row["centroid"].tolist() == values[:2].tolist()
            assert row["yaw"] == np.float32(values[2])
            assert row["velocity"].tolist() == values[3:].astype(np.float32).tolist()
            assert label(row) == kinds.get(str(kind), str(kind).upper())
        scored = set(theirs["track_id"][theirs["category"] >= 2].tolist())
        assert (entries["focal_track"], entries["city"]) == (str(theirs["focal"]), str(theirs["city"]))
        assert set(entries["tracks_to_predict"]) == scored
        assert entries["current_frame"] == theirs["timestep"][theirs["observed"]].max() == 49


@pytest.mark.parametrize("e", [0, 1, 2])
def test_waymo(e: int) -> None:
    source = opened("waymo")
    with np.load(GOLDEN / f"waymo_{e}.npz") as theirs:
        values, ids = theirs["values"], theirs["ids"].astype(str)
        sdc = int(theirs["sdc"])
        ego = values[values[:, 0] == sdc]
        frame_of = {int(step): t for t, step in enumerate(ego[:, 1])}  # step 3 of scene 1 has no ego
        assert len(frame_of) == len(theirs["times"]) - (e == 1)
        scene = source.scene(e)
        times = np.round(theirs["times"] * 1e9).astype(int)[list(frame_of)]
        assert scene.frames["timestamp"].tolist() == times.tolist()
        assert scene.frames["ego_translation"].tolist() == ego[:, 2:5].tolist()
        np.testing.assert_allclose(rotation33_as_yaw(scene.frames["ego_rotation"]), ego[:, 8], atol=1e-12)
        ours = agents_of(source, e)
        others = [row for row in values[values[:, 0] != sdc] if int(row[1]) in frame_of]
        assert len(ours) == len(others)
        for row in others:
            mine = ours[frame_of[int(row[1])], ids[int(row[0])]]
            assert mine["centroid"].tolist() == row[2:4].tolist()
            assert [*mine["extent"], mine["yaw"], *mine["velocity"]] == row[5:].tolist()
            names = ("NOT_SET", "CAR", "PEDESTRIAN", "CYCLIST", "UNKNOWN")
            assert label(mine) == names[theirs["types"][int(row[0])]]
        entries = source.episode_metadata([e])[0]
        assert entries["tracks_to_predict"] == ids[theirs["predict"]].tolist()  # they are indexes, these are ids
        assert entries["objects_of_interest"] == ["100", "114"]
        assert (entries["ego_track"], entries["current_frame"]) == (ids[sdc], frame_of[10])
        for step, t in frame_of.items():
            lit = [row[1:] for row in theirs["lights"].tolist() if row[0] == step]
            colors = "-RYGRYGRY"
            status = [[0.0, 0.0, 1.0] if state == 0 else [1.0, 0.0, 0.0] for _, state in lit]
            names = [f"{lane}:{colors[state]}" for lane, state in lit]
            assert faces_of(source, e, t) == list(zip(names, status, strict=True))


def test_nuplan() -> None:
    source = opened("nuplan")
    theirs = sorted(json.loads((GOLDEN / "nuplan.json").read_bytes()).values(), key=lambda frame: frame["time_us"])
    assert [len(source.scene(e).frames) for e in range(len(source))] == [4, 4, 4]
    frames = source.frames[:]
    assert frames["timestamp"].tolist() == [frame["time_us"] * 1000 for frame in theirs]  # rows lie in another order
    center = np.array([frame["center"] for frame in theirs])
    np.testing.assert_allclose(frames["ego_translation"][:, :2], center[:, :2], atol=TILTED)
    np.testing.assert_allclose(rotation33_as_yaw(frames["ego_rotation"]), center[:, 2], atol=TILTED)
    names = {"vehicle": "CAR", "bicycle": "CYCLIST", "pedestrian": "PEDESTRIAN"}
    for number, frame in enumerate(theirs):
        e, t = divmod(number, 4)
        ours = {track: row for (step, track), row in agents_of(source, e).items() if step == t}
        assert ours.keys() == {each[0] for each in frame["objects"]}
        for track, kind, x, y, yaw, *sizes in frame["objects"]:
            row = ours[track]
            assert (*row["centroid"].tolist(), row["yaw"]) == (x, y, np.float32(yaw))
            assert row["extent"].tolist() == np.float32(sizes[:3]).tolist()
            if kind in names:  # the devkit has no velocity of things that stand
                assert row["velocity"].tolist() == np.float32(sizes[3:]).tolist()
            assert label(row) == names.get(kind, "DONTCARE")
        colors = {"RED": "R", "YELLOW": "Y", "GREEN": "G", "UNKNOWN": "-"}
        assert [face for face, _ in faces_of(source, e, t)] == [f"{lane}:{colors[s]}" for lane, s in frame["lights"]]


@pytest.mark.parametrize("e", [0, 1])
def test_py123d(e: int) -> None:
    source = opened("py123d")
    rows = json.loads((GOLDEN / "py123d.json").read_bytes())[e]
    theirs = [row for row in rows if row["center"] is not None]
    assert len(rows) - len(theirs) == (e == 0)
    frames = source.scene(e).frames
    assert frames["timestamp"].tolist() == [row["time_us"] * 1000 for row in theirs]
    center = np.array([row["center"] for row in theirs])
    np.testing.assert_allclose(frames["ego_translation"], center[:, :3], atol=1e-9)
    np.testing.assert_allclose(rotation33_as_yaw(frames["ego_rotation"]), center[:, 3], atol=TILTED)
    ours = agents_of(source, e)
    assert len(ours) == sum(len(row["boxes"]) for row in theirs)
    names = {"VEHICLE": "CAR", "BICYCLE": "CYCLIST", "PEDESTRIAN": "PEDESTRIAN"}
    colors = {"RED": "R", "YELLOW": "Y", "GREEN": "G", "OFF": "-", "UNKNOWN": "-"}
    status = {"OFF": [0.0, 1.0, 0.0], "UNKNOWN": [0.0, 0.0, 1.0]}
    for t, row in enumerate(theirs):
        for track, kind, x, y, yaw, *sizes in row["boxes"]:
            mine = ours[t, track]
            assert mine["centroid"].tolist() == [x, y]
            np.testing.assert_allclose(mine["yaw"], yaw, atol=TILTED)
            assert [*mine["extent"], *mine["velocity"]] == np.float32(sizes).tolist()
            assert label(mine) == names.get(kind, "DONTCARE")
        lit = [(f"{lane}:{colors[state]}", status.get(state, [1.0, 0.0, 0.0])) for lane, state in row["lights"]]
        assert faces_of(source, e, t) == lit
