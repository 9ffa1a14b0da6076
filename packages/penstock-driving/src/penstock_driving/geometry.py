"""Geometry of driving logs: transforms, angles, poses, boxes and the globe, each for whole batches at once.

Matrices are homogeneous and act on columns: `world_from_agent [3, 3]` maps a point of the agent's frame to the world.
Angles are radians, counter-clockwise; lengths are metres.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, FloatArray, FloatingArray
from penstock.errors import DataError

WGS84_MAJOR = 6378137.0  # metres
WGS84_MINOR = 6356752.31424518
CORNERS = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]]) * 0.5  # of a box of extent 1, in the order they are drawn


def transform_points(points: AnyArray, matrix: AnyArray) -> FloatingArray:
    """Move points by homogeneous matrices. The last rows of the matrices are not read.

    Args:
        points: `[N, F]` or `[B, N, F]` metres, where F is 2 or 3.
        matrix: `[F + 1, F + 1]` for all points, or `[B, F + 1, F + 1]`, one for each row of `points`.

    Returns:
        Moved points, in the shape of `points`.

    Raises:
        DataError: The shapes do not fit together.

    Example:
        >>> transform_points(np.array([[1.0, 0.0]]), np.array([[0.0, -1, 5], [1, 0, 0], [0, 0, 1]])).tolist()
        [[5.0, 1.0]]
    """
    features = points.shape[-1] if points.ndim in (2, 3) else 0
    fits = matrix.ndim in (2, 3) and matrix.ndim <= points.ndim and matrix.shape[-2:] == (features + 1, features + 1)
    if features not in (2, 3) or not fits or (matrix.ndim == 3 and len(matrix) not in (1, len(points))):
        raise DataError(
            f"expected points [N, F] or [B, N, F] with F of 2 or 3, and a matrix [F + 1, F + 1] or one for each of B, "
            f"got points {list(points.shape)} and matrices {list(matrix.shape)}"
        )
    turned = np.swapaxes(matrix, -1, -2)
    return points @ turned[..., :features, :features] + turned[..., -1:, :features]


def pose_matrix(position: AnyArray, yaw: AnyArray | float) -> FloatArray:
    """Return the matrix that maps points of an agent's frame to the world.

    Sine and cosine are computed in the dtype of `yaw`.

    Args:
        position: `[..., 2 or more]` metres in the world; x and y are used.
        yaw: `[...]` radians.

    Returns:
        `[..., 3, 3]` float64, `world_from_agent`.

    Example:
        >>> pose_matrix(np.array([3.0, 4.0]), 0.0).tolist()
        [[1.0, -0.0, 3.0], [0.0, 1.0, 4.0], [0.0, 0.0, 1.0]]
    """
    sine, cosine = np.sin(yaw), np.cos(yaw)
    pose = np.zeros((*np.shape(yaw), 3, 3))
    pose[..., 0, 0] = cosine
    pose[..., 0, 1] = -sine
    pose[..., 0, 2] = position[..., 0]
    pose[..., 1, 0] = sine
    pose[..., 1, 1] = cosine
    pose[..., 1, 2] = position[..., 1]
    pose[..., 2, 2] = 1
    return pose


def rotation33_as_yaw(rotation: AnyArray) -> FloatArray:
    """Return the yaw of rotations: the last of the Euler angles about the fixed axes x, y, z.

    A matrix that looks straight up or down has no yaw; the result is 0 then.

    Args:
        rotation: `[..., 3, 3]` rotation matrices.

    Returns:
        `[...]` radians, float64.

    Raises:
        DataError: The matrices have another shape.

    Example:
        >>> float(rotation33_as_yaw(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]))) == np.pi / 2
        True
    """
    matrix = np.asarray(rotation, np.float64)
    if matrix.shape[-2:] != (3, 3):
        raise DataError(f"expected rotations [..., 3, 3], got {list(matrix.shape)}")
    level = np.hypot(matrix[..., 0, 0], matrix[..., 1, 0]) > 4 * np.finfo(np.float64).eps
    return np.where(level, np.arctan2(matrix[..., 1, 0], matrix[..., 0, 0]), 0.0)


def yaw_as_rotation33(yaw: AnyArray | float) -> FloatArray:
    """Return rotations about the z axis.

    Args:
        yaw: `[...]` radians.

    Returns:
        `[..., 3, 3]` float64.

    Example:
        >>> yaw_as_rotation33(0.0).tolist()
        [[1.0, -0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return pose_matrix(np.zeros((*np.shape(yaw), 2)), yaw)


def vertical_flip(matrix: AnyArray, height: int) -> FloatArray:
    """Flip the y axis of a matrix that maps to pixels: y becomes `height` - y.

    Args:
        matrix: `[..., 3, 3]`.
        height: Rows of the raster, in pixels.

    Returns:
        `[..., 3, 3]` float64, a copy.

    Example:
        >>> vertical_flip(np.eye(3), 10)[1].tolist()
        [0.0, -1.0, 10.0]
    """
    flipped = np.array(matrix, np.float64)
    flipped[..., 1, :] = 0 - flipped[..., 1, :]  # and no negative zeros
    flipped[..., 1, 2] += height
    return flipped


def angular_distance(left: npt.ArrayLike, right: npt.ArrayLike) -> Any:
    """Return `left` - `right`, wrapped to [-pi, pi).

    Args:
        left: `[...]` radians.
        right: `[...]` radians; shapes broadcast.

    Returns:
        `[...]` radians.

    Example:
        >>> round(float(angular_distance(3.0, -3.0)), 4)
        -0.2832
    """
    return (np.asarray(left) - np.asarray(right) + np.pi) % (2 * np.pi) - np.pi


def box_corners(centroid: AnyArray, extent: AnyArray, yaw: AnyArray) -> FloatArray:
    """Return the corners of boxes in the world: rear right, rear left, front left, front right.

    Sine and cosine are computed in the dtype of `yaw`.

    Args:
        centroid: `[N, 2]` metres.
        extent: `[N, 2 or more]` metres: length and width.
        yaw: `[N]` radians.

    Returns:
        `[N, 4, 2]` float64 metres.

    Example:
        >>> box_corners(np.zeros((1, 2)), np.array([[4.0, 2.0]]), np.zeros(1))[0].tolist()
        [[-2.0, -1.0], [-2.0, 1.0], [2.0, 1.0], [2.0, -1.0]]
    """
    local = CORNERS * extent[:, None, :2]
    sine, cosine = np.sin(yaw)[:, None], np.cos(yaw)[:, None]
    corners = np.empty((len(yaw), 4, 2))
    corners[..., 0] = local[..., 0] * cosine + local[..., 1] * -sine
    corners[..., 1] = local[..., 0] * sine + local[..., 1] * cosine
    return corners + centroid[:, None, :2]


def geodetic_to_ecef(lla: npt.ArrayLike) -> FloatArray:
    """Convert latitude, longitude and altitude on WGS84 to earth-centred coordinates.

    Args:
        lla: `[..., 2 or 3]`: latitude and longitude in degrees, altitude in metres (0 without one).

    Returns:
        `[..., 3]` float64 metres.

    Example:
        >>> geodetic_to_ecef([0.0, 0.0]).tolist()
        [6378137.0, 0.0, 0.0]
    """
    point = np.asarray(lla, np.float64)
    latitude, longitude = np.radians(point[..., 0]), np.radians(point[..., 1])
    altitude = point[..., 2] if point.shape[-1] > 2 else 0.0
    normal = WGS84_MAJOR**2 / np.sqrt((WGS84_MAJOR * np.cos(latitude)) ** 2 + (WGS84_MINOR * np.sin(latitude)) ** 2)
    x = (normal + altitude) * np.cos(latitude) * np.cos(longitude)
    y = (normal + altitude) * np.cos(latitude) * np.sin(longitude)
    z = (normal * (WGS84_MINOR / WGS84_MAJOR) ** 2 + altitude) * np.sin(latitude)
    return np.stack([x, y, z], axis=-1)


def ecef_to_geodetic(point: npt.ArrayLike) -> FloatArray:
    """Convert earth-centred coordinates to latitude, longitude and altitude on WGS84.

    The latitude is found by fixed-point iteration. Error: below a micrometre, from the ocean floor to orbit.

    Args:
        point: `[..., 3]` metres.

    Returns:
        `[..., 3]` float64: latitude and longitude in degrees, altitude in metres.

    Example:
        >>> ecef_to_geodetic([6378137.0, 0.0, 0.0]).tolist()
        [0.0, 0.0, 0.0]
    """
    x, y, z = np.moveaxis(np.asarray(point, np.float64), -1, 0)
    ratio = 1 - (WGS84_MINOR / WGS84_MAJOR) ** 2  # squared eccentricity
    flat = np.hypot(x, y)
    latitude = np.arctan2(z, flat * (1 - ratio))
    for _ in range(8):  # each step gains a factor of about 150
        normal = WGS84_MAJOR / np.sqrt(1 - ratio * np.sin(latitude) ** 2)
        latitude = np.arctan2(z + ratio * normal * np.sin(latitude), flat)
    normal = WGS84_MAJOR / np.sqrt(1 - ratio * np.sin(latitude) ** 2)
    # along the normal, by whichever of its two legs is the longer: exact at the equator and at the poles
    altitude = flat * np.cos(latitude) + z * np.sin(latitude) - normal * (1 - ratio * np.sin(latitude) ** 2)
    return np.stack([np.degrees(latitude), np.degrees(np.arctan2(y, x)), altitude], axis=-1)


def enu_to_ecef(enu: AnyArray, latitude: AnyArray, longitude: AnyArray) -> FloatArray:
    """Convert east, north, up about origins on the ground to earth-centred coordinates.

    Args:
        enu: `[N, 3]` metres east, north and up of the origin.
        latitude: `[N]` degrees of the origins, at altitude 0.
        longitude: `[N]` degrees of the origins.

    Returns:
        `[N, 3]` float64 metres.

    Example:
        >>> enu_to_ecef(np.array([[0.0, 0.0, 2.0]]), np.zeros(1), np.zeros(1)).tolist()
        [[6378139.0, 0.0, 0.0]]
    """
    east = enu[:, 0]
    north = enu[:, 1]
    up = enu[:, 2]
    origin = geodetic_to_ecef(np.stack([latitude, longitude], axis=-1))
    phi, theta = np.radians(latitude), np.radians(longitude)
    outward = np.cos(phi) * up - np.sin(phi) * north
    polar = np.sin(phi) * up + np.cos(phi) * north
    shift = [
        np.cos(theta) * outward - np.sin(theta) * east,
        np.sin(theta) * outward + np.cos(theta) * east,
        polar,
    ]
    return origin + np.stack(shift, axis=-1)
