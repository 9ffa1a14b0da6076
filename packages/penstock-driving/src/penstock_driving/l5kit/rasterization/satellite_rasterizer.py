"""Aerial images."""

from __future__ import annotations

from penstock.core.arrays import AnyArray, ByteArray
from penstock.errors import DataError
from penstock_driving import rasterize
from penstock_driving.l5kit.rasterization.rasterizer import Described
from penstock_driving.l5kit.rasterization.satellite_image import LINEAR
from penstock_driving.rasterize import RenderContext


class SatelliteRasterizer(Described, rasterize.SatelliteRasterizer):
    """An aerial image `[rows, columns, 3]` uint8, which `world_to_aerial` `[4, 4]` maps the world to."""

    def __init__(
        self,
        render_context: RenderContext,
        map_im: ByteArray,
        world_to_aerial: AnyArray,
        interpolation: int = LINEAR,
    ) -> None:
        if interpolation != LINEAR:
            raise DataError(f"expected interpolation 1, which is cv2.INTER_LINEAR, got {interpolation}")
        super().__init__(render_context, map_im, world_to_aerial)
