"""Rasters from vectors are those of the CPU path, but for edges."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from penstock.domains.driving.rasterize import RasterOptions, VectorRasterizer, build_rasterizer
from penstock.errors import DataError
from tests.domains.driving.conftest import GOLDEN

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


def test_the_edge_rule(config) -> None:
    """Middles on the edge are inside; a box without area covers the middles that it meets."""
    path = VectorRasterizer(build_rasterizer(config("box_debug", raster_size=[8, 8])))
    found: list[np.ndarray] = []
    boxes = np.array([[[1, 1], [1, 3], [4, 3], [4, 1]], [[6, 6]] * 4, [[20, 20]] * 4], np.float32)
    path._cover(boxes, np.zeros(3, int), np.arange(3), lambda place, value: found.append(place.numpy()))
    covered = np.zeros(64, bool)
    covered[np.concatenate(found)] = True
    expected = np.zeros((8, 8), bool)
    expected[1:4, 1:5] = expected[6, 6] = True
    assert np.array_equal(covered.reshape(8, 8), expected)


def test_what_cannot_be_drawn_from_vectors(config) -> None:
    with pytest.raises(DataError, match="StubRasterizer"):
        VectorRasterizer(build_rasterizer(config("stub_debug")))
    with pytest.raises(DataError, match="AttributeRasterizer"):
        VectorRasterizer(build_rasterizer(config("box_debug", options={"agent_channels": ["type"]})))
    with pytest.raises(DataError, match="lane_color"):
        VectorRasterizer(build_rasterizer(config("semantic_debug", options={"lane_color": "direction"}), GOLDEN))
