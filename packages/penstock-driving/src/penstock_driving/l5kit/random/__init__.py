"""Random numbers for perturbations."""

from penstock_driving.l5kit.random.random_generator import (
    GaussianRandomGenerator,
    LambdaRandomGenerator,
    RandomGenerator,
    ReplayRandomGenerator,
    UniformRandomGenerator,
)

__all__ = [
    "GaussianRandomGenerator",
    "LambdaRandomGenerator",
    "RandomGenerator",
    "ReplayRandomGenerator",
    "UniformRandomGenerator",
]
