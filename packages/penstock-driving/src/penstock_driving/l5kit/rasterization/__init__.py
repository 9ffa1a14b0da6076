"""Rasterizers by their names, and the one that a configuration asks for."""

from penstock_driving.l5kit.rasterization.box_rasterizer import BoxRasterizer
from penstock_driving.l5kit.rasterization.rasterizer import (
    EGO_EXTENT_HEIGHT,
    EGO_EXTENT_LENGTH,
    EGO_EXTENT_WIDTH,
    Rasterizer,
)
from penstock_driving.l5kit.rasterization.rasterizer_builder import build_rasterizer
from penstock_driving.l5kit.rasterization.render_context import RenderContext
from penstock_driving.l5kit.rasterization.sat_box_rasterizer import SatBoxRasterizer
from penstock_driving.l5kit.rasterization.satellite_image import (
    get_sat_image_crop,
    get_sat_image_crop_scaled,
    get_sat_image_crop_scaled_from_ecef,
)
from penstock_driving.l5kit.rasterization.satellite_rasterizer import SatelliteRasterizer
from penstock_driving.l5kit.rasterization.sem_box_rasterizer import SemBoxRasterizer
from penstock_driving.l5kit.rasterization.semantic_rasterizer import SemanticRasterizer
from penstock_driving.l5kit.rasterization.stub_rasterizer import StubRasterizer

__all__ = [
    "EGO_EXTENT_HEIGHT",
    "EGO_EXTENT_LENGTH",
    "EGO_EXTENT_WIDTH",
    "BoxRasterizer",
    "Rasterizer",
    "RenderContext",
    "SatBoxRasterizer",
    "SatelliteRasterizer",
    "SemBoxRasterizer",
    "SemanticRasterizer",
    "StubRasterizer",
    "build_rasterizer",
    "get_sat_image_crop",
    "get_sat_image_crop_scaled",
    "get_sat_image_crop_scaled_from_ecef",
]
