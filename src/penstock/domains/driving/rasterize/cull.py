"""Which of many bounding boxes lie near a point, without looking at all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.rasterize.scenes import Integers


class Near:
    """Bounding boxes `[n, 2, 2]` (smallest and largest x, y), sorted by their left sides.

    >>> Near(np.array([[[0.0, 0], [1, 1]], [[5, 0], [6, 1]]])).query(np.array([0.0, 0.0]), 2.0).tolist()
    [0]
    """

    def __init__(self, bounds: npt.NDArray[np.float64]) -> None:
        self.order = np.argsort(bounds[:, 0, 0], kind="stable")
        self.bounds = bounds[self.order]
        self.left = np.ascontiguousarray(self.bounds[:, 0, 0])
        self.widest = float((bounds[:, 1, 0] - bounds[:, 0, 0]).max(initial=0))

    def query(self, center: npt.NDArray[Any], reach: float) -> Integers:
        """Which boxes meet the square of half side `reach` around `center` `[2]`, ascending.

        Cost: two binary searches, then one look at each box that begins in the strip.
        """
        x, y = float(center[0]), float(center[1])
        low = np.searchsorted(self.left, x - reach - self.widest - 1)  # a metre to spare for rounding
        high = np.searchsorted(self.left, x + reach)
        near = self.bounds[low:high]
        # each side is compared as L5Kit does: what only touches does not meet
        meets = (x > near[:, 0, 0] - reach) & (y > near[:, 0, 1] - reach)
        meets &= (x < near[:, 1, 0] + reach) & (y < near[:, 1, 1] + reach)
        return np.sort(self.order[low:high][meets])
