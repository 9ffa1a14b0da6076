"""The map as a picture, and what it is drawn with."""

from __future__ import annotations

import os
from enum import IntEnum

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock_driving import rasterize
from penstock_driving.kernels.polygons import POINT
from penstock_driving.l5kit.rasterization.rasterizer import Described
from penstock_driving.map import MapAPI
from penstock_driving.rasterize import RenderContext
from penstock_driving.rasterize import options as drawn
from penstock_driving.rasterize.semantic import POINTS as INTERPOLATION_POINTS

__all__ = [
    "COLORS",
    "CV2_SHIFT_VALUE",
    "CV2_SUB_VALUES",
    "INTERPOLATION_POINTS",
    "RasterEls",
    "SemanticRasterizer",
    "cv2_subpixel",
    "indices_in_bounds",
]
CV2_SUB_VALUES = {"shift": POINT, "lineType": 16}  # 16 is cv2.LINE_AA
CV2_SHIFT_VALUE = 1 << POINT


class RasterEls(IntEnum):
    """Elements of a map that are drawn, except lanes with lights."""

    LANE_NOTL = 0
    ROAD = 1
    CROSSWALK = 2


COLORS = {
    **{light: drawn.COLORS[light.lower()] for light in ("GREEN", "RED", "YELLOW")},
    RasterEls.LANE_NOTL.name: drawn.COLORS["lane"],
    RasterEls.ROAD.name: drawn.COLORS["road"],
    RasterEls.CROSSWALK.name: drawn.COLORS["crosswalk"],
}


def indices_in_bounds(center: AnyArray, bounds: AnyArray, half_extent: float) -> IntArray:
    """Return indices of the boxes `bounds` `[n, 2, 2]` (smallest, largest x, y) that meet the square
    around `center`.
    """
    center = np.asarray(center)
    near = (center > bounds[:, 0] - half_extent) & (center < bounds[:, 1] + half_extent)
    return np.flatnonzero(near.all(axis=1))


def cv2_subpixel(coords: AnyArray) -> IntArray:
    """Pixels as whole numbers with `CV2_SUB_VALUES["shift"]` binary digits behind the point, cut towards zero."""
    return (coords * CV2_SHIFT_VALUE).astype(np.int64)


class SemanticRasterizer(Described, rasterize.SemanticRasterizer):
    """The map at a path, in the world that `world_to_ecef` `[4, 4]` maps to the globe."""

    def __init__(
        self, render_context: RenderContext, semantic_map_path: str | os.PathLike[str], world_to_ecef: AnyArray
    ) -> None:
        super().__init__(render_context, MapAPI(os.fspath(semantic_map_path), world_to_ecef))

    @property
    def mapAPI(self) -> MapAPI:
        return self.road

    @property
    def world_to_ecef(self) -> FloatArray:
        """`[4, 4]` from the world to the globe."""
        return self.road.world_to_ecef
