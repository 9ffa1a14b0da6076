"""OpenCV's drawing calls under fixed-point rules."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import require

SHIFT = 9  # binary digits behind the point of a coordinate
REACH = 2.0**30  # of fixed-point coordinates: they are cut here, so that they fit 32 bits

Fixed = npt.NDArray[np.int32]
Points = npt.NDArray[np.float64]


@cache
def opencv() -> Any:
    """OpenCV, or the error that says which extra has it."""
    return require("cv2", "raster")


def to_fixed(points: Points, matrices: Points) -> Fixed:
    """World points `[m, k, 2]` as fixed-point pixels, each of the `m` by its own matrix `[m or 1, 3, 3]`.

    Cut towards zero, not rounded. Scaling the matrix by a power of two is exact, so this is what scaling the pixels is.

    >>> to_fixed(np.array([[[1.0, -0.001]]]), np.eye(3)[None]).tolist()
    [[[512, 0]]]
    """
    scaled = matrices[:, :2] * float(1 << SHIFT)
    x, y = points[..., 0], points[..., 1]
    pixels = np.empty(points.shape, np.int32)
    for axis in (0, 1):
        a, b, c = (scaled[:, axis, column, None] for column in range(3))
        place = x * a
        place += y * b
        place += c
        pixels[..., axis] = np.clip(place, -REACH, REACH, out=place)
    return pixels


def fill(image: npt.NDArray[np.uint8], polygons: Any, color: Any) -> None:
    """Fill `polygons` in one call: what an even number of them covers stays as it was."""
    cv2 = opencv()
    cv2.fillPoly(image, polygons, color, cv2.LINE_AA, SHIFT)


def outline(image: npt.NDArray[np.uint8], lines: Any, closed: bool, color: Any) -> None:
    """Draw `lines`, one pixel wide and smoothed."""
    cv2 = opencv()
    cv2.polylines(image, lines, closed, color, 1, cv2.LINE_AA, SHIFT)
