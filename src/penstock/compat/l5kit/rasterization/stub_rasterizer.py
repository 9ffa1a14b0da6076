"""Black rasters."""

from __future__ import annotations

from penstock.compat.l5kit.rasterization.rasterizer import Described
from penstock.domains.driving import rasterize


class StubRasterizer(Described, rasterize.StubRasterizer):
    """As `penstock.domains.driving.rasterize.StubRasterizer`."""
