"""Boxes, and the map below them."""

from __future__ import annotations

import os

from penstock.core.arrays import AnyArray
from penstock_driving.l5kit.rasterization.box_rasterizer import BoxRasterizer
from penstock_driving.l5kit.rasterization.rasterizer import Described
from penstock_driving.l5kit.rasterization.semantic_rasterizer import SemanticRasterizer
from penstock_driving.rasterize import CombinedRasterizer, Rasterizer, RenderContext


class SemBoxRasterizer(Described, CombinedRasterizer):
    """Boxes, and the map below them."""

    def __init__(
        self,
        render_context: RenderContext,
        filter_agents_threshold: float,
        history_num_frames: int,
        semantic_map_path: str | os.PathLike[str],
        world_to_ecef: AnyArray,
        render_ego_history: bool = True,
    ) -> None:
        boxes = BoxRasterizer(render_context, filter_agents_threshold, history_num_frames, render_ego_history)
        super().__init__([boxes, SemanticRasterizer(render_context, semantic_map_path, world_to_ecef)])

    @property
    def box_rast(self) -> Rasterizer:
        return self.layers[0]

    @property
    def sem_rast(self) -> Rasterizer:
        return self.layers[-1]
