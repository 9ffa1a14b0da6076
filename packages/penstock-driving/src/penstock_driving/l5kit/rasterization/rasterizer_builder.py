"""From a configuration to its rasterizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock_driving import rasterize
from penstock_driving.l5kit.rasterization.box_rasterizer import BoxRasterizer
from penstock_driving.l5kit.rasterization.rasterizer import named
from penstock_driving.l5kit.rasterization.sat_box_rasterizer import SatBoxRasterizer
from penstock_driving.l5kit.rasterization.satellite_rasterizer import SatelliteRasterizer
from penstock_driving.l5kit.rasterization.sem_box_rasterizer import SemBoxRasterizer
from penstock_driving.l5kit.rasterization.semantic_rasterizer import SemanticRasterizer
from penstock_driving.l5kit.rasterization.stub_rasterizer import StubRasterizer
from penstock_driving.map.api import DataManager
from penstock_driving.rasterize import CombinedRasterizer, Rasterizer, RasterOptions

_ALONE: dict[type[Rasterizer], type[Rasterizer]] = {
    rasterize.BoxRasterizer: BoxRasterizer,
    rasterize.StubRasterizer: StubRasterizer,
    rasterize.SemanticRasterizer: SemanticRasterizer,
    rasterize.SatelliteRasterizer: SatelliteRasterizer,
}


def build_rasterizer(
    cfg: Mapping[str, Any], data_manager: DataManager | str | Path | None = None, options: RasterOptions | None = None
) -> Rasterizer:
    """Return the rasterizer that `raster_params.map_type` names, as an instance of the original's class name.

    See `penstock_driving.rasterize.build_rasterizer` for arguments and errors.
    """
    built = rasterize.build_rasterizer(cfg, data_manager, options)
    if not isinstance(built, CombinedRasterizer):
        return _named(built)
    layers = [_named(layer) for layer in built.layers]
    if isinstance(layers[-1], SemanticRasterizer):
        return named(SemBoxRasterizer, CombinedRasterizer(layers))
    if isinstance(layers[-1], SatelliteRasterizer):
        return named(SatBoxRasterizer, CombinedRasterizer(layers))
    return built


def _named(layer: Rasterizer) -> Rasterizer:
    kind = _ALONE.get(type(layer))
    return layer if kind is None else named(kind, layer)
