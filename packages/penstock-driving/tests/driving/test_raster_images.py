"""Rasters are those of the original, pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from driving.conftest import GOLDEN, back_in_time
from penstock_driving.rasterize import Scenes, Views, build_rasterizer


@pytest.fixture(scope="module")
def semantic(config):
    return build_rasterizer(config("py_semantic"), GOLDEN)


@pytest.fixture(scope="module")
def boxes(config):
    return build_rasterizer(config("box_debug"))


def test_semantic_rasters_of_the_vehicle(semantic, scene, ego_views, rasters) -> None:
    assert np.array_equal(semantic.rasterize_batch(scene, ego_views), rasters["ego_py_semantic"])


def test_the_layers_alone(boxes, config, scene, ego_views, rasters) -> None:
    assert np.array_equal(boxes.rasterize_batch(scene, ego_views), rasters["ego_py_semantic"][:, :22])
    alone = build_rasterizer(config("semantic_debug"), GOLDEN).rasterize_batch(scene, ego_views)
    assert np.array_equal(alone, rasters["ego_py_semantic"][:, 22:])


def test_boxes_around_agents(boxes, scene, agent_views, rasters) -> None:
    assert np.array_equal(boxes.rasterize_batch(scene, agent_views), rasters["agent_box_debug"])


def test_satellite_rasters(config, scene, rasters) -> None:
    views = Views.of_ego(scene, back_in_time(rasters["satellite_frame"]))
    drawn = build_rasterizer(config("py_satellite"), GOLDEN).rasterize_batch(scene, views)
    assert np.array_equal(drawn, rasters["ego_py_satellite"])
    alone = build_rasterizer(config("satellite_debug"), GOLDEN).rasterize_batch(scene, views)
    assert np.array_equal(alone, drawn[:, 22:])


def test_the_stub_is_black(config, scene, ego_views) -> None:
    stub = build_rasterizer(config("stub_debug", raster_size=[8, 4]))
    out = np.ones((len(ego_views), 3, 4, 8), np.uint8)
    assert not stub.rasterize_batch(scene, ego_views, out).any()
    assert stub.to_rgb(out[0].transpose(1, 2, 0)).shape == (4, 8, 3)


def lists_of(scene: Scenes, steps: np.ndarray) -> tuple:
    rows = steps[steps >= 0]
    agents = [scene.agents[slice(*scene.agent_spans[row])] for row in rows]
    return scene.frames[rows], agents, [scene.faces[slice(*scene.face_spans[row])] for row in rows]


def test_one_at_a_time_under_the_original_call(semantic, scene, ego_views, rasters) -> None:
    for view in (0, 1, 3):  # the first has no history, the second too little
        image = semantic.rasterize(*lists_of(scene, ego_views.steps[view]))
        assert image.dtype == np.float32
        assert image.shape == (224, 224, 25)
        assert np.array_equal(image.transpose(2, 0, 1), rasters["ego_py_semantic"][view].astype(np.float32) / 255)


def test_one_agent_under_the_original_call(boxes, scene, agent_views, agent_rows, rasters) -> None:
    image = boxes.rasterize(*lists_of(scene, agent_views.steps[2]), agent_rows[2])
    assert np.array_equal(np.rint(image * 255).transpose(2, 0, 1), rasters["agent_box_debug"][2])


def test_matrices_are_those_of_the_samples(semantic, ego_views, rasters) -> None:
    assert np.allclose(semantic.matrices(ego_views), rasters["ego_raster_from_world"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_threads_and_dtypes_draw_the_same(semantic, scene, rasters, threads, dtype) -> None:
    frames = np.resize(rasters["ego_frame"], 37)
    views = Views.of_ego(scene, back_in_time(frames))
    drawn = semantic.rasterize_batch(scene, views, dtype=dtype, threads=threads)
    scale = np.float32(255) if dtype == "float32" else np.uint8(1)
    assert np.array_equal(drawn, np.resize(rasters["ego_py_semantic"], (37, 25, 224, 224)) / scale)


def test_a_buffer_with_an_earlier_picture_in_it(semantic, scene, ego_views, rasters, rng) -> None:
    out = rng.integers(0, 256, rasters["ego_py_semantic"].shape, np.uint8)
    assert semantic.rasterize_batch(scene, ego_views, out) is out
    assert np.array_equal(out, rasters["ego_py_semantic"])


def test_pictures_of_rasters(semantic, boxes, rasters) -> None:
    raster = rasters["ego_py_semantic"][2].transpose(1, 2, 0)
    floats = raster.astype(np.float32) / 255
    shown, colored = semantic.to_rgb(floats), boxes.to_rgb(floats[..., :22])
    covered = np.any(colored > 0, axis=-1)
    assert shown.dtype == np.uint8
    assert np.array_equal(shown[covered], colored[covered])
    assert np.array_equal(shown[~covered], (floats[..., 22:] * 255).astype(np.uint8)[~covered])
    assert np.array_equal(boxes.to_rgb(raster[..., :22]), colored)
    now = raster[..., 11] > 0  # the ego is green now, and darker the longer ago
    assert np.all(colored[now][:, 1] == 255)
    assert set(np.unique(colored[..., 1])) <= {
        0,
        *(int(255 * np.float32(0.85) ** k) + d for k in range(11) for d in (-1, 0)),
    }
    assert np.all(boxes.to_rgb(floats[..., :22], ego_color=(1, 0, 0))[now][:, 0] == 255)
