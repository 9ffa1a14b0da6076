"""Moving the ego off its way, and how a car comes back."""

from penstock_driving.l5kit.kinematic.ackerman_perturbation import AckermanPerturbation
from penstock_driving.l5kit.kinematic.ackerman_steering_model import (
    fit_ackerman_model_approximate,
    fit_ackerman_model_exact,
)
from penstock_driving.l5kit.kinematic.perturbation import Perturbation

__all__ = ["AckermanPerturbation", "Perturbation", "fit_ackerman_model_approximate", "fit_ackerman_model_exact"]
