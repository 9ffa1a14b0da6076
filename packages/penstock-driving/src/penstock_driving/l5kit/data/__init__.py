"""Datasets as they are stored: `ChunkedDataset`, filters, labels, the map, and paths of files."""

from penstock_driving.l5kit.data.combine import get_combined_scenes
from penstock_driving.l5kit.data.filter import (
    filter_agents_by_distance,
    filter_agents_by_frames,
    filter_agents_by_labels,
    filter_agents_by_track_id,
    filter_tl_faces_by_frames,
    filter_tl_faces_by_status,
    get_agents_slice_from_frames,
    get_frames_slice_from_scenes,
    get_tl_faces_slice_from_frames,
)
from penstock_driving.l5kit.data.labels import (
    PERCEPTION_LABEL_TO_INDEX,
    PERCEPTION_LABELS,
    TL_FACE_LABEL_TO_INDEX,
    TL_FACE_LABELS,
)
from penstock_driving.l5kit.data.local_data_manager import DataManager, LocalDataManager
from penstock_driving.l5kit.data.map_api import MapAPI
from penstock_driving.l5kit.data.zarr_dataset import (
    AGENT_DTYPE,
    FRAME_DTYPE,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    ChunkedDataset,
)
from penstock_driving.l5kit.data.zarr_utils import zarr_concat, zarr_scenes_chop, zarr_split

__all__ = [
    "AGENT_DTYPE",
    "FRAME_DTYPE",
    "PERCEPTION_LABELS",
    "PERCEPTION_LABEL_TO_INDEX",
    "SCENE_DTYPE",
    "TL_FACE_DTYPE",
    "TL_FACE_LABELS",
    "TL_FACE_LABEL_TO_INDEX",
    "ChunkedDataset",
    "DataManager",
    "LocalDataManager",
    "MapAPI",
    "filter_agents_by_distance",
    "filter_agents_by_frames",
    "filter_agents_by_labels",
    "filter_agents_by_track_id",
    "filter_tl_faces_by_frames",
    "filter_tl_faces_by_status",
    "get_agents_slice_from_frames",
    "get_combined_scenes",
    "get_frames_slice_from_scenes",
    "get_tl_faces_slice_from_frames",
    "zarr_concat",
    "zarr_scenes_chop",
    "zarr_split",
]
