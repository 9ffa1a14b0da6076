"""The scene, map and image of `golden/l5kit`, and a configuration of the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_driving.l5kit.data import ChunkedDataset, LocalDataManager

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "l5kit"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture(params=[3, 29])
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


@pytest.fixture
def drive() -> ChunkedDataset:
    return ChunkedDataset(GOLDEN / "single.zarr").open()


@pytest.fixture
def files() -> LocalDataManager:
    return LocalDataManager(GOLDEN)


@pytest.fixture
def config() -> dict[str, Any]:
    return {
        "model_params": {
            "history_num_frames": 10,
            "history_num_frames_ego": 1,
            "history_num_frames_agents": 10,
            "future_num_frames": 50,
            "step_time": 0.1,
            "render_ego_history": True,
        },
        "raster_params": {
            "raster_size": [224, 224],
            "pixel_size": [0.5, 0.5],
            "ego_center": [0.25, 0.5],
            "map_type": "py_semantic",
            "satellite_map_key": "aerial_map.png",
            "semantic_map_key": "semantic_map.pb",
            "dataset_meta_key": "meta.json",
            "filter_agents_threshold": 0.5,
            "disable_traffic_light_faces": False,
            "set_origin_to_bottom": True,
        },
        "data_generation_params": {
            "other_agents_num": 30,
            "max_agents_distance": 35,
            "lane_params": {
                "max_num_lanes": 30,
                "max_points_per_lane": 20,
                "max_points_per_crosswalk": 20,
                "max_retrieval_distance_m": 35,
                "max_num_crosswalks": 20,
            },
        },
    }
