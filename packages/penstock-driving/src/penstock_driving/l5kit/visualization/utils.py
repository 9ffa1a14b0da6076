"""Trajectories drawn onto images `[H, W, 3]` uint8, in place. Needs `penstock-driving[raster]`."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, ImageArray, Int32Array
from penstock.errors import DataError
from penstock_driving.geometry import transform_points
from penstock_driving.rasterize.drawing import opencv

Color = tuple[int, int, int]

PREDICTED_POINTS_COLOR: Color = (0, 255, 255)
TARGET_POINTS_COLOR: Color = (255, 0, 255)
REFERENCE_TRAJ_COLOR: Color = (255, 255, 0)
ARROW_LENGTH_IN_PIXELS = 2
ARROW_THICKNESS_IN_PIXELS = 1
ARROW_TIP_LENGTH_IN_PIXELS = 1.8


def draw_arrowed_line(on_image: ImageArray, position: AnyArray, yaw: float, rgb_color: Color) -> None:
    """Draw an arrow at `position` (x, y) pixels that points along `yaw`, radians in the image."""
    start = np.asarray(position, np.float64)[:2]
    end = start + ARROW_LENGTH_IN_PIXELS * np.array([np.cos(yaw), np.sin(yaw)])
    start, end = start.astype(np.int32), end.astype(np.int32)
    # Later releases of OpenCV refuse tips longer than the line, so lines are drawn one by one, as earlier ones do.
    back = start - end
    size, turn = ARROW_TIP_LENGTH_IN_PIXELS * np.hypot(*back), np.arctan2(back[1], back[0])
    wings = [end + size * np.array([np.cos(turn + off), np.sin(turn + off)]) for off in (np.pi / 4, -np.pi / 4)]
    canvas = np.ascontiguousarray(on_image)  # pictures of rasters may be transposed views
    for point in (start, *np.rint(wings).astype(np.int32)):
        opencv().line(canvas, point.tolist(), end.tolist(), rgb_color, ARROW_THICKNESS_IN_PIXELS)
    on_image[...] = canvas


def draw_trajectory(
    on_image: ImageArray,
    positions: AnyArray,
    rgb_color: Color,
    radius: int = 1,
    yaws: AnyArray | None = None,
) -> None:
    """Draw discs of `radius` at `positions` `[N, 2]` pixels (x, y), or with `yaws` `[N]` or `[N, 1]` arrows.

    Positions outside the image are left out.
    """
    if yaws is None:
        _discs(on_image, np.asarray(positions)[:, :2].astype(np.int32), radius, rgb_color)
        return
    angles = np.asarray(yaws, np.float64).reshape(-1)
    if len(angles) != len(positions):
        raise DataError(f"expected a yaw for each of {len(positions)} positions, got {len(angles)}")
    for position, yaw in zip(positions, angles.tolist(), strict=True):
        draw_arrowed_line(on_image, position, yaw, rgb_color)


def draw_reference_trajectory(on_image: ImageArray, world_to_pixel: AnyArray, positions: AnyArray) -> None:
    """Draw discs at the world `positions` `[N, 2]` that are within the image, in `REFERENCE_TRAJ_COLOR`."""
    pixels = transform_points(np.array(positions), world_to_pixel)
    height, width = on_image.shape[:2]
    inside = ((pixels > 0) & (pixels < (width, height))).all(axis=1)
    _discs(on_image, np.floor(pixels[inside]).astype(np.int32), 1, REFERENCE_TRAJ_COLOR)


def _discs(on_image: ImageArray, centers: Int32Array, radius: int, color: Color) -> None:
    canvas = np.ascontiguousarray(on_image)
    for x, y in centers.tolist():
        opencv().circle(canvas, (x, y), radius, color, -1)
    on_image[...] = canvas
