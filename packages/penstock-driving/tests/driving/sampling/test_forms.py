"""Every key of every dataset has its shape, dtype and unit, and nothing crosses a scene, whatever the scenes are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driving.sampling.conftest import GOLDEN, checked, configured, looped, made_logs
from penstock_driving.agent import AgentDataset
from penstock_driving.dataset import DrivingDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.logs import Arrays
from penstock_driving.map import MapAPI
from penstock_driving.mask import Thresholds
from penstock_driving.multi_agent import MultiAgentDataset
from penstock_driving.rasterize import build_rasterizer
from penstock_driving.vectorize import Vectorizer
from penstock_driving.vectorized import EgoAgentDatasetVectorized, EgoDatasetVectorized

LOOSE = Thresholds(yaw_degrees=360, extent_ratio=9, distance=500)
ROAD = MapAPI(GOLDEN / "semantic_map.pb", json.loads((GOLDEN / "meta.json").read_text())["world_to_ecef"])
MATRICES = ("world_to_image", "raster_from_agent", "raster_from_world", "agent_from_world", "world_from_agent")
Forms = dict[str, tuple[tuple[int, ...], str]]


def steps(history: int, future: int, extents: str, there: str) -> Forms:
    ahead, back = {"positions": (2,), "yaws": (1,), extents: (2,)}, {"positions": (2,), "yaws": (1,), "extents": (2,)}
    forms: Forms = {name if "_" in name else f"target_{name}": ((future, *t), "<f4") for name, t in ahead.items()}
    forms |= {f"history_{name}": ((history + 1, *tail), "<f4") for name, tail in back.items()}
    forms["target_availabilities"] = ((future,), there)
    return {**forms, "history_availabilities": ((history + 1,), there)}


def whole(history: int, future: int, image: tuple[int, ...]) -> Forms:
    """Keys of samples with rasters, without the axis of samples."""
    numbers = dict.fromkeys(("frame_index", "scene_index", "timestamp", "track_id"), ((), "<i8"))
    forms = {**steps(history, future, "future_extents", "<f4"), **numbers, "host_id": ((70,), "|u1")}
    forms |= dict.fromkeys(MATRICES, ((3, 3), "<f8"))
    forms |= {"centroid": ((2,), "<f8"), "yaw": ((), "<f8"), "extent": ((3,), "<f4"), "image": (image, "|u1")}
    forms |= {"target_velocities": ((future, 2), "<f4"), "history_velocities": ((history, 2), "<f4")}
    return {**forms, "curr_speed": ((), "<f4")} if history else forms


def vectors(history: int, future: int, others: int) -> Forms:
    numbers = dict.fromkeys(("scene_index", "timestamp", "track_id", "type"), ((), "<i8"))
    forms = {**steps(history, future, "target_extents", "|b1"), **numbers, "host_id": ((70,), "|u1")}
    forms |= dict.fromkeys(MATRICES[3:], ((3, 3), "<f8"))
    forms |= {"centroid": ((2,), "<f8"), "yaw": ((), "<f8"), "extent": ((3,), "<f8"), "speed": ((), "<f4")}
    for when, length in (("history", history + 1), ("future", future)):
        for name, size in (("positions", 2), ("yaws", 1), ("extents", 2)):
            forms[f"all_other_agents_{when}_{name}"] = ((others, length, size), "<f4")
        forms[f"all_other_agents_{when}_availability"] = ((others, length), "|b1")
    forms |= dict.fromkeys(("all_other_agents_types", "all_other_agents_track_ids"), ((others,), "<i8"))
    for name, shape in (("agent", ()), ("other_agents", (others,))):
        forms[f"{name}_{'trajectory_' * (name == 'agent')}polyline"] = ((*shape, history + 1, 3), "<f4")
        forms[f"{name}_polyline_availability"] = ((*shape, history + 1), "|b1")
    for name, count in (("lanes", 60), ("lanes_mid", 30), ("crosswalks", 20)):
        forms |= {name: ((count, 20, 3), "<f4"), f"{name}_availabilities": ((count, 20), "|b1")}
    return forms


def in_form(sample: Any, forms: Forms) -> None:
    got = {name: (values.shape, values.dtype.str) for name, values in sample.flat.items()}
    assert got == {name: ((sample.n, *shape), dtype) for name, (shape, dtype) in forms.items()}
    for name, values in sample.flat.items():
        assert np.isfinite(values).all(), name
        if name.endswith("yaws"):
            assert np.abs(values).max(initial=0) <= np.float32(np.pi), name
        if name.endswith(("availabilities", "availability")):
            assert np.isin(values, [0, 1]).all(), name


def in_scene(logs: Arrays, frame: Any, scene: Any, history: Any, target: Any) -> None:
    """Availabilities `[n, ..., steps]` of history and future that end with the scene."""
    begin, end = logs.scenes["frame_index_interval"][scene].T
    assert ((begin <= frame) & (frame < end)).all()
    for there, when in ((history, -np.arange(history.shape[-1])), (target, 1 + np.arange(target.shape[-1]))):
        at = frame[:, None] + when
        outside = (at < begin[:, None]) | (at >= end[:, None])
        middle = (1,) * (there.ndim - 2)
        assert not (there * outside.reshape(len(at), *middle, there.shape[-1])).any()


def frames_of(logs: Arrays, sample: Any) -> Any:
    return np.searchsorted(logs.frames["timestamp"], sample["timestamp"])


LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=4)


@given(st.integers(0, 10**6), LENGTHS, st.integers(0, 3), st.integers(0, 4))
@example(1, [1], 2, 3)
@example(2, [0, 1, 0, 2], 0, 0)
@settings(max_examples=15)
def test_samples_with_rasters(seed: int, lengths: list[int], history: int, future: int) -> None:
    logs, config = made_logs(seed, lengths), configured(history, future, threshold=0)
    config["model_params"]["render_ego_history"] = True
    config["raster_params"]["map_type"] = "box_debug"
    rasterizer, channels = build_rasterizer(config), (2 * (history + 1), 30, 40)
    chosen: dict[str, Any] = {"thresholds": LOOSE, "min_frame_history": 0, "min_frame_future": 0}
    forms = whole(history, future, channels)
    made: dict[str, DrivingDataset] = {
        "ego": EgoDataset(config, logs, rasterizer, image_type="uint8"),
        "agent": AgentDataset(config, logs, rasterizer, image_type="uint8", **chosen),
    }
    for name, data in made.items():
        sample = data[:]
        in_form(sample, {**forms, "extent": ((3,), "<f8" if name == "ego" else "<f4")})
        frame = frames_of(logs, sample)
        in_scene(logs, frame, sample["scene_index"], sample["history_availabilities"], sample["target_availabilities"])
        assert (sample["history_availabilities"][:, 0] == 1).all()
        apart = sample["frame_index"] - (frame - logs.scenes["frame_index_interval"][sample["scene_index"], 0])
        assert not apart.any()
    for centric in ("agent", "scene"):
        data = MultiAgentDataset(
            config, logs, rasterizer, agents=4, centric=centric, ego=True, image_type="uint8", **chosen
        )
        sample = data[:]
        assert sample.n == len(logs.frames)
        alone = {"frame_index", "scene_index", "timestamp", "host_id"}
        alone |= {"image", *MATRICES} if centric == "scene" else set()
        stacked = {name: ((4, *shape), dtype) for name, (shape, dtype) in forms.items() if name not in alone}
        in_form(sample, {**forms, **stacked, "agent_availabilities": ((4,), "<f4")})
        in_scene(
            logs,
            frames_of(logs, sample),
            sample["scene_index"],
            sample["history_availabilities"],
            sample["target_availabilities"],
        )
        assert np.array_equal(sample["history_availabilities"][..., 0], sample["agent_availabilities"])


@given(st.integers(0, 10**6), LENGTHS, st.integers(1, 3), st.integers(1, 4))
@example(1, [1], 2, 3)
@example(2, [0, 1, 0, 2], 1, 1)
@settings(max_examples=10)
def test_vectors(seed: int, lengths: list[int], history: int, future: int) -> None:
    logs, config = made_logs(seed, lengths), configured(history, future)
    config["data_generation_params"]["other_agents_num"] = 4
    vectorizer = Vectorizer(config, ROAD)
    mask = np.ones(len(logs.agents), np.bool_)
    both = EgoAgentDatasetVectorized(config, logs, vectorizer, agents_mask=mask)[:]
    in_form(both, {**vectors(history, future, 4), "all_valid_agents_track_ids": ((50,), "<i8")})
    sample = EgoDatasetVectorized(config, logs, vectorizer)[:]
    in_form(sample, vectors(history, future, 4))
    frame = frames_of(logs, sample)
    for prefix, ends in (("", "ilities"), ("all_other_agents_", "ility")):
        ahead = "future" if prefix else "target"
        there = (sample[f"{prefix}{when}_availab{ends}"] for when in ("history", ahead))
        in_scene(logs, frame, sample["scene_index"], *there)
    for i in range(sample.n):
        begin, end = logs.scenes["frame_index_interval"][sample["scene_index"][i]].tolist()
        origin = (*sample["centroid"][i], sample["yaw"][i])
        for k, track in enumerate(sample["all_other_agents_track_ids"][i].tolist()):
            if track == 0:
                assert not sample["all_other_agents_history_availability"][i, k].any()
                continue
            others = [name for name in sample.flat if name.startswith(("all_other_agents_h", "all_other_agents_f"))]
            told = {name.removeprefix("all_other_agents_"): sample[name][i : i + 1, k] for name in others}
            told |= {f"{when}_availabilities": told[f"{when}_availability"] for when in ("history", "future")}
            for when, some in (("history", range(0, -history - 1, -1)), ("future", range(1, future + 1))):
                way = looped(logs, int(frame[i]), track, some, (begin, end), origin)
                checked(told, 0, when, f"{when}_extents", way)


@pytest.mark.parametrize("lengths", [(0,), (0, 0)])
def test_logs_of_nothing(lengths: tuple[int, ...]) -> None:
    logs, config = made_logs(0, lengths), configured(2, 3)
    for data in (
        EgoDataset(config, logs),
        AgentDataset(config, logs),
        MultiAgentDataset(config, logs),
        EgoDatasetVectorized(config, logs, Vectorizer(config, ROAD)),
    ):
        assert len(data) == 0
        assert data[[]].n == 0
