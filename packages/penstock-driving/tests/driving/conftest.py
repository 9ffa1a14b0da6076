"""What the tests of driving share: the scene, the map and the rasters of `golden/l5kit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_driving.formats.l5kit import FORMAT
from penstock_driving.map import MapAPI
from penstock_driving.rasterize import Scenes, Views

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "l5kit"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.fixture(scope="session")
def scene() -> Scenes:
    """248 frames of one drive, as arrays."""
    with FORMAT.open(GOLDEN / "single.zarr") as source:
        return Scenes.of(source.frames[:], source.agents[:], source.tl_faces[:])


@pytest.fixture(scope="session")
def rasters() -> dict[str, np.ndarray]:
    """Pictures that the original drew, and of what."""
    with np.load(GOLDEN / "rasters.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.fixture(scope="session")
def road() -> MapAPI:
    return MapAPI.from_cfg(GOLDEN, raster_config("py_semantic"))


def raster_config(map_type: str, **raster: Any) -> dict[str, Any]:
    """The configuration behind the pictures, with changes in `raster_params`."""
    return {
        "model_params": {"history_num_frames": 10, "render_ego_history": True},
        "raster_params": {
            "raster_size": [224, 224],
            "pixel_size": [0.5, 0.5],
            "ego_center": [0.25, 0.5],
            "map_type": map_type,
            "satellite_map_key": "aerial_map.png",
            "semantic_map_key": "semantic_map.pb",
            "dataset_meta_key": "meta.json",
            "filter_agents_threshold": 0.5,
            "disable_traffic_light_faces": False,
            "set_origin_to_bottom": True,
            **raster,
        },
    }


@pytest.fixture(scope="session")
def config():
    return raster_config


def back_in_time(frames: Any, history: int = 10) -> np.ndarray:
    """`[n, history + 1]` rows of the frames before, -1 before the first."""
    return np.maximum(np.asarray(frames)[:, None] - np.arange(history + 1), -1)


@pytest.fixture(scope="session")
def ego_views(scene, rasters) -> Views:
    return Views.of_ego(scene, back_in_time(rasters["ego_frame"]))


@pytest.fixture(scope="session")
def agent_rows(scene, rasters) -> np.ndarray:
    """The agents whose rasters are there, as rows of their dtype."""
    spans = scene.agent_spans[rasters["agent_frame"]]
    rows = [
        lo + np.flatnonzero(scene.agents["track_id"][lo:hi] == track)[0]
        for (lo, hi), track in zip(spans, rasters["agent_track"], strict=True)
    ]
    return scene.agents[rows]


@pytest.fixture(scope="session")
def agent_views(scene, rasters, agent_rows) -> Views:
    return Views.of_agents(scene, back_in_time(rasters["agent_frame"]), agent_rows)
