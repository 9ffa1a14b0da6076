"""Geometry of driving logs, against what the original computed (`geometry.npz`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import DataError
from penstock_driving import geometry

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "l5kit" / "geometry.npz"


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN, allow_pickle=False) as file:
        return dict(file)


def test_points_move_as_in_the_original(golden) -> None:
    assert np.allclose(geometry.transform_points(golden["p2"], golden["m2"]), golden["t2"], rtol=0, atol=1e-9)
    assert np.allclose(geometry.transform_points(golden["p3"], golden["m3"]), golden["t3"], rtol=0, atol=1e-9)
    assert np.allclose(geometry.transform_points(golden["p3"], golden["m3"][0]), golden["t3b"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("points", "matrix"),
    [((5,), (3, 3)), ((5, 2), (4, 4)), ((5, 4), (5, 5)), ((5, 2), (5, 3, 3)), ((2, 5, 2), (3, 3, 3)), ((5, 2), (2, 3))],
)
def test_shapes_that_do_not_fit_are_named(points, matrix) -> None:
    with pytest.raises(DataError, match=r"expected points \[N, F\]"):
        geometry.transform_points(np.zeros(points), np.zeros(matrix))


def test_angles_are_those_of_the_original(golden) -> None:
    assert np.allclose(geometry.rotation33_as_yaw(golden["rotations"]), golden["yaws"], rtol=0, atol=1e-12)
    assert np.allclose(geometry.angular_distance(golden["ang_a"], 1.0), golden["ang"], rtol=0, atol=1e-12)


def test_matrices_are_those_of_the_original(golden) -> None:
    assert np.allclose(geometry.vertical_flip(golden["m2"], 224), golden["flip"], rtol=0, atol=1e-12)
    assert np.allclose(geometry.yaw_as_rotation33(0.3), golden["yaw33"], rtol=0, atol=1e-12)


def test_yaw_and_rotation_undo_each_other(rng) -> None:
    yaw = rng.uniform(-np.pi, np.pi, 50)
    assert np.allclose(geometry.rotation33_as_yaw(geometry.yaw_as_rotation33(yaw)), yaw)
    assert geometry.rotation33_as_yaw(np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])) == 0
    with pytest.raises(DataError, match="rotations"):
        geometry.rotation33_as_yaw(np.zeros((2, 3)))


def test_the_globe_is_that_of_the_original(golden) -> None:
    assert np.allclose(geometry.geodetic_to_ecef(golden["lla"]), golden["ecef"], rtol=0, atol=1e-6)
    back = geometry.ecef_to_geodetic(golden["ecef"])
    assert np.allclose(back[:2], golden["back"][:2], rtol=0, atol=1e-11)
    assert np.allclose(back[2], golden["back"][2], rtol=0, atol=1e-6)


def test_the_globe_is_undone_everywhere(rng) -> None:
    lla = np.stack([rng.uniform(-90, 90, 200), rng.uniform(-180, 180, 200), rng.uniform(-11000, 1e6, 200)], -1)
    lla[:2, 0] = 90, -90
    back = geometry.ecef_to_geodetic(geometry.geodetic_to_ecef(lla))
    assert np.allclose(back[:, 0], lla[:, 0], rtol=0, atol=1e-11)
    assert np.allclose(back[:, 2], lla[:, 2], rtol=0, atol=1e-6)
    assert np.allclose(back[2:, 1], lla[2:, 1], rtol=0, atol=1e-9)


def test_corners_are_the_pose_of_the_corners_at_home(rng) -> None:
    centroid, extent, yaw = rng.normal(size=(9, 2)), rng.uniform(1, 5, (9, 3)), rng.uniform(-3, 3, 9)
    poses = geometry.pose_matrix(centroid, yaw)
    home = geometry.CORNERS * extent[:, None, :2]
    assert np.allclose(geometry.box_corners(centroid, extent, yaw), geometry.transform_points(home, poses))
