"""Parts of the four arrays, as structured arrays in memory: which rows belong to which, which meet a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.formats.l5kit import LABELS, TL_FACE_LABEL_TO_INDEX
from penstock_driving.kernels.agents import OF_INTEREST
from penstock_driving.logs import interest_of

PERCEPTION_LABELS_TO_KEEP = list(LABELS[OF_INTEREST.start : OF_INTEREST.stop])
PERCEPTION_LABEL_INDICES_TO_KEEP = list(range(OF_INTEREST.start, OF_INTEREST.stop))


def filter_agents_by_labels(agents: AnyArray, threshold: float = 0.5) -> AnyArray:
    """Those that take part in traffic with more than `threshold`."""
    return agents[interest_of(agents["label_probabilities"]) > np.float32(threshold)]


def filter_agents_by_distance(agents: AnyArray, centroid: AnyArray, max_distance: float) -> AnyArray:
    """Those nearer to `centroid` `[2]` than `max_distance` metres, nearest first."""
    away = np.linalg.norm(agents["centroid"] - centroid, axis=-1)
    order = np.argsort(away, kind="stable")
    return agents[order[away[order] < max_distance]]


def filter_agents_by_track_id(agents: AnyArray, track_id: int) -> AnyArray:
    return agents[agents["track_id"] == track_id]


def filter_agents_by_frames(frames: AnyArray, agents: Any) -> list[AnyArray]:
    """Return the agents of each of `frames`, whose intervals index `agents`; a single frame needs no axis."""
    return [agents[get_agents_slice_from_frames(frame)] for frame in np.atleast_1d(frames)]


def filter_tl_faces_by_frames(frames: AnyArray, tl_faces: Any) -> list[AnyArray]:
    """Return the faces of each of `frames`, whose intervals index `tl_faces`; a single frame needs no axis."""
    return [tl_faces[get_tl_faces_slice_from_frames(frame)] for frame in np.atleast_1d(frames)]


def filter_tl_faces_by_status(tl_faces: AnyArray, status: str) -> AnyArray:
    """Return the faces whose `status` (ACTIVE, INACTIVE, UNKNOWN) is above 0."""
    if status not in TL_FACE_LABEL_TO_INDEX:
        raise DataError(f"expected a status among {list(TL_FACE_LABEL_TO_INDEX)}, got {status!r}")
    return tl_faces[tl_faces["traffic_light_face_status"][:, TL_FACE_LABEL_TO_INDEX[status]] > 0]


def get_frames_slice_from_scenes(scene_a: Any, scene_b: Any = None) -> slice:
    """Return the slice of frames from the first of one scene to the last of another, or of the same scene."""
    return _from_to(scene_a, scene_b, "frame_index_interval")


def get_agents_slice_from_frames(frame_a: Any, frame_b: Any = None) -> slice:
    """Return the slice of agents from the first of one frame to the last of another, or of the same frame."""
    return _from_to(frame_a, frame_b, "agent_index_interval")


def get_tl_faces_slice_from_frames(frame_a: Any, frame_b: Any = None) -> slice:
    """Return the slice of faces from the first of one frame to the last of another, or of the same frame."""
    return _from_to(frame_a, frame_b, "traffic_light_faces_index_interval")


def _from_to(first: Any, last: Any, field: str) -> slice:
    last = first if last is None else last
    return slice(int(first[field][0]), int(last[field][1]))


def get_other_agents_ids(
    all_agents_ids: AnyArray, priority_ids: AnyArray, selected_track_id: int | None, max_agents: int
) -> list[np.uint64]:
    """Return at most `max_agents` different ids other than `selected_track_id`, priority ids first, in input order."""
    both = np.concatenate([priority_ids, all_agents_ids])
    ids, first = np.unique(both, return_index=True)
    wanted = ids[np.argsort(first)]
    return list(wanted if selected_track_id is None else wanted[wanted != selected_track_id])[:max_agents]
