"""How far a perturbation moves the ego: metres to the left, metres ahead, radians."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domains.driving.perturbation import Gaussian, Offsets, Uniform
from penstock.errors import DataError

RandomGenerator = Offsets


class GaussianRandomGenerator(Gaussian):
    """Normal offsets. `random_seed` is that of the perturbation they are handed to.

    >>> GaussianRandomGenerator([0, 0, 0], [1, 1, 0.1])
    GaussianRandomGenerator(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 0.1))
    """

    random_seed: int

    def __init__(self, mean: Sequence[float], std: Sequence[float], random_seed: int = 0) -> None:
        super().__init__(_three(mean), _three(std))
        object.__setattr__(self, "random_seed", random_seed)


class UniformRandomGenerator(Uniform):
    """Offsets anywhere between `low` and `high`.

    >>> UniformRandomGenerator([0, 0, 0], [1, 1, 0.1]).high
    (1.0, 1.0, 0.1)
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__(_three(low), _three(high))


def _three(numbers: Sequence[float]) -> tuple[float, float, float]:
    if len(numbers) != 3:
        raise DataError(f"expected three numbers (left, ahead, yaw), got {list(numbers)}")
    left, ahead, yaw = numbers
    return float(left), float(ahead), float(yaw)
