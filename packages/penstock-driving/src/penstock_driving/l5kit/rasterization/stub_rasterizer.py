"""Black rasters."""

from __future__ import annotations

from penstock_driving import rasterize
from penstock_driving.l5kit.rasterization.rasterizer import Described


class StubRasterizer(Described, rasterize.StubRasterizer):
    """As `penstock_driving.rasterize.StubRasterizer`."""
