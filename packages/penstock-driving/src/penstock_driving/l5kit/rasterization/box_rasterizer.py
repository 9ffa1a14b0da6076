"""Boxes of agents and of the ego."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, FloatArray
from penstock_driving import rasterize
from penstock_driving.formats.l5kit import AGENT_DTYPE
from penstock_driving.geometry import box_corners, rotation33_as_yaw, transform_points
from penstock_driving.kernels.polygons import FILLED
from penstock_driving.l5kit.rasterization.rasterizer import Described
from penstock_driving.l5kit.rasterization.semantic_rasterizer import cv2_subpixel
from penstock_driving.logs import EGO_EXTENT
from penstock_driving.rasterize.drawing import Strokes, calls_of, spans_of


class BoxRasterizer(Described, rasterize.BoxRasterizer):
    """As `penstock_driving.rasterize.BoxRasterizer`."""


def get_ego_as_agent(frame: AnyArray) -> AnyArray:
    """Return the ego of a frame as a row of agents `[1]`; fields that an ego lacks are 0."""
    agent = np.zeros(1, AGENT_DTYPE)
    agent["centroid"], agent["extent"] = frame["ego_translation"][:2], EGO_EXTENT
    agent["yaw"] = rotation33_as_yaw(frame["ego_rotation"])
    return agent


def get_box_world_coords(agents: AnyArray) -> FloatArray:
    """Return `[N, 4, 2]` metres: the corners of agents, from rear right by rear left to front right."""
    return box_corners(agents["centroid"], agents["extent"], agents["yaw"])


def draw_boxes(
    raster_size: tuple[int, int], raster_from_world: AnyArray, agents: AnyArray, color: int | tuple[int, int, int]
) -> ByteArray:
    """Return a black image `[H, W]`, or `[H, W, 3]` for a colour of three, with the boxes of agents.

    `raster_size` is width and height. Where two boxes overlap, the image has a hole.
    """
    colors = (color,) if isinstance(color, int) else color
    width, height = (int(side) for side in raster_size)
    image = np.zeros((len(colors), height, width), np.uint8)
    corners = transform_points(get_box_world_coords(agents).reshape(-1, 2), raster_from_world)
    calls = calls_of(0, len(agents), np.arange(len(colors)), FILLED, np.array(colors))
    points = cv2_subpixel(corners).astype(np.int32)
    Strokes(points, spans_of(len(agents), 4), calls, [0, len(calls)]).paint(0, image)
    return image[0] if isinstance(color, int) else np.ascontiguousarray(image.transpose(1, 2, 0))
