"""Moving the ego off its way, so that a model learns to come back; every draw follows from seed and position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.errors import DataError
from penstock.plan.keys import keys
from penstock_driving.kinematics import feasible

_DRAWS = 8  # uniform numbers a sample: whether, and up to three offsets of two each


def uniforms(seed: int, positions: IntArray) -> FloatArray:
    """`[n, 8]` numbers in [0, 1) for `[n]` positions of a plan, each a function of seed and position alone."""
    counters = np.asarray(positions, np.int64)[:, None] * _DRAWS + np.arange(_DRAWS)
    drawn = keys(seed, counters.reshape(-1)) >> np.uint64(11)
    return drawn.reshape(counters.shape).astype(np.float64) * 2.0**-53


class Offsets(ABC):
    """How far to move: metres to the left, metres ahead, radians."""

    @abstractmethod
    def draw(self, uniform: FloatArray) -> FloatArray:
        """`[n, 3]` offsets of `[n, 7]` numbers in [0, 1)."""


@dataclass(frozen=True)
class Gaussian(Offsets):
    """Normal offsets: means and deviations of metres to the left, metres ahead and radians."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def draw(self, uniform: FloatArray) -> FloatArray:
        """Box and Muller's transform."""
        radius = np.sqrt(-2 * np.log1p(-uniform[:, :3]))
        return np.array(self.mean) + np.array(self.std) * radius * np.cos(2 * np.pi * uniform[:, 3:6])


@dataclass(frozen=True)
class Uniform(Offsets):
    """Offsets anywhere between `low` and `high`: metres to the left, metres ahead, radians."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]

    def draw(self, uniform: FloatArray) -> FloatArray:
        """Straight from the numbers."""
        low = np.array(self.low)
        return low + (np.array(self.high) - low) * uniform[:, :3]


class Perturbation(ABC):
    """Moves the ego in some samples. Its repr is part of fingerprints, so it says all that it does."""

    @abstractmethod
    def __call__(self, poses: FloatArray, positions: IntArray) -> FloatArray:
        """The poses `[n, F + 1, 3]` (x, y, yaw of the current frame and the future ones), moved for `[n]` positions."""


@dataclass(frozen=True)
class AckermannPerturbation(Perturbation):
    """Moves the current pose with `probability`, and has the ego come back to its way as a car can (see `feasible`).

    Where the whole future is shorter than `min_displacement` metres, it is moved ahead only: a car that stands cannot
    come back sideways. Only samples with all frames of their future are moved.
    """

    offsets: Offsets
    probability: float
    min_displacement: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise DataError(f"expected a probability within 0 to 1, got {self.probability}")

    def __call__(self, poses: FloatArray, positions: IntArray) -> FloatArray:
        """See `Perturbation`."""
        drawn = uniforms(self.seed, positions)
        chosen = np.flatnonzero(drawn[:, 0] < self.probability)
        if len(chosen) == 0:
            return poses
        moved = poses.copy()
        moved[chosen] = displaced(poses[chosen], self.offsets.draw(drawn[chosen, 1:]), self.min_displacement)
        return moved


def displaced(way: FloatArray, offset: FloatArray, min_displacement: float = 0.0) -> FloatArray:
    """Poses `[n, F + 1, 3]` (x, y, yaw) whose first are moved by `offset` `[n, 3]` (metres to the left, metres ahead,
    radians), and whose others come back to the way as a car can.

    Where the whole way is shorter than `min_displacement` metres, it is moved ahead only. Cost: one call of `feasible`.
    """
    offset = np.array(offset, np.float64)
    steps = np.linalg.norm(np.diff(way[..., :2], axis=1), axis=-1)
    offset[steps.sum(axis=1) < min_displacement, ::2] = 0
    left, ahead, turn = offset.T
    yaw = way[:, 0, 2]
    start = np.empty((len(way), 4))
    start[:, 0] = way[:, 0, 0] + np.cos(yaw) * ahead - np.sin(yaw) * left
    start[:, 1] = way[:, 0, 1] + np.sin(yaw) * ahead + np.cos(yaw) * left
    start[:, 2], start[:, 3] = yaw + turn, steps[:, 0]
    moved = np.empty_like(way)
    moved[:, 0] = start[:, :3]
    moved[:, 1:] = feasible(start, way[:, 1:])[0][..., :3]
    return moved
