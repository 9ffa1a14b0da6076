"""Samples of several agents: each as it is alone, the nearest first, from its own place or from the ego's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.sampling.conftest import checked, configured, looped, made_logs, seen
from penstock.errors import DataError
from penstock_driving.agent import AgentDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.geometry import transform_points
from penstock_driving.logs import NoSuchRowError
from penstock_driving.mask import Thresholds
from penstock_driving.multi_agent import MultiAgentDataset
from penstock_driving.rasterize import build_rasterizer

LOOSE = Thresholds(yaw_degrees=360, extent_ratio=9, distance=500)
OF_FRAMES = {"frame_index", "scene_index", "host_id", "timestamp"}


@pytest.fixture
def rasterizer():
    config = configured(2, 3)
    config["model_params"]["render_ego_history"] = True
    config["raster_params"]["map_type"] = "box_debug"
    return build_rasterizer(config)


@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
@settings(max_examples=12)
def test_each_is_as_it_is_alone_and_the_nearest_come_first(seed, most, ego) -> None:
    logs, config = made_logs(seed, (5, 1, 0, 6)), configured(2, 3, threshold=0)
    single = AgentDataset(config, logs, None, None, 1, 1, thresholds=LOOSE)
    data = MultiAgentDataset(config, logs, None, None, 1, 1, agents=most, ego=ego, thresholds=LOOSE)
    assert len(data) == len(logs.frames)
    sample, alone, car = data[:], single[:], EgoDataset(config, logs)[:]
    for f in range(len(logs.frames)):
        rows = single.get_frame_indices(f)
        centroid = logs.agents["centroid"][single.agents_indices[rows]]
        far = np.linalg.norm(centroid - logs.frames["ego_translation"][f, :2], axis=1)
        wanted = rows[np.argsort(far, kind="stable")][: most - ego]
        there = sample["agent_availabilities"][f]
        assert there.tolist() == [1] * (len(wanted) + ego) + [0] * (most - len(wanted) - ego)
        for name in set(sample.flat) - OF_FRAMES - {"agent_availabilities"}:
            values = sample[name][f]
            assert np.array_equal(values[ego : len(wanted) + ego], alone[name][wanted]), name
            assert not values[len(wanted) + ego :].any(), name
            if ego:
                assert np.array_equal(values[0], car[name][f].astype(values.dtype)), name
        for name in OF_FRAMES:
            assert np.array_equal(sample[name][f], car[name][f])


@given(st.integers(0, 10**6))
@settings(max_examples=8)
def test_all_as_the_ego_sees_them(seed) -> None:
    logs, config = made_logs(seed, (5, 1, 6)), configured(2, 3, threshold=0)
    data = MultiAgentDataset(config, logs, None, None, 0, 0, centric="scene", thresholds=LOOSE, velocities="masked")
    own = MultiAgentDataset(config, logs, None, None, 0, 0, thresholds=LOOSE, velocities="masked")
    sample, each = data[:], own[:]
    offsets = data.timeline.offsets
    for f, k in np.argwhere(sample["agent_availabilities"] > 0).tolist():
        scene, track = int(sample["scene_index"][f]), int(sample["track_id"][f, k])
        edges = (int(offsets[scene]), int(offsets[scene + 1]))
        told = {name: values[f, k : k + 1] for name, values in sample.flat.items() if values.ndim > 2}
        told |= {name: sample[name][f, k : k + 1] for name in ("history_availabilities", "target_availabilities")}
        for when, extents, steps in (
            ("history", "history_extents", range(0, -3, -1)),
            ("target", "future_extents", range(1, 4)),
        ):
            checked(told, 0, when, extents, looped(logs, f, track, steps, edges, seen(logs, f, None)))
    # Speeds do not depend on where they are seen from.
    for name in ("history_velocities", "target_velocities"):
        left, right = (np.linalg.norm(one[name], axis=-1) for one in (sample, each))
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-2)
    world = transform_points(sample["history_positions"][:, :, 0], sample["world_from_agent"])
    np.testing.assert_allclose((world - sample["centroid"]) * sample["agent_availabilities"][..., None], 0, atol=1e-4)


def test_rasters_of_agents_and_of_frames(source, rasterizer) -> None:
    config, frames = configured(2, 3), [0, 30, 31, 200]
    single = AgentDataset(config, source, rasterizer, image_type="uint8")
    car = EgoDataset(config, source, rasterizer, image_type="uint8")
    scene = MultiAgentDataset(config, source, rasterizer, agents=3, centric="scene", image_type="uint8")[frames]
    assert np.array_equal(scene["image"], car[frames]["image"])
    for name in ("raster_from_world", "agent_from_world", "world_to_image"):
        assert np.array_equal(scene[name], car[frames][name])
    for ego in (False, True):
        data = MultiAgentDataset(config, source, rasterizer, agents=3, ego=ego, image_type="uint8")
        sample = data[frames]
        assert sample["image"].shape == (4, 3, 6, 30, 40)
        tracks = {int(t): k for k, t in enumerate(single.dataset.agents["track_id"][single.rows]) if t >= 0}
        assert len(tracks) > 0
        for i, frame in enumerate(frames):
            rows = {int(single[int(r)]["track_id"]): int(r) for r in single.get_frame_indices(frame)}
            for k, there in enumerate(sample["agent_availabilities"][i].tolist()):
                track, image = int(sample["track_id"][i, k]), sample["image"][i, k]
                wanted = car[frame]["image"] if track == -1 else single[rows[track]]["image"] if there else 0 * image
                assert np.array_equal(image, wanted)


def test_frames_without_enough_are_left_out_and_found(source) -> None:
    config = configured(2, 3)
    every = MultiAgentDataset(config, source)
    counts = np.count_nonzero(every[:]["agent_availabilities"], axis=1)
    assert every.agents == counts.max()
    assert 0 < np.count_nonzero(counts >= 3) < len(counts)
    data = MultiAgentDataset(config, source, min_agents=3)
    assert len(data) == np.count_nonzero(counts >= 3)
    assert data[:]["frame_index"].tolist() == np.flatnonzero(counts >= 3).tolist()
    frame = int(np.flatnonzero(counts >= 3)[4])
    assert data.get_frame_indices(frame).tolist() == [4]
    assert len(data.get_frame_indices(int(np.flatnonzero(counts < 3)[0]))) == 0
    assert data.get_scene_indices(0).tolist() == list(range(len(data)))
    whole = data.get_frame(0, frame)
    assert np.array_equal(whole["track_id"], data[4]["track_id"])
    one = data.get_frame(0, frame, int(whole["track_id"][1]))
    assert np.array_equal(one["target_positions"][0], whole["target_positions"][1])
    assert one["agent_availabilities"].sum() == 1
    assert data.get_frame(0, frame, -1)["track_id"][0] == -1
    with pytest.raises(NoSuchRowError, match="track 99999"):
        data.get_frame(0, frame, 99999)


def test_one_scene_other_processes_and_fingerprints(source, rasterizer) -> None:
    config = configured(2, 3)
    data = MultiAgentDataset(config, source, rasterizer, ego=True, min_agents=1, image_type="uint8", centric="scene")
    for again in (pickle.loads(pickle.dumps(data)), data.get_scene_dataset(-1)):
        assert type(again) is MultiAgentDataset
        left, right = data[[0, 40]], again[[0, 40]]
        assert all(np.array_equal(left[name], right[name]) for name in left.flat)
    changed = ({"agents": 2}, {"ego": True}, {"centric": "scene"}, {"min_agents": 2}, {"min_frame_history": 3})
    made = [MultiAgentDataset(config, source, **options) for options in ({}, *changed)]
    assert len({each.fingerprint for each in made}) == 6
    assert made[0].fingerprint == MultiAgentDataset(config, source).fingerprint


def test_what_makes_no_sense(source) -> None:
    for wrong in ({"agents": 0}, {"min_agents": -1}, {"centric": "ego"}, {"rejected": "no"}):
        with pytest.raises(DataError, match="expected"):
            MultiAgentDataset(configured(2, 3), source, **wrong)
