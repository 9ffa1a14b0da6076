"""The rasters that benchmarks draw: 224 x 224 pixels of half a metre, and ten steps of history."""

from __future__ import annotations

from typing import Any

HISTORY = 10


def config(map_type: str) -> dict[str, Any]:
    """Return the configuration of a rasterizer of this kind, in the words of L5Kit."""
    raster = {
        "raster_size": [224, 224],
        "pixel_size": [0.5, 0.5],
        "ego_center": [0.25, 0.5],
        "map_type": map_type,
        "satellite_map_key": "aerial_map.png",
        "semantic_map_key": "semantic_map.pb",
        "dataset_meta_key": "meta.json",
        "filter_agents_threshold": 0.5,
        "set_origin_to_bottom": True,
    }
    model = {"history_num_frames": HISTORY, "future_num_frames": 50, "step_time": 0.1, "render_ego_history": True}
    return {"raster_params": raster, "model_params": model}
