"""Pictures of driving logs: boxes, the semantic map, aerial images, and what they are drawn from."""

from penstock.domains.driving.rasterize.attributes import AttributeRasterizer
from penstock.domains.driving.rasterize.base import Rasterizer, StubRasterizer
from penstock.domains.driving.rasterize.boxes import BoxRasterizer
from penstock.domains.driving.rasterize.build import MAP_TYPES, MapTypeError, build_rasterizer
from penstock.domains.driving.rasterize.combined import CombinedRasterizer
from penstock.domains.driving.rasterize.context import RenderContext
from penstock.domains.driving.rasterize.options import RasterOptions
from penstock.domains.driving.rasterize.satellite import OutsideImageError, SatelliteRasterizer
from penstock.domains.driving.rasterize.scenes import Boxes, Scenes, Views
from penstock.domains.driving.rasterize.semantic import SemanticRasterizer
from penstock.domains.driving.rasterize.vectors import VectorRasterizer, Vectors

__all__ = [
    "MAP_TYPES",
    "AttributeRasterizer",
    "BoxRasterizer",
    "Boxes",
    "CombinedRasterizer",
    "MapTypeError",
    "OutsideImageError",
    "RasterOptions",
    "Rasterizer",
    "RenderContext",
    "SatelliteRasterizer",
    "Scenes",
    "SemanticRasterizer",
    "StubRasterizer",
    "VectorRasterizer",
    "Vectors",
    "Views",
    "build_rasterizer",
]
