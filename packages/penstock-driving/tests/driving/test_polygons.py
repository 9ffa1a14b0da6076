"""Polygons and lines are those of OpenCV, pixel by pixel; the kernels equal their reference."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.reference import polygons as reference
from penstock_driving.kernels.culling import meeting_boxes, place_shapes
from penstock_driving.kernels.pixels import split_channels, to_unit
from penstock_driving.kernels.polygons import CLOSED, FILLED, OPEN, POINT, REACH, draw_shapes
from penstock_driving.rasterize.context import MARGIN
from penstock_driving.rasterize.drawing import packed

PIXEL = 1 << POINT
near = st.integers(-4 * PIXEL, 40 * PIXEL)
wide = st.integers(-600 * PIXEL, 600 * PIXEL)
huge = st.sampled_from([-int(REACH), int(REACH)]) | st.integers(-int(REACH), int(REACH))
seam = st.integers(-2, 40).map(lambda pixel: pixel * PIXEL // 2)  # middles and edges of pixels


def contours_of(*numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[np.ndarray]]:
    """Up to four contours of up to eight points: crossing themselves and each other, of one point, of one line."""
    number = st.one_of(*numbers)
    contour = st.lists(st.tuples(number, number), min_size=1, max_size=8)
    return st.lists(contour.map(lambda points: np.array(points, np.int32)), min_size=1, max_size=4)


colors = st.integers(0, 255) | st.tuples(*[st.integers(0, 255)] * 3)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def theirs(contours: list[np.ndarray], what: int, color, background, size: tuple[int, int]) -> np.ndarray:
    image = np.full((*size, 3) if isinstance(color, tuple) else size, background, np.uint8)
    for _ in range(2):  # the second time over what the first has left
        if what == FILLED:
            cv2.fillPoly(image, contours, color, cv2.LINE_AA, POINT)
        else:
            cv2.polylines(image, contours, what == CLOSED, color, 1, cv2.LINE_AA, POINT)
    return image


def ours(draw: Any, contours: list[np.ndarray], what: int, color, background, size) -> np.ndarray:
    ends = np.cumsum([0, *map(len, contours)])
    spans = np.stack([ends[:-1], ends[1:]], axis=1)
    wide = isinstance(color, tuple)
    image = np.full((2, size[0] * size[1]), 7, np.uint64 if wide else np.uint8)
    color, background = (int(packed(value)) if wide else value for value in (color, background))
    calls = np.array([[0, len(contours), 1, what, color]] * 2)
    draw(image, size[1], background, np.concatenate(contours), spans, calls)
    assert np.all(image[0] == background)
    if not wide:
        return image[1].reshape(size)
    planes = np.empty((3, size[0] * size[1]), np.uint8)
    split_channels(image[1], planes)
    return planes.reshape(3, *size).transpose(1, 2, 0)


def equal(draw: Any, contours: list[np.ndarray], what: int, color, size: tuple[int, int]) -> None:
    background = (9, 200, 31) if isinstance(color, tuple) else 40
    drawn = ours(draw, contours, what, color, background, size)
    np.testing.assert_array_equal(drawn, theirs(contours, what, color, background, size))


@given(contours_of(near, wide, seam), st.sampled_from([FILLED, OPEN, CLOSED]), colors, sizes)
@settings(max_examples=400, deadline=None)
def test_shapes_are_those_of_opencv(contours, what, color, size):
    equal(draw_shapes, contours, what, color, size)


@given(contours_of(near, huge), st.sampled_from([FILLED, OPEN, CLOSED]), colors, sizes)
@settings(max_examples=60, deadline=None)
def test_shapes_as_far_away_as_can_be(contours, what, color, size):
    equal(draw_shapes, contours, what, color, size)


@given(contours_of(near, wide, huge, seam), st.sampled_from([FILLED, OPEN, CLOSED]), colors, sizes)
@settings(max_examples=120, deadline=None)
def test_the_definition_is_the_kernel(contours, what, color, size):
    background = (0, 255, 8) if isinstance(color, tuple) else 255
    drawn, wanted = (
        ours(draw, contours, what, color, background, size) for draw in (draw_shapes, reference.draw_shapes)
    )
    np.testing.assert_array_equal(drawn, wanted)


@pytest.mark.parametrize("draw", [draw_shapes, reference.draw_shapes])
def test_lines_in_every_direction_and_of_every_length(draw):
    """From a pixel's parts to parts of others: every slope, every fraction of the first step and of the last."""
    turns = np.arange(0, 2 * np.pi, 0.05)
    for length in (0, 0.1, 0.6, 1, 1.7, 2.4, 3, 9):
        begin = 20 * PIXEL + np.stack([37 * np.arange(len(turns)), 11 * np.arange(len(turns))], axis=1) % PIXEL
        end = begin + length * PIXEL * np.stack([np.cos(turns), np.sin(turns)], axis=1)
        lines = np.stack([begin, end], axis=1).astype(np.int32)
        equal(draw, list(lines), OPEN, 255, (40, 40))


def test_many_boxes_over_each_other():
    boxes = np.random.default_rng(3).integers(-20 * PIXEL, 220 * PIXEL, (300, 4, 2)).astype(np.int32)
    equal(draw_shapes, list(boxes), FILLED, 255, (200, 190))


def test_nothing_is_drawn_of_nothing():
    image = np.ones((1, 6), np.uint8)
    none = np.empty((0, 2), np.int64)
    for draw in (draw_shapes, reference.draw_shapes):
        draw(image, 3, 5, none.astype(np.int32), none, np.array([[0, 0, 0, FILLED, 255]]))
        assert np.all(image == 5)


@given(st.integers(0, 10**6), st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_shapes_are_placed_as_defined(seed, entries):
    rng = np.random.default_rng(seed)
    shapes, matrices = rng.normal(0, 60, (9, 4, 2)), rng.normal(0, 1, (3, 3, 3)) * (1, 1, 40)
    shapes[0] = 1e12
    center = shapes.mean(axis=1)
    radius = np.sqrt(((shapes - center[:, None]) ** 2).sum(axis=-1).max(axis=1))
    which, view = rng.integers(0, 9, entries), rng.integers(0, 3, entries)
    frame = np.array([40, 30, 0.5, MARGIN])
    arguments = shapes, center, radius, which, view, matrices, frame
    for ours, wanted in zip(place_shapes(*arguments), reference.place_shapes(*arguments), strict=True):
        np.testing.assert_array_equal(ours, wanted)


@given(st.integers(0, 10**6), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_boxes_that_meet_are_as_defined(seed, boxes):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 9, (2, boxes)).astype(np.float64)
    sides = np.concatenate([low, low + rng.integers(0, 5, (2, boxes))])
    strips = np.sort(rng.integers(0, boxes + 1, (4, 2)), axis=1)
    centers, order = rng.integers(0, 9, (4, 2)).astype(np.float64), rng.permutation(boxes)
    arguments = order, sides, strips, centers, 2.0
    np.testing.assert_array_equal(meeting_boxes(*arguments), reference.meeting_boxes(*arguments))


def test_shares_of_one_are_those_of_float32():
    values, out = np.arange(256, dtype=np.uint8), np.empty((2, 256), np.float32)
    for convert, row in zip((to_unit, reference.to_unit), out, strict=True):
        convert(values, row)
    assert np.array_equal(out[0], values / np.float32(255))
    assert np.array_equal(out[0], out[1])
