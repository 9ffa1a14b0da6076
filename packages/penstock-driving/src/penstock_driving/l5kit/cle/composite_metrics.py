"""Metrics of a whole simulated scene, from the metrics of its frames and the limits that these break."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Protocol

from penstock.errors import DataError, require
from penstock_driving.l5kit.cle.metrics import SimulatedDrivenMilesMetric, SupportsMetricCompute
from penstock_driving.l5kit.cle.validators import ValidatorOutput

__all__ = [
    "CompositeMetricAggregator",
    "DrivenMilesCompositeMetric",
    "PassedDrivenMilesCompositeMetric",
    "ReduceMode",
    "SupportsCompositeMetricAggregation",
    "SupportsCompositeMetricCompute",
]

Tensor = Any
SceneTotals = Mapping[int, Mapping[str, float]]
"""Composite metrics by scene and name."""


class SupportsCompositeMetricCompute(Protocol):
    """A composite metric: its name, the names of the metrics and validators it needs, and `compute`."""

    composite_metric_name: str
    requires_metric: list[str]
    requires_validator: list[str]

    def compute(
        self,
        metric_results: dict[str, Tensor],
        validation_results: dict[str, ValidatorOutput],
        simulation_output: Any,
    ) -> float:
        """Return one number for the scene, given the metrics and validators that are needed by name."""
        ...


class PassedDrivenMilesCompositeMetric(SupportsCompositeMetricCompute):
    """Miles driven before the first frame that fails any of `intervention_validators`."""

    def __init__(
        self,
        composite_metric_name: str,
        intervention_validators: list[str],
        driven_miles_metric: type[SupportsMetricCompute] = SimulatedDrivenMilesMetric,
        ignore_entire_scene: bool = False,
    ) -> None:
        self.composite_metric_name = composite_metric_name
        self.requires_metric = [driven_miles_metric.metric_name]
        self.requires_validator = list(dict.fromkeys(intervention_validators))
        self.ignore_entire_scene = ignore_entire_scene

    def compute(
        self,
        metric_results: dict[str, Tensor],
        validation_results: dict[str, ValidatorOutput],
        simulation_output: Any,
    ) -> float:
        miles = metric_results[self.requires_metric[0]]
        failed = [frame for name in self.requires_validator for frame in validation_results[name].failed_frames]
        if failed and self.ignore_entire_scene:
            return 0.0
        return float(miles[: min(failed, default=len(miles))].sum())


class DrivenMilesCompositeMetric(SupportsCompositeMetricCompute):
    """Miles driven in the whole scene: the sum of `driven_miles_metric` over frames."""

    def __init__(
        self,
        composite_metric_name: str,
        driven_miles_metric: type[SupportsMetricCompute] = SimulatedDrivenMilesMetric,
    ) -> None:
        self.composite_metric_name = composite_metric_name
        self.driven_miles_metric_name = driven_miles_metric.metric_name
        self.requires_metric = [self.driven_miles_metric_name]
        self.requires_validator: list[str] = []

    def compute(
        self,
        metric_results: dict[str, Tensor],
        validation_results: dict[str, ValidatorOutput],
        simulation_output: Any,
    ) -> float:
        return float(metric_results[self.driven_miles_metric_name].sum())


class SupportsCompositeMetricAggregation(Protocol):
    """Aggregator of composite metrics over scenes."""

    def aggregate(self, scene_composite_metric_results: SceneTotals) -> dict[str, Any]: ...


class ReduceMode(IntEnum):
    """Reduction over scenes."""

    SUM = 0


class CompositeMetricAggregator(SupportsCompositeMetricAggregation):
    """Sum of composite metrics over scenes."""

    def __init__(self, reduce_mode: ReduceMode = ReduceMode.SUM) -> None:
        if reduce_mode != ReduceMode.SUM:
            raise DataError(f"expected the reduce_mode {ReduceMode.SUM!r}, got {reduce_mode!r}")
        self.reduce_mode = reduce_mode

    def aggregate_scenes(self, scene_composite_metric_results: SceneTotals) -> dict[str, Any]:
        """Return a tensor with the sum of each composite metric by name."""
        torch: Any = require("torch", "torch")
        sums: dict[str, float] = defaultdict(float)
        for totals in scene_composite_metric_results.values():
            for name, value in totals.items():
                sums[name] += value
        return {name: torch.as_tensor(value) for name, value in sums.items()}

    def aggregate(self, scene_composite_metric_results: SceneTotals) -> dict[str, Any]:
        """Return a tensor with the sum of each composite metric by name."""
        return self.aggregate_scenes(scene_composite_metric_results)
