"""Position of rasters in the world."""

from penstock.domains.driving.rasterize import RenderContext

__all__ = ["RenderContext"]
