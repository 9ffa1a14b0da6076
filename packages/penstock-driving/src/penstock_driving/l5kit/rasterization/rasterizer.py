"""Base class of rasterizers, and the size of the ego."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock_driving.logs import EGO_EXTENT
from penstock_driving.rasterize import Rasterizer, RenderContext

__all__ = ["EGO_EXTENT_HEIGHT", "EGO_EXTENT_LENGTH", "EGO_EXTENT_WIDTH", "Rasterizer"]

EGO_EXTENT_LENGTH, EGO_EXTENT_WIDTH, EGO_EXTENT_HEIGHT = EGO_EXTENT

R = TypeVar("R", bound=Rasterizer)


class Described:
    """The size and the place of rasters, under the original's names."""

    context: RenderContext

    @property
    def render_context(self) -> RenderContext:
        """The position of rasters in the world."""
        return self.context

    @property
    def raster_size(self) -> IntArray:
        """`[2]` pixels: width and height."""
        return np.array(self.context.raster_size_px)

    @property
    def pixel_size(self) -> FloatArray:
        """`[2]` metres."""
        return np.array(self.context.pixel_size_m)

    @property
    def ego_center(self) -> FloatArray:
        """`[2]` share of the width and of the height where the ego is."""
        return np.array(self.context.center_in_raster_ratio)


def named(kind: type[R], built: Any) -> R:
    """Return a rasterizer of the driving domain as an instance of the original's class name."""
    rasterizer = object.__new__(kind)
    vars(rasterizer).update(built.__dict__)
    return rasterizer
