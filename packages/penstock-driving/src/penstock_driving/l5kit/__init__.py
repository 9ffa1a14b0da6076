"""L5Kit's names, at its import paths, over penstock's driving logs.

`from l5kit.data import ChunkedDataset` becomes `from penstock_driving.l5kit.data import ChunkedDataset`, and so for
`cle`, `configs`, `dataset`, `evaluation`, `geometry`, `kinematic`, `random`, `rasterization`, `sampling`,
`simulation`, `vectorization` and `visualization`; the names used most are here as well. What differs, and why,
is in `docs/logs.md`.
"""

from penstock_driving.l5kit.configs import load_config_data, save_config_data
from penstock_driving.l5kit.data import (
    ChunkedDataset,
    LocalDataManager,
    MapAPI,
    get_combined_scenes,
    zarr_concat,
    zarr_scenes_chop,
    zarr_split,
)
from penstock_driving.l5kit.dataset import (
    AgentDataset,
    EgoAgentDatasetVectorized,
    EgoDataset,
    EgoDatasetVectorized,
    select_agents,
)
from penstock_driving.l5kit.geometry import transform_points
from penstock_driving.l5kit.rasterization import build_rasterizer
from penstock_driving.l5kit.vectorization import build_vectorizer

__all__ = [
    "AgentDataset",
    "ChunkedDataset",
    "EgoAgentDatasetVectorized",
    "EgoDataset",
    "EgoDatasetVectorized",
    "LocalDataManager",
    "MapAPI",
    "build_rasterizer",
    "build_vectorizer",
    "get_combined_scenes",
    "load_config_data",
    "save_config_data",
    "select_agents",
    "transform_points",
    "zarr_concat",
    "zarr_scenes_chop",
    "zarr_split",
]
