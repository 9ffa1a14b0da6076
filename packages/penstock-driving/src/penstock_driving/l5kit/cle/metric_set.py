"""Sets of metrics, validators and composite metrics that are evaluated together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock_driving.l5kit.cle.closed_loop_evaluator import ClosedLoopEvaluator, EvaluationPlan
from penstock_driving.l5kit.cle.composite_metrics import SupportsCompositeMetricCompute
from penstock_driving.l5kit.cle.metrics import SupportsMetricCompute
from penstock_driving.l5kit.cle.validators import SupportsMetricValidate, ValidationFailedFramesAggregator

__all__ = ["BaseMetricSet", "L5MetricSet"]


class BaseMetricSet(ABC):
    """Metrics that are evaluated together, known by a prefix."""

    metric_prefix: str
    evaluator: ClosedLoopEvaluator

    @abstractmethod
    def evaluate(self, sim_outputs: list[Any]) -> None:
        """Run the evaluator on the outputs of simulations, one a scene."""

    @abstractmethod
    def get_results(self) -> dict[str, Any]:
        """Return all results by name."""


class L5MetricSet(BaseMetricSet):
    """A set that subclasses fill: they define `build_metrics`, and the other methods as they need them."""

    def __init__(self, metric_prefix: str = "L5") -> None:
        self.metric_prefix = metric_prefix
        self.evaluation_plan = EvaluationPlan(
            self.build_metrics(),
            self.build_validators(),
            self.build_composite_metrics(),
            self.get_validator_interventions(),
        )
        self.evaluator = ClosedLoopEvaluator(self.evaluation_plan)

    @abstractmethod
    def build_metrics(self) -> list[SupportsMetricCompute]:
        """Return the metrics of frames."""

    def build_validators(self) -> list[SupportsMetricValidate]:
        """Return the validators; none by default."""
        return []

    def get_validator_interventions(self) -> list[str]:
        """Return the names of validators that are interventions; none by default."""
        return []

    def build_composite_metrics(self) -> list[SupportsCompositeMetricCompute]:
        """Return the composite metrics; none by default."""
        return []

    def evaluate(self, sim_outputs: list[Any]) -> None:
        """Run the evaluator on the outputs of simulations, one a scene."""
        self.evaluator.evaluate(sim_outputs)

    def reset(self) -> None:
        """Forget all results."""
        self.evaluator.reset()

    def get_results(self) -> dict[str, Any]:
        """Return all results by name; subclasses define it."""
        message = (
            f"{type(self).__name__} defines no get_results; define it in this class, it returns the results by name"
        )
        raise NotImplementedError(message)

    def aggregate_failed_frames(self) -> dict[str, Any]:
        """Return a tensor `[n, 2]` of scenes and frames for each validator that failed, by name."""
        if not self.evaluation_plan.validators:
            return {}
        return ValidationFailedFramesAggregator().aggregate(self.evaluator.validation_results())
