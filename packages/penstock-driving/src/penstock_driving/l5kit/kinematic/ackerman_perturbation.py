"""The perturbation that has the ego come back as a car can."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.errors import DataError
from penstock_driving.l5kit.kinematic.perturbation import Perturbation, place, poses_of
from penstock_driving.l5kit.random.random_generator import RandomGenerator
from penstock_driving.perturbation import AckermannPerturbation, displaced


class AckermanPerturbation(Perturbation):
    """Moves the ego with probability `perturb_prob` by what the generator gives: metres to the left, metres ahead,
    radians. Where the future is shorter than `min_displacement` metres, it is moved ahead only.

    In a dataset, whether a sample is moved follows from the seed of the generator and the position in the order.
    `perturb_prob` and the other attributes may be changed at any time; the next sample follows them.
    """

    def __init__(
        self, random_offset_generator: RandomGenerator, perturb_prob: float, min_displacement: float = 0
    ) -> None:
        self.random_offset_generator = random_offset_generator
        self.perturb_prob = perturb_prob
        self.min_displacement = min_displacement

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("random_offset_generator", "perturb_prob", "min_displacement"):
            raise AttributeError(f"expected random_offset_generator, perturb_prob or min_displacement, got {name}")
        if name == "perturb_prob" and not 0 <= value <= 1:
            raise DataError(f"expected a probability within 0 to 1, got {value}")
        super().__setattr__(name, value)

    def __call__(self, poses: FloatArray, positions: IntArray) -> FloatArray:
        """The poses `[n, F + 1, 3]`, moved for `[n]` positions of an order, all at once."""
        generator = self.random_offset_generator
        seed = getattr(generator, "random_seed", 0)
        return AckermannPerturbation(generator, self.perturb_prob, self.min_displacement, seed)(poses, positions)

    def perturb(self, history_frames: AnyArray, future_frames: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Move the current frame and the future ones, in place; or give copies, as NumPy's global generator draws."""
        if np.random.rand() >= self.perturb_prob:
            return history_frames.copy(), future_frames.copy()
        if len(history_frames) == 0 or len(future_frames) == 0:
            raise DataError(f"expected frames, got {len(history_frames)} of history and {len(future_frames)} of future")
        offset = np.asarray(self.random_offset_generator(), np.float64)[None]
        way = np.concatenate([poses_of(history_frames[:1]), poses_of(future_frames)])
        moved = displaced(way[None], offset, self.min_displacement)[0]
        place(history_frames[:1], moved[:1])
        place(future_frames, moved[1:])
        return history_frames, future_frames
