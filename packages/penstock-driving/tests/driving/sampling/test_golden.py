"""Samples and masks are those of the original."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from driving.sampling.conftest import GOLDEN, configured
from penstock_driving.agent import AgentDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.map import MapAPI
from penstock_driving.mask import Thresholds, agents_mask
from penstock_driving.vectorize import Vectorizer
from penstock_driving.vectorized import EgoDatasetVectorized

MATRICES = ("world_to_image", "raster_from_agent", "raster_from_world", "agent_from_world", "world_from_agent")


def compared(got: Any, expected: dict[str, np.ndarray], kind: str) -> None:
    wanted = {name.split("/")[1]: value for name, value in expected.items() if name.startswith(f"{kind}/")}
    assert set(got) == set(wanted) - {"index"}
    for name in got:
        ours, theirs = got[name], wanted[name]
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
        if ours.dtype.kind in "iub":
            assert np.array_equal(ours, theirs), name
        elif name in MATRICES:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9, err_msg=name)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture
def config() -> dict[str, Any]:
    told = configured()
    told["raster_params"]["raster_size"] = [224, 224]
    return told


def test_samples_of_the_ego(source, expected, config) -> None:
    data = EgoDataset(config, source)
    assert len(data) == 248
    compared(data[expected["ego/index"]], expected, "ego")


def test_samples_of_agents(source, expected, config) -> None:
    data = AgentDataset(config, source)
    assert len(data) == 1127
    compared(data[expected["agent/index"]], expected, "agent")


def test_samples_of_agents_that_do_not_fit_into_memory(source, expected, config) -> None:
    compared(AgentDataset(config, source, track_bytes=0)[expected["agent/index"]], expected, "agent")


def test_vectors(source, expected, config) -> None:
    road = MapAPI(GOLDEN / "semantic_map.pb", json.loads((GOLDEN / "meta.json").read_text())["world_to_ecef"])
    data = EgoDatasetVectorized(config, source, Vectorizer(config, road))
    got = {name: np.array(value) for name, value in data[expected["vector/index"]].flat.items()}
    wanted = {name: value for name, value in expected.items() if name.startswith("vector/")}
    # The original's order of other agents is that of a set; ours is by distance.
    for told, prefix in ((got, ""), (wanted, "vector/")):
        order = np.argsort(told[f"{prefix}all_other_agents_track_ids"], axis=1, kind="stable")
        for name in told:
            if name.startswith((f"{prefix}all_other_agents", f"{prefix}other_agents")):
                told[name] = told[name][np.arange(len(order))[:, None], order]
    compared(got, wanted, "vector")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("single_0.5", {}),
        ("single_0.5_dist20", {"distance": 20}),
        ("single_0.5_yaw10", {"yaw_degrees": 10}),
        ("single_0.5_ext1.02", {"extent_ratio": 1.02}),
    ],
)
def test_masks(source, expected, name, changed) -> None:
    mask = agents_mask(source, Thresholds(**changed))
    assert mask.dtype == np.uint32
    assert np.array_equal(mask, expected[f"mask/{name}"])
