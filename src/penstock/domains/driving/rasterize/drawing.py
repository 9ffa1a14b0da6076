"""OpenCV's drawing calls under fixed-point rules, and what never reaches a raster."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import require

SHIFT = 9  # binary digits behind the point of a coordinate
MARGIN = 4.0  # pixels: nothing that ends this far outside touches a raster, smoothed edges included
REACH = 2.0**20  # pixels: coordinates are cut here, so that fixed-point numbers fit 32 bits

Fixed = npt.NDArray[np.int32]
Points = npt.NDArray[np.float64]


def opencv() -> Any:
    """OpenCV, or the error that says which extra has it."""
    return require("cv2", "raster")


def to_raster(points: Points, matrices: Points) -> Points:
    """World points `[m, k, 2]` to pixels, each of the `m` by its own matrix `[m or 1, 3, 3]`.

    >>> to_raster(np.array([[[1.0, 2.0]]]), np.eye(3)[None] * 2).tolist()
    [[[2.0, 4.0]]]
    """
    x, y = points[..., 0], points[..., 1]
    pixels = np.empty(points.shape)
    for axis in (0, 1):
        a, b, c = (matrices[:, axis, column, None] for column in range(3))
        np.multiply(x, a, out=pixels[..., axis])
        pixels[..., axis] += y * b
        pixels[..., axis] += c
    return pixels


def fixed(pixels: Points) -> Fixed:
    """Pixels as fixed-point numbers, cut towards zero.

    >>> fixed(np.array([1.0, -0.001])).tolist()
    [512, 0]
    """
    return (np.clip(pixels, -REACH, REACH) * (1 << SHIFT)).astype(np.int32)


def touching(pixels: Points, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """`[m]`: which of `m` shapes `[m, k, 2]` may touch a raster of height and width `shape`.

    >>> touching(np.array([[[5.0, 5.0]], [[-9.0, 5.0]]]), (10, 10)).tolist()
    [True, False]
    """
    low, high = pixels.min(axis=1), pixels.max(axis=1)
    size = np.array(shape[::-1])
    return np.all((high > -MARGIN) & (low < size + MARGIN), axis=1)


def fill(image: npt.NDArray[np.uint8], polygons: Any, color: Any) -> None:
    """Fill `polygons` in one call: what an even number of them covers stays as it was."""
    cv2 = opencv()
    cv2.fillPoly(image, polygons, color, cv2.LINE_AA, SHIFT)
