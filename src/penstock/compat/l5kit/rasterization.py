"""Rasterisers by their names, and the one that a configuration asks for."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.logs import EGO_EXTENT
from penstock.domains.driving.map import MapAPI
from penstock.domains.driving.rasterize import (
    BoxRasterizer,
    CombinedRasterizer,
    Rasterizer,
    RenderContext,
    SatelliteRasterizer,
    StubRasterizer,
    build_rasterizer,
)
from penstock.domains.driving.rasterize import SemanticRasterizer as MapRasterizer

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
]

EGO_EXTENT_LENGTH, EGO_EXTENT_WIDTH, EGO_EXTENT_HEIGHT = EGO_EXTENT

Path_ = str | os.PathLike[str]
Array = npt.NDArray[Any]


class SemanticRasterizer(MapRasterizer):
    """The map at a path, in the world that `world_to_ecef` `[4, 4]` maps to the globe."""

    def __init__(self, render_context: RenderContext, semantic_map_path: Path_, world_to_ecef: Array) -> None:
        super().__init__(render_context, MapAPI(os.fspath(semantic_map_path), world_to_ecef))


class SemBoxRasterizer(CombinedRasterizer):
    """Boxes, and the map below them."""

    def __init__(
        self,
        render_context: RenderContext,
        filter_agents_threshold: float,
        history_num_frames: int,
        semantic_map_path: Path_,
        world_to_ecef: Array,
        render_ego_history: bool = True,
    ) -> None:
        boxes = BoxRasterizer(render_context, filter_agents_threshold, history_num_frames, render_ego_history)
        super().__init__([boxes, SemanticRasterizer(render_context, semantic_map_path, world_to_ecef)])


class SatBoxRasterizer(CombinedRasterizer):
    """Boxes, and an aerial image `[rows, columns, 3]` uint8 below them."""

    def __init__(
        self,
        render_context: RenderContext,
        filter_agents_threshold: float,
        history_num_frames: int,
        map_im: npt.NDArray[np.uint8],
        world_to_aerial: Array,
        render_ego_history: bool = True,
    ) -> None:
        boxes = BoxRasterizer(render_context, filter_agents_threshold, history_num_frames, render_ego_history)
        super().__init__([boxes, SatelliteRasterizer(render_context, map_im, world_to_aerial)])
