"""Placement of a raster in the world, and what reaches it: the rest is left out before it is moved to pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, Int32Array, IntArray
from penstock.core.frozen import set_fields
from penstock.errors import DataError
from penstock_driving.geometry import pose_matrix, vertical_flip
from penstock_driving.kernels.culling import meeting_boxes, place_shapes


@dataclass(frozen=True)
class RenderContext:
    """Size of a raster, and its place in the world around a pose, which looks along +x.

    Args:
        raster_size_px: Width and height in pixels, 1 to 16384.
        pixel_size_m: Metres of a pixel along x and y, above 0.
        center_in_raster_ratio: Place of the pose in the raster, as a share of each side.
        set_origin_to_bottom: Whether y points up in the picture, as in the world. The default is True.

    Raises:
        DataError: A number is out of range or missing.

    Example:
        >>> RenderContext((224, 224), (0.5, 0.5), (0.25, 0.5), True).raster_from_world(np.zeros(2), 0.0).tolist()
        [[2.0, 0.0, 56.0], [0.0, -2.0, 112.0], [0.0, 0.0, 1.0]]
    """

    raster_size_px: tuple[int, int]
    pixel_size_m: tuple[float, float]
    center_in_raster_ratio: tuple[float, float]
    set_origin_to_bottom: bool = True

    def __post_init__(self) -> None:
        for name, value in (
            ("raster_size_px", self.raster_size_px),
            ("pixel_size_m", self.pixel_size_m),
            ("center_in_raster_ratio", self.center_in_raster_ratio),
        ):
            numbers = np.asarray(value)
            if numbers.shape != (2,) or numbers.dtype.kind not in "iuf" or not np.all(np.isfinite(numbers)):
                raise DataError(f"expected {name} as two numbers, got {value!r}")
            if name != "center_in_raster_ratio" and not np.all(numbers > 0):
                raise DataError(f"expected {name} above 0, got {value!r}")
        width, height = self.raster_size_px
        if (int(width), int(height)) != (width, height) or max(width, height) > 16384:
            raise DataError(f"expected raster_size_px as whole pixels, 16384 at most, got {self.raster_size_px!r}")
        set_fields(
            self,
            raster_size_px=(int(width), int(height)),
            pixel_size_m=tuple(float(size) for size in self.pixel_size_m),
            center_in_raster_ratio=tuple(float(part) for part in self.center_in_raster_ratio),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width, as arrays have them."""
        return self.raster_size_px[1], self.raster_size_px[0]

    @property
    def raster_from_local(self) -> FloatArray:
        """`[3, 3]`: metres of the pose's frame to pixels."""
        scale = 1.0 / np.array(self.pixel_size_m)
        center = np.array(self.center_in_raster_ratio) * np.array(self.raster_size_px)
        matrix = np.array([[scale[0], 0, center[0]], [0, scale[1], center[1]], [0, 0, 1]])
        return vertical_flip(matrix, self.raster_size_px[1]) if self.set_origin_to_bottom else matrix

    @property
    def radius(self) -> float:
        """Metres from the raster's centre to its corners."""
        return float(np.linalg.norm(np.array(self.raster_size_px) * np.array(self.pixel_size_m))) / 2

    def raster_from_world(self, position_m: AnyArray, angle_rad: AnyArray | float) -> FloatArray:
        """Return the matrices `[..., 3, 3]` from metres of the world to pixels.

        Args:
            position_m: `[..., 2 or more]` metres: the poses.
            angle_rad: `[...]` radians: the directions that the poses look along.
        """
        return self.raster_from_local @ np.linalg.inv(pose_matrix(position_m, angle_rad))


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
