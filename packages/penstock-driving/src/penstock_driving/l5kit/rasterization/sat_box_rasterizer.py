"""Boxes, and an aerial image below them."""

from __future__ import annotations

from penstock.core.arrays import AnyArray, ByteArray
from penstock_driving.l5kit.rasterization.box_rasterizer import BoxRasterizer
from penstock_driving.l5kit.rasterization.rasterizer import Described
from penstock_driving.l5kit.rasterization.satellite_image import LINEAR
from penstock_driving.l5kit.rasterization.satellite_rasterizer import SatelliteRasterizer
from penstock_driving.rasterize import CombinedRasterizer, Rasterizer, RenderContext


class SatBoxRasterizer(Described, CombinedRasterizer):
    """Boxes, and an aerial image `[rows, columns, 3]` uint8 below them. Raises as `SatelliteRasterizer` does."""

    def __init__(
        self,
        render_context: RenderContext,
        filter_agents_threshold: float,
        history_num_frames: int,
        map_im: ByteArray,
        world_to_aerial: AnyArray,
        interpolation: int = LINEAR,
        render_ego_history: bool = True,
    ) -> None:
        boxes = BoxRasterizer(render_context, filter_agents_threshold, history_num_frames, render_ego_history)
        super().__init__([boxes, SatelliteRasterizer(render_context, map_im, world_to_aerial, interpolation)])

    @property
    def box_rast(self) -> Rasterizer:
        return self.layers[0]

    @property
    def sat_rast(self) -> Rasterizer:
        """The rasterizer of the aerial image."""
        return self.layers[-1]
