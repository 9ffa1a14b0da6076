"""Rasters from vectors are those of the CPU path, but for edges."""

from __future__ import annotations

import pickle

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.conftest import GOLDEN
from penstock.errors import DataError
from penstock_driving import rasterize
from penstock_driving.rasterize import (
    MAP_TYPES,
    CombinedRasterizer,
    OutsideImageError,
    RasterOptions,
    Scenes,
    VectorRasterizer,
    Views,
    build_rasterizer,
)
from penstock_driving.rasterize.cover import Cover, topmost

EDGE = 5  # pixels of width: what smoothing and rounding may change on either side of an edge


def near_edges(vectors, view: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Of one view: where edges of boxes are `[channels, H, W]`, and where those of the map are `[H, W]`."""
    boxes, road = np.zeros((channels, 224, 224), np.uint8), np.zeros((224, 224), np.uint8)
    for polygon, plane in zip(vectors.boxes, vectors.box_plane, strict=True):
        if plane // max(channels, 1) == view:
            cv2.polylines(boxes[plane % channels], [polygon], True, 255, EDGE, cv2.LINE_8, 9)
    for lane in vectors.lanes[vectors.lane_view == view]:
        cv2.polylines(road, [lane], True, 255, EDGE, cv2.LINE_8, 9)
    for edge in vectors.edges[vectors.edge_view == view]:
        cv2.polylines(road, [edge], False, 255, EDGE, cv2.LINE_8, 9)
    return boxes > 0, road > 0


@pytest.mark.parametrize("fill", ["even-odd", "union"])
def test_only_edges_differ(config, scene, ego_views, fill) -> None:
    drawn_by = build_rasterizer(config("py_semantic"), GOLDEN, RasterOptions(fill=fill))
    expected = drawn_by.rasterize_batch(scene, ego_views)
    torch_path = VectorRasterizer(drawn_by)
    vectors = torch_path.vectors(scene, ego_views)
    drawn = torch_path.draw(vectors).numpy()
    assert drawn.shape == expected.shape
    assert torch_path.num_channels() == 25
    for view in range(len(ego_views)):
        boxes, road = near_edges(vectors, view, 22)
        edges = np.concatenate([boxes, np.broadcast_to(road, (3, 224, 224))])
        assert np.array_equal(drawn[view][~edges], expected[view][~edges])
        assert np.mean(edges[:22]) < 0.1
    assert np.mean(np.abs(drawn[:, :22].astype(int) - expected[:, :22])) < 1.0
    assert np.mean(np.abs(drawn[:, 22:].astype(int) - expected[:, 22:])) < 20


def test_vectors_are_a_fraction_of_pictures(config, scene, agent_views) -> None:
    boxes = VectorRasterizer(build_rasterizer(config("box_debug")))
    vectors = boxes.vectors(scene, agent_views)
    drawn = boxes.draw(vectors)
    assert vectors.nbytes * 20 < drawn.numel()
    assert drawn.shape == (len(agent_views), 22, 224, 224)


def test_the_map_alone_has_its_colours(config, scene, ego_views) -> None:
    road = VectorRasterizer(build_rasterizer(config("semantic_debug"), GOLDEN))
    drawn = road.draw(road.vectors(scene, ego_views)).permute(0, 2, 3, 1).reshape(-1, 3).unique(dim=0)
    known = [(255, 255, 255), (17, 17, 31), (255, 217, 82), (255, 117, 69), (255, 0, 0), (255, 255, 0), (0, 255, 0)]
    assert {tuple(color) for color in drawn.tolist()} <= set(known)
    assert len(drawn) >= 4


def covering(shapes: np.ndarray, plane: np.ndarray, planes: int, height: int, width: int, odd=False) -> np.ndarray:
    made = Cover(planes, height, width, "cpu", odd)
    made.add(torch.from_numpy(shapes), torch.from_numpy(plane))
    return made.sums().numpy()


def test_the_edge_rule() -> None:
    """Left and upper edges are inside, right and lower ones are not; without an area nothing is."""
    boxes = np.array(
        [[[1, 1], [1, 3], [4, 3], [4, 1]], [[6, 6]] * 4, [[20, 20]] * 4, [[-5, 2], [9, 2]] * 2], np.float32
    )
    diamond = np.array([[[4, 2], [6, 4], [4, 6], [2, 4]]], np.float32)
    expected = np.zeros((2, 8, 8), int)
    expected[0, 1:3, 1:4] = 1
    expected[1, 2, 4:4] = expected[1, 3, 3:5] = expected[1, 4, 2:6] = expected[1, 5, 3:5] = 1
    shapes, plane = np.concatenate([boxes, diamond]), np.array([0, 0, 0, 1, 1])
    assert np.array_equal(covering(shapes, plane, 2, 8, 8), expected)
    assert np.array_equal(covering(shapes[:, ::-1].copy(), plane, 2, 8, 8), expected)  # the other way round
    nothing = np.empty((0, 4, 2), np.float32)
    assert not covering(nothing, np.empty(0, np.int64), 1, 3, 5).any()


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40), st.sampled_from([3, 4]))
@settings(max_examples=25, deadline=None)
def test_rows_of_shapes_are_what_testing_every_pixel_finds(seed, height, width, corners) -> None:
    rng = np.random.default_rng(seed)
    middle, radius = rng.uniform(-10, 50, (12, 1, 2)), rng.exponential(12, (12, 1, 2))
    angle = np.sort(rng.uniform(0, 2 * np.pi, (12, corners)), axis=1)
    shapes = middle + radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1)  # on an ellipse: convex
    shapes = np.rint(shapes * 512) / 512
    plane = rng.integers(0, 3, 12)
    y, x = np.mgrid[:height, :width]
    ahead = np.roll(shapes, -1, axis=1) - shapes
    away = np.stack([x, y], axis=-1)[None, :, :, None] - shapes[:, None, None]
    turn = ahead[:, None, None, :, 0] * away[..., 1] - ahead[:, None, None, :, 1] * away[..., 0]
    inside = np.all(turn >= 0, axis=-1) | np.all(turn <= 0, axis=-1)
    certain = np.abs(turn).min(axis=-1) > 1e-2  # of a pixel times the edge: float32
    got = np.stack(
        [covering(shapes[i : i + 1].astype(np.float32), plane[i : i + 1], 3, height, width) for i in range(12)]
    )
    for i in range(12):
        assert np.array_equal(got[i, plane[i]][certain[i]] > 0, inside[i][certain[i]])
        assert got[i].sum() == got[i, plane[i]].sum()
    counts = covering(shapes.astype(np.float32), plane, 3, height, width)
    assert np.array_equal(counts, got.sum(axis=0))
    assert np.array_equal(covering(shapes.astype(np.float32), plane, 3, height, width, odd=True), counts % 2 * 255)
    above = topmost(torch.from_numpy(shapes.astype(np.float32)), torch.from_numpy(plane), 3, height, width).numpy()
    number = np.arange(1, 13)[:, None, None, None]
    assert np.array_equal(above, ((got > 0) * number).max(axis=0))


def agents_of_all_kinds(scene: Scenes) -> Scenes:
    agents = scene.agents.copy()
    agents["label_probabilities"] = np.eye(17)[3 + np.arange(len(agents)) % 13]
    agents["velocity"] += np.random.default_rng(5).normal(0, 9, (len(agents), 2))
    return Scenes(scene.frames, agents, scene.faces, scene.agent_spans, scene.face_spans)


def test_what_agents_are_and_how_fast(config, scene, ego_views) -> None:
    options = RasterOptions(agent_channels=("type", "velocity"))
    drawn_by = build_rasterizer(config("py_semantic"), GOLDEN, options)
    mixed, path = agents_of_all_kinds(scene), VectorRasterizer(drawn_by)
    expected = drawn_by.rasterize_batch(mixed, ego_views)
    vectors = path.vectors(mixed, ego_views)
    drawn = path.draw(vectors).numpy()
    assert drawn.shape == expected.shape == (len(ego_views), 30, 224, 224)
    for view in range(len(ego_views)):
        edges = np.zeros((5, 224, 224), np.uint8)
        for polygon, plane in zip(vectors.marks, vectors.mark_plane, strict=True):
            if plane // 5 == view:
                cv2.polylines(edges[plane % 5], [polygon], True, 255, EDGE, cv2.LINE_8, 9)
        assert np.array_equal(drawn[view, 22:27][edges == 0], expected[view, 22:27][edges == 0])
    assert len(np.unique(drawn[:, 25:27])) > 20
    assert all(drawn[:, 22 + kind].any() for kind in range(3))


def test_roads_in_the_colour_of_their_direction(config, scene, ego_views) -> None:
    options = RasterOptions(lane_color="direction")
    drawn_by = build_rasterizer(config("semantic_debug"), GOLDEN, options)
    expected, path = drawn_by.rasterize_batch(scene, ego_views), VectorRasterizer(drawn_by)
    vectors = path.vectors(scene, ego_views)
    drawn = path.draw(vectors).numpy()
    for view in range(len(ego_views)):
        _, road = near_edges(vectors, view, 0)
        assert np.array_equal(drawn[view][:, ~road], expected[view][:, ~road])
    assert len(np.unique(drawn[:, :, ::4, ::4].transpose(0, 2, 3, 1).reshape(-1, 3), axis=0)) > 4


@pytest.mark.parametrize("size", [[224, 224], [64, 96], [96, 40]])
@pytest.mark.parametrize("upwards", [True, False])
def test_aerial_images_are_those_of_the_cpu(config, scene, ego_views, rng, size, upwards) -> None:
    """To the last bit, beyond the image and with another one too."""
    cfg = config("py_satellite", raster_size=size, set_origin_to_bottom=upwards)
    drawn_by = build_rasterizer(cfg, GOLDEN, RasterOptions(outside="pad"))
    satellite = drawn_by.layers[-1]
    satellite.map_im = rng.integers(0, 256, satellite.map_im.shape, np.uint8)
    far = Views(ego_views.steps, ego_views.position + np.array([150, -20, 0]), ego_views.yaw, ego_views.track)
    for views in (ego_views, far):
        path = VectorRasterizer(drawn_by)
        drawn = path.draw(path.vectors(scene, views)).numpy()
        assert np.array_equal(drawn[:, 22:], drawn_by.rasterize_batch(scene, views)[:, 22:])
    assert np.any(np.all(drawn[:, 22:] == 0, axis=1))
    strict = VectorRasterizer(build_rasterizer(cfg, GOLDEN))
    with pytest.raises(OutsideImageError):
        strict.vectors(scene, Views(far.steps, far.position + 1e5, far.yaw, far.track))


@pytest.mark.parametrize("map_type", MAP_TYPES)
def test_whatever_is_built_is_drawn_however_little_fits_at_once(
    config, scene, agent_views, monkeypatch, map_type
) -> None:
    used = {
        "py": {"agent_channels": ("velocity",)},
        "box_debug": {"agent_channels": ("velocity",)},
        "semantic": {"lane_color": "direction"},
        "satellite": {"outside": "pad"},
    }
    values = [options for part, options in used.items() if part in map_type]
    options = RasterOptions(**{name: value for part in values for name, value in part.items()})
    drawn_by = build_rasterizer(config(map_type, raster_size=[64, 48]), GOLDEN, options)
    path = pickle.loads(pickle.dumps(VectorRasterizer(drawn_by)))
    vectors = path.vectors(scene, agent_views)
    whole = path.draw(vectors)
    assert whole.shape == (len(agent_views), drawn_by.num_channels(), 48, 64)
    assert bool(whole.any()) == (map_type not in ("stub_debug",))
    monkeypatch.setattr(rasterize.vectors, "CELLS", {"cpu": 1})
    monkeypatch.setattr(rasterize.vectors, "PIXELS", 1)
    assert torch.equal(path.draw(vectors), whole)
    nothing = path.draw(path.vectors(scene, agent_views.part(0, 0)))
    assert nothing.shape == (0, *whole.shape[1:])


def test_what_cannot_be_drawn_from_vectors(config) -> None:
    boxes = build_rasterizer(config("box_debug"))
    with pytest.raises(DataError, match="BoxRasterizer, BoxRasterizer"):
        VectorRasterizer(CombinedRasterizer([boxes, boxes]))
