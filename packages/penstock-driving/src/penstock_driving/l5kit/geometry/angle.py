"""Angles between vectors, and between angles."""

from __future__ import annotations

import math

import numpy as np

from penstock.core.arrays import AnyArray
from penstock_driving.geometry import angular_distance

__all__ = ["angle_between_vectors", "angular_distance", "compute_yaw_around_north_from_direction"]


def angle_between_vectors(v1: AnyArray, v2: AnyArray) -> float:
    """Return the angle between two vectors of equal length, 0 to pi."""
    one, two = v1 * np.linalg.norm(v2), v2 * np.linalg.norm(v1)
    return 2 * math.atan2(float(np.linalg.norm(one - two)), float(np.linalg.norm(one + two)))


def compute_yaw_around_north_from_direction(direction_vector: AnyArray) -> float:
    """Return the angle between a direction `[2]` and the y axis, 0 to pi."""
    return angle_between_vectors(direction_vector, np.array([0.0, 1.0]))
