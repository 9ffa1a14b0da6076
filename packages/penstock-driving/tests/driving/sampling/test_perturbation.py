"""Perturbed drives: drawn by position, feasible for a car, back on their way, and only where they may be."""

from __future__ import annotations

import numpy as np
import pytest

from driving.sampling.conftest import configured
from penstock.data.map_dataset import planned_samples
from penstock.errors import DataError
from penstock_driving.ego import EgoDataset
from penstock_driving.kinematics import EFFORT, MOST_ACCELERATION, MOST_TURN, feasible, follow
from penstock_driving.perturbation import AckermannPerturbation, Gaussian, Uniform, uniforms

AWAY = Uniform((-2, -1, -0.2), (2, 1, 0.2))


def cost(start: np.ndarray, goal: np.ndarray, controls: np.ndarray) -> np.ndarray:
    off = follow(start, controls)[..., :3] - goal
    off[..., 2] = (off[..., 2] + np.pi) % (2 * np.pi) - np.pi
    return 0.5 * (off**2).sum(axis=(1, 2)) + 0.5 * EFFORT**2 * (controls**2).sum(axis=(1, 2))


@pytest.fixture
def drives(rng) -> tuple[np.ndarray, np.ndarray]:
    """Where cars begin, and where they would like to be: on the way of another one that turns."""
    speed = rng.uniform(0, 2, 12)
    start = np.concatenate([rng.normal(0, 3, (12, 2)), rng.uniform(-3, 3, (12, 1)), speed[:, None]], axis=1)
    controls = rng.normal(0, 0.02, (12, 20, 2))
    goal = follow(start, controls)[..., :3]
    return start + rng.normal(0, [1, 1, 0.1, 0], (12, 4)), goal


def test_ways_keep_limits_and_cannot_be_bettered_nearby(drives, rng) -> None:
    start, goal = drives
    way, controls = feasible(start, goal)
    np.testing.assert_allclose(way, follow(start, controls))
    assert np.abs(controls[..., 0]).max() <= MOST_TURN
    assert np.abs(controls[..., 1]).max() <= MOST_ACCELERATION
    best = cost(start, goal, controls)
    assert (best < cost(start, goal, controls * 0) - 0.01).any()
    most = np.array([MOST_TURN, MOST_ACCELERATION])
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(50):
            near = np.clip(controls + rng.normal(0, size, controls.shape) * most, -most, most)
            assert (cost(start, goal, near) > best - 1e-5 * (1 + best)).all()


def test_limits_are_met_where_they_are_needed() -> None:
    goal = np.array([[[k * 0.1, 8.0, np.pi / 2] for k in range(15)]])
    _, controls = feasible(np.array([[0.0, 0, 0, 2]]), goal)
    assert np.isclose(np.abs(controls[..., 0]).max(), MOST_TURN)
    assert np.isclose(np.abs(controls[..., 1]).max(), MOST_ACCELERATION)


def test_each_way_depends_on_itself_alone(drives) -> None:
    start, goal = drives
    whole = feasible(start, goal)[0]
    for i in range(len(start)):
        np.testing.assert_allclose(feasible(start[i : i + 1], goal[i : i + 1])[0][0], whole[i], atol=1e-9)


def test_draws_follow_from_seed_and_position_alone() -> None:
    drawn = uniforms(1, np.arange(4000))
    assert 0 <= drawn.min() < drawn.max() < 1
    assert np.array_equal(uniforms(1, np.array([7]))[0], drawn[7])
    assert not np.array_equal(uniforms(2, np.arange(4000)), drawn)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.5, atol=0.03)
    normal = Gaussian((1, 0, 0), (2, 1, 0.1)).draw(drawn[:, 1:])
    np.testing.assert_allclose(normal.mean(axis=0), [1, 0, 0], atol=0.15)
    np.testing.assert_allclose(normal.std(axis=0), [2, 1, 0.1], rtol=0.05)


@pytest.fixture
def data(source) -> EgoDataset:
    return EgoDataset(configured(5, 20), source, perturbation=AckermannPerturbation(AWAY, 0.5, seed=4))


def test_samples_are_moved_by_position(source, data) -> None:
    plain = EgoDataset(configured(5, 20), source)
    rows = np.arange(40, 80)
    straight, moved = planned_samples(plain).at(rows), planned_samples(data).at(rows)
    same = (straight["world_from_agent"] == moved["world_from_agent"]).all(axis=(1, 2))
    assert 8 < same.sum() < 32
    for name in straight:
        assert np.array_equal(straight[name][same], moved[name][same]), name
    again = planned_samples(data).at(rows[::-1])
    assert np.array_equal(again["target_positions"][::-1], moved["target_positions"])
    assert np.array_equal(planned_samples(data).at(rows[3:4])["target_positions"][0], moved["target_positions"][3])
    later = planned_samples(data).at(rows + len(data))
    assert not np.array_equal(later["target_positions"], moved["target_positions"])
    other = AckermannPerturbation(AWAY, 0.5, seed=5)
    assert EgoDataset(configured(5, 20), source, perturbation=other).fingerprint != data.fingerprint


def test_the_ego_comes_back_and_the_past_stays(source) -> None:
    left = AckermannPerturbation(Uniform((1.5, 0, 0), (1.5, 0, 0)), 1.0)
    plain, moved = (
        planned_samples(EgoDataset(configured(5, 30), source, perturbation=p)).at(np.arange(30, 40))
        for p in (None, left)
    )
    assert np.allclose(moved["history_positions"][:, 0], 0)
    # In the frame of the moved car, the true past is to its right.
    np.testing.assert_allclose(
        moved["history_positions"][:, 1:, 1], plain["history_positions"][:, 1:, 1] - 1.5, atol=1e-3
    )
    off = moved["target_positions"] - (plain["target_positions"] - [0, 1.5])
    far = np.linalg.norm(off, axis=-1)
    assert (far[:, -1] < 0.5).all()
    assert (far[:, 0] > 0.9).all()
    assert np.array_equal(moved["target_availabilities"], plain["target_availabilities"])


def test_only_whole_futures_are_moved_and_standing_cars_ahead_alone(source) -> None:
    always = AckermannPerturbation(AWAY, 1.0, min_displacement=1e9)
    plain, moved = (EgoDataset(configured(2, 20), source, perturbation=p)[:] for p in (None, always))
    changed = (plain["centroid"] != moved["centroid"]).any(axis=1)
    assert changed.tolist() == [True] * 228 + [False] * 20
    assert np.array_equal(plain["yaw"], moved["yaw"])
    shift = np.einsum("nij,nj->ni", plain["agent_from_world"][:, :2, :2], moved["centroid"] - plain["centroid"])
    np.testing.assert_allclose(shift[:, 1], 0, atol=1e-9)


def test_never_is_never_and_a_share_is_one(source) -> None:
    never = EgoDataset(configured(2, 5), source, perturbation=AckermannPerturbation(AWAY, 0.0))
    assert np.array_equal(never[:]["centroid"], EgoDataset(configured(2, 5), source)[:]["centroid"])
    with pytest.raises(DataError, match="within 0 to 1"):
        AckermannPerturbation(AWAY, 1.5)
