"""Pictures of driving logs: boxes, the semantic map, aerial images, and what they are drawn from."""

from penstock_driving.rasterize.attributes import AttributeRasterizer
from penstock_driving.rasterize.base import Rasterizer, StubRasterizer
from penstock_driving.rasterize.boxes import BoxRasterizer
from penstock_driving.rasterize.build import MAP_TYPES, MapTypeError, build_rasterizer
from penstock_driving.rasterize.combined import CombinedRasterizer
from penstock_driving.rasterize.context import RenderContext
from penstock_driving.rasterize.options import RasterOptions
from penstock_driving.rasterize.satellite import OutsideImageError, SatelliteRasterizer
from penstock_driving.rasterize.scenes import Boxes, Scenes, Views
from penstock_driving.rasterize.semantic import SemanticRasterizer
from penstock_driving.rasterize.vectors import VectorRasterizer, Vectors

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
