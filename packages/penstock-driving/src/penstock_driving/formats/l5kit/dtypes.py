"""Rows and labels as the format has them, under its own names; little endian, packed."""

from __future__ import annotations

import numpy as np

FORMAT_VERSION = 2

SCENE_DTYPE = np.dtype(
    [("frame_index_interval", "<i8", (2,)), ("host", "<U16"), ("start_time", "<i8"), ("end_time", "<i8")]
)
"""A drive: its frames `[a, b)`, the car, and when it was, in ns."""

FRAME_DTYPE = np.dtype(
    [
        ("timestamp", "<i8"),
        ("agent_index_interval", "<i8", (2,)),
        ("traffic_light_faces_index_interval", "<i8", (2,)),
        ("ego_translation", "<f8", (3,)),
        ("ego_rotation", "<f8", (3, 3)),
    ]
)
"""A moment, in ns: its agents and faces `[a, b)`, and the pose of the car in the world, in metres."""

LABELS = (
    "PERCEPTION_LABEL_NOT_SET",
    "PERCEPTION_LABEL_UNKNOWN",
    "PERCEPTION_LABEL_DONTCARE",
    "PERCEPTION_LABEL_CAR",
    "PERCEPTION_LABEL_VAN",
    "PERCEPTION_LABEL_TRAM",
    "PERCEPTION_LABEL_BUS",
    "PERCEPTION_LABEL_TRUCK",
    "PERCEPTION_LABEL_EMERGENCY_VEHICLE",
    "PERCEPTION_LABEL_OTHER_VEHICLE",
    "PERCEPTION_LABEL_BICYCLE",
    "PERCEPTION_LABEL_MOTORCYCLE",
    "PERCEPTION_LABEL_CYCLIST",
    "PERCEPTION_LABEL_MOTORCYCLIST",
    "PERCEPTION_LABEL_PEDESTRIAN",
    "PERCEPTION_LABEL_ANIMAL",
    "AVRESEARCH_LABEL_DONTCARE",
)
"""What an agent may be, in the order of `label_probabilities`. Version 1 called them so."""

PERCEPTION_LABELS = LABELS
PERCEPTION_LABEL_TO_INDEX = {name: i for i, name in enumerate(LABELS)}

TL_FACE_LABELS = ("ACTIVE", "INACTIVE", "UNKNOWN")
"""What a face of a traffic light may do, in the order of `traffic_light_face_status`."""

TL_FACE_LABEL_TO_INDEX = {name: i for i, name in enumerate(TL_FACE_LABELS)}

AGENT_DTYPE = np.dtype(
    [
        ("centroid", "<f8", (2,)),
        ("extent", "<f4", (3,)),
        ("yaw", "<f4"),
        ("velocity", "<f4", (2,)),
        ("track_id", "<u8"),
        ("label_probabilities", "<f4", (len(LABELS),)),
    ]
)
"""Another road user in one frame, in the world: metres, radians, metres a second; length, width and height."""

TL_FACE_DTYPE = np.dtype(
    [
        ("face_id", "<U16"),
        ("traffic_light_id", "<U16"),
        ("traffic_light_face_status", "<f4", (len(TL_FACE_LABELS),)),
    ]
)
"""A face of a traffic light in one frame, as the map names it."""

DTYPES = {
    "scenes": SCENE_DTYPE,
    "frames": FRAME_DTYPE,
    "agents": AGENT_DTYPE,
    "traffic_light_faces": TL_FACE_DTYPE,
}
"""The four arrays by their names on disk."""

CHUNK_ROWS = {"scenes": 10_000, "frames": 10_000, "agents": 20_000, "traffic_light_faces": 10_000}
"""Rows of a chunk, as the original writes them."""
