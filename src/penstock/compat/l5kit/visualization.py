"""Trajectories drawn onto rasters, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.rasterize.drawing import opencv
from penstock.errors import DataError

Color = tuple[int, int, int]

PREDICTED_POINTS_COLOR: Color = (0, 255, 255)
TARGET_POINTS_COLOR: Color = (255, 0, 255)
REFERENCE_TRAJ_COLOR: Color = (255, 255, 0)
ARROW = 4.0  # pixels


def draw_trajectory(
    on_image: npt.NDArray[np.uint8],
    positions: npt.NDArray[Any],
    rgb_color: Color,
    radius: int = 1,
    yaws: npt.NDArray[Any] | None = None,
) -> None:
    """Discs at `positions` `[N, 2]` pixels (x, y) of an image `[H, W, 3]`, or arrows along `yaws` `[N]` or `[N, 1]`,
    radians in the image. What lies outside of the image is left out. Needs the extra `raster`.

    Raises `DataError` for yaws of another number.

    >>> image = np.zeros((9, 9, 3), np.uint8)
    >>> draw_trajectory(image, np.array([[2.0, 6.0]]), TARGET_POINTS_COLOR, radius=0)
    >>> image[6, 2].tolist(), int(np.count_nonzero(image))
    ([255, 0, 255], 2)
    """
    angles = None if yaws is None else np.asarray(yaws, np.float64).reshape(-1)
    if angles is not None and len(angles) != len(positions):
        raise DataError(f"expected a yaw for each of {len(positions)} positions, got {len(angles)}")
    canvas = np.ascontiguousarray(on_image)  # pictures of rasters are transposed views
    starts = np.asarray(positions, np.float64)[:, :2]
    if angles is None:
        for x, y in starts.astype(np.int32).tolist():
            opencv().circle(canvas, (x, y), radius, rgb_color, -1)
    else:
        ends = starts + ARROW * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        for start, end in zip(np.rint(starts).astype(int).tolist(), np.rint(ends).astype(int).tolist(), strict=True):
            opencv().arrowedLine(canvas, start, end, rgb_color, 1, tipLength=0.5)
    on_image[...] = canvas
