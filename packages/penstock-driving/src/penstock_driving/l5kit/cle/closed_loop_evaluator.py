"""Metrics, limits and totals of many simulated scenes in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.errors import DataError
from penstock_driving.l5kit.cle.composite_metrics import SupportsCompositeMetricCompute
from penstock_driving.l5kit.cle.metrics import SupportsMetricCompute
from penstock_driving.l5kit.cle.validators import SupportsMetricValidate, ValidatorOutput

__all__ = ["ClosedLoopEvaluator", "EvaluationPlan", "EvaluationPlanError"]

Tensor = Any


class EvaluationPlanError(DataError, RuntimeError):
    """An evaluation plan with a name twice, or without a metric or validator that another part needs."""


class EvaluationPlan:
    """The metrics, validators and composite metrics to compute for each scene."""

    def __init__(
        self,
        metrics: Iterable[SupportsMetricCompute],
        validators: Iterable[SupportsMetricValidate] | None = None,
        composite_metrics: Iterable[SupportsCompositeMetricCompute] | None = None,
        intervention_validators: list[str] | None = None,
    ) -> None:
        self.metrics = list(metrics)
        self.validators = list(validators or [])
        self.composite_metrics = list(composite_metrics or [])
        self.intervention_validators = list(intervention_validators or [])
        self._check()

    def metrics_dict(self) -> dict[str, SupportsMetricCompute]:
        return {metric.metric_name: metric for metric in self.metrics}

    def validators_dict(self) -> dict[str, SupportsMetricValidate]:
        return {validator.validator_name: validator for validator in self.validators}

    def composite_metrics_dict(self) -> dict[str, SupportsCompositeMetricCompute]:
        return {metric.composite_metric_name: metric for metric in self.composite_metrics}

    def _check(self) -> None:
        metrics, validators = self.metrics_dict(), self.validators_dict()
        parts = (
            ("metric", [metric.metric_name for metric in self.metrics]),
            ("validator", [validator.validator_name for validator in self.validators]),
            ("composite metric", [metric.composite_metric_name for metric in self.composite_metrics]),
        )
        for kind, names in parts:
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise EvaluationPlanError(
                    f"expected each {kind} once in the plan, got {repeated[0]!r} repeated; remove one"
                )
        for kind, name, user in self._needed():
            if name not in (metrics if kind == "metric" else validators):
                raise EvaluationPlanError(f"the {kind} {name!r}, required by {user}, is not in the plan; add it")

    def _needed(self) -> Iterator[tuple[str, str, str]]:
        """What must be in the plan: its kind, its name, and what needs it."""
        for name in self.intervention_validators:
            yield "validator", name, "the intervention_validators"
        for validator in self.validators:
            for name in validator.requires_metric:
                yield "metric", name, f"validator {validator.validator_name!r}"
        for composite in self.composite_metrics:
            user = f"composite metric {composite.composite_metric_name!r}"
            for name in composite.requires_metric:
                yield "metric", name, user
            for name in composite.requires_validator:
                yield "validator", name, user

    def evaluate(self, simulation_output: Any) -> dict[str, Tensor]:
        """Return the metrics of the frames of a scene by name."""
        return {metric.metric_name: metric.compute(simulation_output) for metric in self.metrics}

    def evaluate_composite(
        self,
        simulation_output: Any,
        scene_metrics: dict[str, Tensor],
        scene_validation: dict[str, ValidatorOutput],
    ) -> dict[str, float]:
        """Return the composite metrics of a scene by name. Each sees only the metrics and validators it needs."""
        results: dict[str, float] = {}
        for composite in self.composite_metrics:
            metrics = {name: scene_metrics[name] for name in composite.requires_metric}
            outputs = {name: scene_validation[name] for name in composite.requires_validator}
            results[composite.composite_metric_name] = composite.compute(metrics, outputs, simulation_output)
        return results

    def process_interventions(self, results: dict[str, ValidatorOutput]) -> dict[str, ValidatorOutput]:
        """Return the outputs of validators after interventions: only the earliest one that failed counts, if any."""
        failed = [name for name in self.intervention_validators if results[name].failed_frames]
        if not failed:
            return results
        first = min(failed, key=lambda name: min(results[name].failed_frames))
        return {name: results[name] if name == first else ValidatorOutput(True, []) for name in results}

    def validate(self, scene_metrics: dict[str, Tensor], simulation_output: Any) -> dict[str, ValidatorOutput]:
        """Return the outputs of the validators of a scene by name. Each sees only the metrics it needs."""
        results: dict[str, ValidatorOutput] = {}
        for validator in self.validators:
            metrics = {name: scene_metrics[name] for name in validator.requires_metric}
            results[validator.validator_name] = validator.validate(metrics, simulation_output)
        return self.process_interventions(results)


class ClosedLoopEvaluator:
    """Runs an evaluation plan on the outputs of simulations, and keeps the results by scene until `reset`."""

    def __init__(self, evaluation_plan: EvaluationPlan) -> None:
        self.evaluation_plan = evaluation_plan
        self.reset()

    def reset(self) -> None:
        """Forget all results."""
        self.scene_metric_results: dict[int, dict[str, Tensor]] = {}
        self.scene_validation_results: dict[int, dict[str, ValidatorOutput]] = {}
        self.scene_composite_metric_results: dict[int, dict[str, float]] = {}

    def metric_results(self) -> dict[int, dict[str, Tensor]]:
        """Return the metrics of frames by scene and name."""
        return self.scene_metric_results

    def validation_results(self) -> dict[int, dict[str, ValidatorOutput]]:
        return self.scene_validation_results

    def composite_metric_results(self) -> dict[int, dict[str, float]]:
        return self.scene_composite_metric_results

    def evaluate(self, simulation_outputs: Sequence[Any]) -> None:
        """Run the plan on the outputs of simulations, one a scene."""
        plan = self.evaluation_plan
        for output in simulation_outputs:
            scene = output.get_scene_id()
            metrics = plan.evaluate(output)
            outputs = plan.validate(metrics, output)
            self.scene_metric_results[scene] = metrics
            self.scene_validation_results[scene] = outputs
            self.scene_composite_metric_results[scene] = plan.evaluate_composite(output, metrics, outputs)
