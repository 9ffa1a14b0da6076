"""Which boxes hit each other, and with which side: for any number of pairs at once."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import BoolArray, FloatingArray, StructArray
from penstock_driving.geometry import CORNERS
from penstock_driving.logs import EGO_EXTENT
from penstock_driving.rasterize.scenes import ranges

NONE = -1
"""Of pairs that do not touch."""
_SIDES = np.array([[3, 2], [1, 0], [2, 1], [3, 0]])  # of CORNERS: front, rear, left, right


class CollisionType(IntEnum):
    """The side of the ego that was hit.

    Example:
        >>> CollisionType(2).name
        'SIDE'
    """

    FRONT = 0
    REAR = 1
    SIDE = 2


def collision_types(
    centroid: FloatingArray,
    yaw: FloatingArray,
    extent: FloatingArray,
    other_centroid: FloatingArray,
    other_yaw: FloatingArray,
    other_extent: FloatingArray,
) -> npt.NDArray[np.int8]:
    """Find out with which side boxes hit other boxes. Leading axes broadcast.

    The side with most metres within the other box counts. Of equal sides, or if no side is within, it is the first of
    front, rear, left and right. Cost: some microseconds a pair that touches, much less for others.

    Args:
        centroid: `[..., 2]` metres of the first box.
        yaw: `[...]` radians of the first box.
        extent: `[..., 2 or more]` metres: length and width of the first box.
        other_centroid: `[..., 2]` metres of the other box.
        other_yaw: `[...]` radians of the other box.
        other_extent: `[..., 2 or more]` metres: length and width of the other box.

    Returns:
        `[...]` int8: the `CollisionType` of each pair, `NONE` (-1) if the boxes do not touch.

    Example:
        >>> ego, cars = (np.zeros(2), np.array(0.0), np.array([4.0, 2.0])), np.array([[3.0, 0], [0, 1.5], [9, 9]])
        >>> collision_types(*ego, cars, np.zeros(3), np.full((3, 2), [4.0, 2.0])).tolist()
        [0, 2, -1]
    """
    off = np.asarray(other_centroid, np.float64) - centroid
    turn = np.subtract(other_yaw, yaw, dtype=np.float64)
    shape = np.broadcast_shapes(off.shape[:-1], turn.shape, extent.shape[:-1], other_extent.shape[:-1])
    half, other = (np.broadcast_to(e[..., :2], (*shape, 2)) * 0.5 for e in (extent, other_extent))
    centre, turn = np.broadcast_to(_turned(off, -np.asarray(yaw)), (*shape, 2)), np.broadcast_to(turn, shape)
    types = np.full(shape, NONE, np.int8)
    hit = np.nonzero(_touching(centre, turn, half, other))
    lengths = _within(centre[hit], turn[hit], half[hit], other[hit])
    types[hit] = np.minimum(lengths.argmax(axis=-1), CollisionType.SIDE)
    return types


def ego_collisions(
    pose: FloatingArray, agents: StructArray, spans: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.int8]:
    """Find out how the ego hits agents, in many frames at once.

    Args:
        pose: `[F, 3]` x, y (metres) and yaw (radians) of the ego in each frame.
        agents: Rows of the agents' dtype.
        spans: `[F, 2]` the rows of the agents of each frame, from the first to the one behind the last.

    Returns:
        `[F]` int8: the `CollisionType` of the first agent of each frame that the ego touches, `NONE` without one.

    Example:
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE
        >>> agents = np.zeros(3, AGENT_DTYPE)
        >>> agents["centroid"], agents["extent"] = [[40, 0], [4, 0], [-4, 0]], [4, 2, 1]
        >>> ego_collisions(np.zeros((3, 3)), agents, np.array([[0, 1], [0, 2], [0, 3]])).tolist()
        [-1, 0, 0]
    """
    rows, frame = ranges(np.asarray(spans, np.int64))
    others, ego = agents[rows], np.asarray(pose, np.float64)[frame]
    boxes = others["centroid"], others["yaw"], others["extent"]
    types = collision_types(ego[:, :2], ego[:, 2], np.array(EGO_EXTENT), *boxes)
    hit = np.flatnonzero(types != NONE)
    frames, first = np.unique(frame[hit], return_index=True)
    collisions = np.full(len(pose), NONE, np.int8)
    collisions[frames] = types[hit[first]]
    return collisions


def _turned(points: FloatingArray, angle: FloatingArray) -> FloatingArray:
    """`[..., 2]` points, turned about the origin."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([points[..., 0] * cos - points[..., 1] * sin, points[..., 0] * sin + points[..., 1] * cos], axis=-1)


def _touching(centre: FloatingArray, turn: FloatingArray, half: FloatingArray, other: FloatingArray) -> BoolArray:
    """`[...]` whether no axis of either box keeps them apart; the first is at the origin, along the axes."""
    cos, sin = np.abs(np.cos(turn)), np.abs(np.sin(turn))
    across = np.stack([np.stack([cos, sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=-2)  # [..., 2, 2]
    apart = np.abs(centre) > half + (across @ other[..., None])[..., 0]
    apart |= np.abs(_turned(centre, -turn)) > other + (across @ half[..., None])[..., 0]
    return ~np.asarray(apart.any(axis=-1))


def _within(centre: FloatingArray, turn: FloatingArray, half: FloatingArray, other: FloatingArray) -> FloatingArray:
    """`[m, 4]` metres of each side of the first box within the other."""
    ends = 2 * CORNERS[_SIDES] * half[:, None, None]  # [m, side, end, 2]
    seen = _turned(ends - centre[:, None, None], -turn[:, None, None])  # as the other box has them
    begin, way = seen[:, :, 0], seen[:, :, 1] - seen[:, :, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        cuts = np.stack([(-other[:, None] - begin) / way, (other[:, None] - begin) / way])
    along = (way == 0) & (np.abs(begin) <= other[:, None])  # a side along an edge is never cut by it
    low = np.where(along, 0, cuts.min(axis=0)).max(axis=-1, initial=0)
    high = np.where(along, 1, cuts.max(axis=0)).min(axis=-1, initial=1)
    share = np.where(np.isnan(low) | np.isnan(high), 0, high - low)
    return np.maximum(share, 0) * np.linalg.norm(way, axis=-1)
