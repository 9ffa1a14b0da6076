"""What never reaches a raster is found before it is moved to pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.rasterize.context import RenderContext

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MARGIN = 4.0  # pixels: nothing that ends this far outside touches a raster, smoothed edges included


class Near:
    """Bounding boxes `[n, 2, 2]` (smallest and largest x, y), sorted by their left sides.

    >>> Near(np.array([[[0.0, 0], [1, 1]], [[5, 0], [6, 1]]])).query(np.array([0.0, 0.0]), 2.0).tolist()
    [0]
    """

    def __init__(self, bounds: Floats) -> None:
        self.order = np.argsort(bounds[:, 0, 0], kind="stable")
        sides = np.ascontiguousarray(bounds[self.order].reshape(-1, 4).T)
        self.left, self.bottom, self.right, self.top = sides
        self.widest = float((bounds[:, 1, 0] - bounds[:, 0, 0]).max(initial=0))

    def query(self, center: npt.NDArray[Any], reach: float) -> Integers:
        """Which boxes meet the square of half side `reach` around `center` `[2]`, ascending.

        Cost: two binary searches, then one look at each box that begins in the strip.
        """
        x, y = float(center[0]), float(center[1])
        # a metre to spare for rounding
        low, high = np.searchsorted(self.left, (x - reach - self.widest - 1, x + reach + 1))
        strip = slice(low, high)
        # each side is compared as L5Kit does: what only touches does not meet
        meets = (x > self.left[strip] - reach) & (x < self.right[strip] + reach)
        meets &= (y > self.bottom[strip] - reach) & (y < self.top[strip] + reach)
        return np.sort(self.order[strip][meets])


@dataclass(frozen=True, eq=False)
class Circles:
    """Circles that shapes lie in: `center` `[n, 2]` and `radius` `[n]`, in metres."""

    center: Floats
    radius: Floats

    @classmethod
    def around(cls, points: Floats) -> Circles:
        """Around `n` shapes of `k` points each, `[n, k, 2]`."""
        center = (points.min(axis=1) + points.max(axis=1)) / 2
        return cls(center, np.sqrt(((points - center[:, None]) ** 2).sum(axis=-1).max(axis=1)))

    def take(self, rows: Integers) -> Circles:
        """Circles `rows`."""
        return Circles(self.center[rows], self.radius[rows])

    def touching(self, matrices: Floats, context: RenderContext) -> npt.NDArray[np.bool_]:
        """`[n]`: which may touch the raster, each moved by its own matrix `[n or 1, 3, 3]`."""
        x, y = self.center.T
        reach = self.radius / min(context.pixel_size_m) + MARGIN
        seen = np.ones(len(reach), np.bool_)
        for axis, size in enumerate(context.raster_size_px):
            place = x * matrices[:, axis, 0]
            place += y * matrices[:, axis, 1]
            place += matrices[:, axis, 2]
            seen &= (place > -reach) & (place < reach + size)
        return seen
