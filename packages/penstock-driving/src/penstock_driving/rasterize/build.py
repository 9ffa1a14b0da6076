"""From a configuration to the rasteriser it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.narrowing import is_mapping
from penstock.errors import DataError, suggestion
from penstock_driving.config import section
from penstock_driving.map.api import DataManager, MapAPI, load_metadata, matrix_of, required
from penstock_driving.rasterize.attributes import AttributeRasterizer
from penstock_driving.rasterize.base import Rasterizer, StubRasterizer
from penstock_driving.rasterize.boxes import BoxRasterizer
from penstock_driving.rasterize.combined import CombinedRasterizer
from penstock_driving.rasterize.context import RenderContext
from penstock_driving.rasterize.options import RasterOptions
from penstock_driving.rasterize.satellite import SatelliteRasterizer, read_image
from penstock_driving.rasterize.semantic import SemanticRasterizer

# map_type -> whether boxes are drawn, and the layer below them
MAP_TYPES: dict[str, tuple[bool, str]] = {
    "py_semantic": (True, "semantic"),
    "py_satellite": (True, "satellite"),
    "semantic_debug": (False, "semantic"),
    "satellite_debug": (False, "satellite"),
    "box_debug": (True, ""),
    "stub_debug": (False, ""),
}


class MapTypeError(DataError, NotImplementedError):
    """A configuration asks for an unknown kind of raster."""


def build_rasterizer(
    cfg: Mapping[str, Any], data_manager: DataManager | str | Path | None = None, options: RasterOptions | None = None
) -> Rasterizer:
    """Build the rasterizer that a configuration names, with the files that it needs.

    `raster_params.disable_traffic_light_faces` is applied here: the rasterizer then draws no light.

    Args:
        cfg: Configuration of l5kit with `raster_params` and, for boxes, `model_params`.
        data_manager: Folder of the files, or an object with `require(key)`. The default is None, for kinds without
            files.
        options: Differences from L5Kit. The default is None: `raster_params.options`.

    Returns:
        The rasterizer.

    Raises:
        DataError: The configuration lacks an entry, files are needed, or the `map_type` does not use an option.
        MapTypeError: The `map_type` is unknown. It is also a `NotImplementedError`.
        FileNotFoundError: A file is missing.
        FormatError: A file cannot be read.
        MissingExtraError: OpenCV is not installed.

    Example:
        >>> raster = {"map_type": "stub_debug", "raster_size": [8, 8], "pixel_size": [1, 1], "ego_center": [0.5, 0.5],
        ...           "set_origin_to_bottom": True}
        >>> build_rasterizer({"raster_params": raster}).num_channels()
        3
    """
    section(cfg, "raster_params")
    map_type = _entry(cfg, "raster_params", "map_type")
    if map_type not in MAP_TYPES:
        message = f"expected a map_type of {', '.join(MAP_TYPES)}, got {map_type!r}"
        raise MapTypeError(message + suggestion(str(map_type), MAP_TYPES))
    if options is None:
        options = RasterOptions.of(cfg["raster_params"].get("options", {}))
    _refuse_unused(options, map_type)
    names = ("raster_size", "pixel_size", "ego_center", "set_origin_to_bottom")
    context = RenderContext(*(_entry(cfg, "raster_params", name) for name in names))
    with_boxes, below = MAP_TYPES[map_type]
    layers = _boxes(cfg, context, options) if with_boxes else []
    if below:
        if data_manager is None:
            raise DataError(f"expected a data manager or a folder, which {map_type} takes its files from, got None")
        make = _semantic if below == "semantic" else _satellite
        layers.append(make(cfg, data_manager, context, options))
    if not layers:
        return StubRasterizer(context)
    return layers[0] if len(layers) == 1 else CombinedRasterizer(layers)


def rasterizer_of(cfg: Mapping[str, Any]) -> Rasterizer | None:
    """Return the rasterizer of `raster_params.map_type` if it needs no files, None if there is no `map_type`."""
    raster = cfg.get("raster_params")
    map_type = raster.get("map_type") if is_mapping(raster) else None
    if map_type is None:
        return None
    if MAP_TYPES.get(map_type, (False, ""))[1]:
        raise DataError(
            f"expected a rasterizer for the map_type {map_type!r} of the configuration, which needs files, got none; "
            "pass rasterizer=build_rasterizer(cfg, FOLDER), or rasterizer=None for samples without images"
        )
    return build_rasterizer(cfg)


# which layers use an option: "boxes", or the layer below them
_USED_BY = {
    "fill": "boxes",
    "history_step": "boxes",
    "agent_channels": "boxes",
    "lane_color": "semantic",
    "light_rule": "semantic",
    "colors": "semantic",
    "outside": "satellite",
}


def _refuse_unused(options: RasterOptions, map_type: str) -> None:
    """Raise `DataError` for an option that changes nothing in rasters of this `map_type`."""
    with_boxes, below = MAP_TYPES[map_type]
    layers = {below, "boxes"} if with_boxes else {below}
    default = RasterOptions()
    for name, layer in _USED_BY.items():
        if layer not in layers and getattr(options, name) != getattr(default, name):
            kinds = [kind for kind, (boxes, base) in MAP_TYPES.items() if base == layer or (boxes and layer == "boxes")]
            raise DataError(
                f"expected the raster option {name!r} with a map_type of {', '.join(kinds)}, got it with "
                f"{map_type!r}, which does not use it"
            )


def _boxes(cfg: Mapping[str, Any], context: RenderContext, options: RasterOptions) -> list[Rasterizer]:
    threshold = float(_entry(cfg, "raster_params", "filter_agents_threshold"))
    history = _entry(cfg, "model_params", "history_num_frames")
    shown = _entry(cfg, "model_params", "render_ego_history")
    layers: list[Rasterizer] = [BoxRasterizer(context, threshold, history, shown, options)]
    if options.agent_channels:
        layers.append(AttributeRasterizer(context, threshold, options.agent_channels))
    return layers


def _semantic(
    cfg: Mapping[str, Any], data_manager: DataManager | str | Path, context: RenderContext, options: RasterOptions
) -> Rasterizer:
    for name in ("semantic_map_key", "dataset_meta_key"):
        _entry(cfg, "raster_params", name)
    lights = not cfg["raster_params"].get("disable_traffic_light_faces", False)
    return SemanticRasterizer(context, MapAPI.from_cfg(data_manager, cfg), options, lights)


def _satellite(
    cfg: Mapping[str, Any], data_manager: DataManager | str | Path, context: RenderContext, options: RasterOptions
) -> Rasterizer:
    meta = load_metadata(required(data_manager, _entry(cfg, "raster_params", "dataset_meta_key")))
    matrix = matrix_of(meta, "ecef_to_aerial") @ matrix_of(meta, "world_to_ecef")
    image = read_image(required(data_manager, _entry(cfg, "raster_params", "satellite_map_key")))
    return SatelliteRasterizer(context, image, matrix, options)


def _entry(cfg: Mapping[str, Any], section: str, name: str) -> Any:
    if section not in cfg or name not in cfg[section]:
        there = ", ".join(cfg.get(section, cfg)) or "nothing"
        raise DataError(f"expected {section}.{name} in the configuration, got {there}")
    return cfg[section][name]
