"""Position of rasters in the world."""

from penstock_driving.rasterize import RenderContext

__all__ = ["RenderContext"]
