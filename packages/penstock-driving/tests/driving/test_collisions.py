"""Which side of a box is hit, against polygons cut by half-planes and points along the sides."""

from __future__ import annotations

import numpy as np
import pytest

from penstock_driving.collisions import NONE, CollisionType, collision_types
from penstock_driving.formats.l5kit import AGENT_DTYPE
from penstock_driving.geometry import box_corners
from penstock_driving.l5kit.evaluation.metrics import detect_collision

POINTS = 4001


def common(one: np.ndarray, other: np.ndarray) -> float:
    """The area that two convex polygons, both clockwise, have in common: one cut by each edge of the other."""
    left = one
    for begin, end in zip(other, np.roll(other, -1, axis=0), strict=True):
        kept: list[np.ndarray] = []
        side = (end[0] - begin[0]) * (left[:, 1] - begin[1]) - (end[1] - begin[1]) * (left[:, 0] - begin[0])
        for i in range(len(left)):
            if side[i - 1] * side[i] < 0:
                kept.append(left[i - 1] + (left[i] - left[i - 1]) * side[i - 1] / (side[i - 1] - side[i]))
            if side[i] <= 0:
                kept.append(left[i])
        left = np.array(kept).reshape(-1, 2)
    x, y = left.T
    return abs(float((x * np.roll(y, 1) - y * np.roll(x, 1)).sum())) / 2


def inside(points: np.ndarray, box: np.ndarray) -> np.ndarray:
    edges = np.roll(box, -1, axis=0) - box
    off = points[..., None, :] - box
    return (edges[:, 0] * off[..., 1] - edges[:, 1] * off[..., 0] <= 0).all(axis=-1)


@pytest.mark.parametrize("seed", range(4))
def test_sides_are_those_of_polygons_and_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 150
    centroid, other = rng.normal(0, 1, (n, 2)), rng.normal(0, 3, (n, 2))
    yaws = rng.uniform(-7, 7, (2, n))
    extents = rng.uniform(0.5, 6, (2, n, 3))
    types = collision_types(centroid, yaws[0], extents[0], other, yaws[1], extents[1])
    ours, theirs = box_corners(centroid, extents[0], yaws[0]), box_corners(other, extents[1], yaws[1])
    assert len(set(types.tolist())) == 4
    share = np.linspace(0, 1, POINTS)[:, None]
    for i in range(n):
        assert (types[i] != NONE) == (common(ours[i], theirs[i]) > 0)
        if types[i] == NONE:
            continue
        rear_right, rear_left, front_left, front_right = ours[i]
        pairs = ((front_left, front_right), (rear_right, rear_left), (rear_left, front_left), (rear_right, front_right))
        metres = [inside(a + share * (b - a), theirs[i]).mean() * np.linalg.norm(b - a) for a, b in pairs]
        order = np.argsort(metres)
        if metres[order[-1]] - metres[order[-2]] > 0.01:
            assert types[i] == min(int(order[-1]), 2)


def test_pairs_broadcast_and_what_is_equal() -> None:
    ego = np.zeros((3, 1, 2)), np.zeros((3, 1)), np.tile([4.0, 2.0], (3, 1, 1))
    others = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0001, 0.0]]), np.zeros(4), np.full((4, 2), [4.0, 2.0])
    types = collision_types(*ego, *others)
    assert types.shape == (3, 4)
    assert types[2].tolist() == [CollisionType.SIDE, CollisionType.FRONT, CollisionType.SIDE, NONE]
    inner = np.zeros(2), np.array(0.3), np.array([0.2, 0.2])
    assert collision_types(*(part[0] for part in ego), *inner).tolist() == [CollisionType.FRONT]
    assert collision_types(*ego, np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2))).shape == (3, 0)


def test_the_first_agent_that_is_touched() -> None:
    agents = np.zeros(3, AGENT_DTYPE)
    agents["centroid"] = [[1000, 1000], [0, 0], [0, 0]]
    agents["extent"], agents["yaw"], agents["track_id"] = [5, 2, 2], 1, [1, 2, 3]
    ego = np.zeros(2), np.array([1.0]), np.array([5.0, 2.0, 2.0])
    assert detect_collision(*ego, agents) == (CollisionType.SIDE, 2)
    assert detect_collision(*ego, agents[:1]) is None
    assert detect_collision(*ego, agents[:0]) is None
