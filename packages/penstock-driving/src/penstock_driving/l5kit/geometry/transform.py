"""Points moved by matrices, poses, and the globe."""

from __future__ import annotations

from penstock.core.arrays import AnyArray, FloatArray
from penstock_driving.geometry import (
    ecef_to_geodetic,
    geodetic_to_ecef,
    pose_matrix,
    rotation33_as_yaw,
    transform_points,
    vertical_flip,
    yaw_as_rotation33,
)

__all__ = [
    "compute_agent_pose",
    "ecef_to_geodetic",
    "geodetic_to_ecef",
    "rotation33_as_yaw",
    "transform_point",
    "transform_points",
    "vertical_flip",
    "yaw_as_rotation33",
]


def transform_point(point: AnyArray, transf_matrix: AnyArray) -> AnyArray:
    """Transform one point `[F]` by a matrix `[F + 1, F + 1]`."""
    return transform_points(point[None], transf_matrix)[0]


def compute_agent_pose(agent_centroid_m: AnyArray, agent_yaw_rad: float) -> FloatArray:
    """Return `world_from_agent` `[3, 3]` of an agent at `[2]` metres that looks along `agent_yaw_rad`."""
    return pose_matrix(agent_centroid_m, agent_yaw_rad)
