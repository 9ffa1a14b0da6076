"""The vectoriser that a configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_driving.l5kit.data.local_data_manager import DataManager
from penstock_driving.map import MapAPI
from penstock_driving.vectorize import Vectorizer


def build_vectorizer(cfg: Mapping[str, Any], data_manager: DataManager) -> Vectorizer:
    """Build the vectorizer: sizes from `data_generation_params` and `model_params`, the map from `raster_params`.

    Raises the errors of `MapAPI`.
    """
    return Vectorizer(cfg, MapAPI.from_cfg(data_manager, cfg))
