"""Moving the ego off its way."""

from __future__ import annotations

from penstock.domains.driving.perturbation import AckermannPerturbation, Offsets, Perturbation

__all__ = ["AckermanPerturbation", "Perturbation"]


class AckermanPerturbation(AckermannPerturbation):
    """`penstock`'s `AckermannPerturbation` under the original's name; the seed is that of the generator.

    >>> from penstock.compat.l5kit.random import GaussianRandomGenerator
    >>> AckermanPerturbation(GaussianRandomGenerator([0, 0, 0], [1, 1, 0.1], random_seed=5), 0.5).seed
    5
    """

    def __init__(self, random_offset_generator: Offsets, perturb_prob: float, min_displacement: float = 0) -> None:
        seed = getattr(random_offset_generator, "random_seed", 0)
        super().__init__(random_offset_generator, perturb_prob, min_displacement, seed)
