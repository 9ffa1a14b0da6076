"""Transforms and angles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.geometry import (
    angular_distance,
    ecef_to_geodetic,
    geodetic_to_ecef,
    pose_matrix,
    rotation33_as_yaw,
    transform_points,
    vertical_flip,
    yaw_as_rotation33,
)

__all__ = [
    "angle_between_vectors",
    "angular_distance",
    "compute_agent_pose",
    "compute_yaw_around_north_from_direction",
    "ecef_to_geodetic",
    "geodetic_to_ecef",
    "rotation33_as_yaw",
    "transform_point",
    "transform_points",
    "vertical_flip",
    "yaw_as_rotation33",
]

Array = npt.NDArray[Any]


def transform_point(point: Array, transf_matrix: Array) -> Array:
    """One point `[F]` moved by a matrix `[F + 1, F + 1]`.

    >>> transform_point(np.array([1.0, 0.0]), np.array([[0.0, -1, 5], [1, 0, 0], [0, 0, 1]])).tolist()
    [5.0, 1.0]
    """
    return transform_points(point[None], transf_matrix)[0]


def compute_agent_pose(agent_centroid_m: Array, agent_yaw_rad: float) -> npt.NDArray[np.float64]:
    """`world_from_agent` `[3, 3]` of an agent at `[2]` metres that looks along `agent_yaw_rad`.

    >>> compute_agent_pose(np.array([3.0, 4.0]), 0.0)[:, 2].tolist()
    [3.0, 4.0, 1.0]
    """
    return pose_matrix(agent_centroid_m, agent_yaw_rad)


def angle_between_vectors(v1: Array, v2: Array) -> float:
    """The angle between two vectors of equal length, 0 to pi.

    >>> angle_between_vectors(np.array([1.0, 0.0]), np.array([0.0, 2.0])) == math.pi / 2
    True
    """
    one, two = v1 * np.linalg.norm(v2), v2 * np.linalg.norm(v1)
    return 2 * math.atan2(float(np.linalg.norm(one - two)), float(np.linalg.norm(one + two)))


def compute_yaw_around_north_from_direction(direction_vector: Array) -> float:
    """The angle between a direction `[2]` and the y axis, 0 to pi.

    >>> compute_yaw_around_north_from_direction(np.array([0.0, 2.0]))
    0.0
    """
    return angle_between_vectors(direction_vector, np.array([0.0, 1.0]))
