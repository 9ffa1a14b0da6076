"""What never reaches a raster is found before it is moved to pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, Int32Array, IntArray
from penstock_driving.kernels.culling import meeting_boxes, place_shapes
from penstock_driving.rasterize.context import RenderContext

MARGIN = 4.0  # pixels: nothing that ends this far outside touches a raster, smoothed edges included


class SpatialIndex:
    """Bounding boxes `[n, 2, 2]` (smallest and largest x, y), sorted by their left sides."""

    def __init__(self, bounds: FloatArray) -> None:
        self.order = np.argsort(bounds[:, 0, 0], kind="stable")
        sides = np.ascontiguousarray(bounds[self.order].reshape(-1, 4).T)
        self.sides = sides  # left, bottom, right, top
        self.widest = float((bounds[:, 1, 0] - bounds[:, 0, 0]).max(initial=0))

    def query(self, center: AnyArray, reach: float) -> IntArray:
        """Which boxes meet the square of half side `reach` around `center` `[2]`, ascending."""
        return self.query_all(np.asarray(center)[None], reach)[0]

    def query_all(self, centers: AnyArray, reach: float) -> tuple[IntArray, IntArray]:
        """The same for `centers` `[n, 2]`: the boxes of the first, then the boxes of the second, ...; and of which it
        is.

        Cost: two binary searches a centre, then one look at each box that begins in the strip.
        """
        centers = np.ascontiguousarray(centers, np.float64)
        # a metre to spare for rounding
        strips = np.searchsorted(self.sides[0], centers[:, :1] + (-reach - self.widest - 1, reach + 1))
        keys = np.sort(meeting_boxes(self.order, self.sides, strips, centers, reach))
        total = max(len(self.order), 1)
        return keys % total, keys // total


@dataclass(frozen=True, eq=False)
class Circles:
    """Circles around shapes: `center` `[n, 2]` and `radius` `[n]`, in metres."""

    center: FloatArray
    radius: FloatArray

    @classmethod
    def around(cls, points: FloatArray) -> Circles:
        """Around `n` shapes of `k` points each, `[n, k, 2]`."""
        center = (points.min(axis=1) + points.max(axis=1)) / 2
        return cls(center, np.sqrt(((points - center[:, None]) ** 2).sum(axis=-1).max(axis=1)))


def place(
    shapes: FloatArray, circles: Circles, which: IntArray, view: IntArray, matrices: FloatArray, context: RenderContext
) -> tuple[Int32Array, IntArray]:
    """Entry `i` is shape `which[i]` of `shapes` `[K, k, 2]`, in its circle, moved by `matrices[view[i]]` `[n, 3, 3]`.

    Fixed-point pixels `[m, k, 2]` of the `m` entries that may touch the raster, and which `[m]` those are, ascending.
    """
    frame = np.array([*context.raster_size_px, min(context.pixel_size_m), MARGIN])
    return place_shapes(shapes, circles.center, circles.radius, which, view, matrices, frame)
