"""Shapes to draw, as arrays: contours in fixed-point pixels, and the calls that fill them or draw along them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, Int32Array, IntArray
from penstock.errors import require
from penstock_driving.kernels.polygons import draw_shapes


@cache
def opencv() -> Any:
    """OpenCV, or the error that says which extra has it."""
    return require("cv2", "raster", "penstock-driving")


@dataclass(frozen=True, eq=False)
class Strokes:
    """What many views are painted with: of view `v` calls `ends[v]:ends[v + 1]`, in that order.

    `points` `[P, 2]`, in pixels with 9 binary digits behind the point. Contours `spans` `[K, 2]`, ranges of points.
    `calls` `[n, 5]`: the first contour and the one after the last, the plane, the action (`FILLED`, `OPEN` or `CLOSED`
    of `kernels.polygons`) and the colour. Pixels that the contours of a call cover an even number of times
    stay as they were.
    """

    points: Int32Array
    spans: IntArray
    calls: IntArray
    ends: list[int]

    def paint(self, view: int, image: AnyArray, background: int = 0) -> None:
        """Paint all of `image` `[C, H, W]`, uint8 or `packed` uint64."""
        calls = self.calls[self.ends[view] : self.ends[view + 1]]
        planes = image.reshape(len(image), -1)
        draw_shapes(planes, image.shape[-1], background, self.points, self.spans, calls)


def calls_of(first: Any, last: Any, plane: Any, what: int, color: Any) -> IntArray:
    """`[n, 5]` of numbers, or of arrays `[n]`."""
    return np.stack(np.broadcast_arrays(first, last, plane, what, color), axis=1).astype(np.int64)


def spans_of(count: int, points: int) -> IntArray:
    """`[count, 2]`: contours of `points` points each, one behind the other."""
    return np.arange(count)[:, None] * points + np.array([0, points])


def packed(colors: npt.ArrayLike) -> Any:
    """Colours `[..., 3]` as one number each, 16 bits a channel, as a pixel of uint64 has them."""
    return np.asarray(colors, np.int64) @ (1 << np.array([0, 16, 32]))
