"""Limits that metrics must keep, and counts of the scenes and frames that break them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from penstock.errors import DataError, require
from penstock_driving.l5kit.cle.metrics import SupportsMetricCompute
from penstock_driving.simulation import TrajectoryStateIndices

__all__ = [
    "DurationMode",
    "FailedFrame",
    "RangeValidator",
    "SupportsMetricValidate",
    "SupportsValidationAggregation",
    "ValidationCountingAggregator",
    "ValidationFailedFramesAggregator",
    "ValidatorOutput",
]

Tensor = Any


class ValidatorOutput(NamedTuple):
    """Whether a scene keeps a limit, and the frames that break it."""

    is_valid_scene: bool
    failed_frames: list[int]


SceneValidations = Mapping[int, Mapping[str, ValidatorOutput]]
"""Outputs by scene and name of the validator."""


class SupportsMetricValidate(Protocol):
    """A validator: its name, the names of the metrics it needs, and `validate`."""

    validator_name: str
    requires_metric: list[str]

    def validate(self, metric_results: dict[str, Tensor], simulation_output: Any) -> ValidatorOutput:
        """Return whether the scene keeps the limit, given the metrics of its frames by name."""
        ...


class DurationMode(IntEnum):
    """How to count the time above a limit: the total over the scene, or each continuous stretch separately."""

    TOTAL = 0
    CONTINUOUS = 1


class RangeValidator(SupportsMetricValidate):
    """A metric must stay within `min_value` and `max_value`, both allowed."""

    def __init__(
        self,
        validator_name: str,
        metric: type[SupportsMetricCompute] | SupportsMetricCompute,
        min_value: float | None = None,
        max_value: float | None = None,
        violation_duration_s: float = 0.0,
        duration_mode: DurationMode = DurationMode.TOTAL,
    ) -> None:
        if min_value is None and max_value is None:
            raise DataError(f"expected min_value, max_value or both for the validator {validator_name!r}, got neither")
        if min_value is not None and max_value is not None and min_value >= max_value:
            raise DataError(
                f"expected min_value below max_value in {validator_name!r}, got {min_value} and {max_value}"
            )
        self.validator_name = validator_name
        self.metric_name = metric.metric_name
        self.requires_metric = [self.metric_name]
        self.min_value, self.max_value = min_value, max_value
        self.validation_duration_s = violation_duration_s
        self.duration_mode = DurationMode(duration_mode)

    @staticmethod
    def cumsum_with_reset(timestamp_diff: Tensor, validation_mask: Tensor) -> Tensor:
        """Return the running sum `[T]` of `timestamp_diff`, which begins again at 0 wherever the mask is False."""
        total, sums = 0.0, [0.0] * len(timestamp_diff)
        for i, (step, outside) in enumerate(zip(timestamp_diff.tolist(), validation_mask.tolist(), strict=False)):
            total = total + step if outside else 0.0
            sums[i] = total
        return timestamp_diff.new_tensor(sums)

    def validate(self, metric_results: dict[str, Tensor], simulation_output: Any) -> ValidatorOutput:
        """Return whether the metric stays within the limits, and the frames in which it does not.

        With a duration, those are the frames that are out of range after the allowed time is used up.
        """
        result = metric_results[self.metric_name]
        outside = result.new_zeros(result.shape).bool()
        if self.min_value is not None:
            outside |= result < self.min_value
        if self.max_value is not None:
            outside |= result > self.max_value
        outside = outside.reshape(len(outside), -1).any(dim=1)  # of [T] and of [T, 1]
        if self.validation_duration_s > 0.0:
            times = simulation_output.simulated_ego_states[:, TrajectoryStateIndices.TIME]
            steps = times.clone()
            steps[1:] -= times[:-1]
            steps = steps[: len(outside)]
            if self.duration_mode == DurationMode.TOTAL:
                used = (steps * outside).cumsum(dim=0) * outside
            else:
                used = self.cumsum_with_reset(steps, outside)
            outside = used > self.validation_duration_s
        failed = outside.nonzero()[:, 0].tolist()
        return ValidatorOutput(not failed, failed)


class SupportsValidationAggregation(Protocol):
    """Aggregator of validator outputs over scenes."""

    def aggregate(self, scene_validation_results: SceneValidations) -> dict[str, Any]:
        """Return a total for each validator by name."""
        ...


class ValidationCountingAggregator(SupportsValidationAggregation):
    """Count of the scenes that break a limit, or with `failed_frames` of the frames that break it."""

    def __init__(self, failed_frames: bool = False) -> None:
        self.failed_frames = failed_frames

    def aggregate_scenes(self, scene_validation_results: SceneValidations) -> dict[str, Any]:
        """Return a tensor with the count for each validator by name."""
        counts: dict[str, int] = defaultdict(int)
        for outputs in scene_validation_results.values():
            for name, output in outputs.items():
                counts[name] += len(output.failed_frames) if self.failed_frames else not output.is_valid_scene
        return _tensors(counts)

    def aggregate(self, scene_validation_results: SceneValidations) -> dict[str, Any]:
        """Return a tensor with the count for each validator by name."""
        return self.aggregate_scenes(scene_validation_results)


class FailedFrame(NamedTuple):
    """A frame that breaks a limit."""

    scene_id: int
    frame_index: int


class ValidationFailedFramesAggregator:
    """List of the frames that break limits."""

    def aggregate_scenes(self, scene_validation_results: SceneValidations) -> dict[str, Any]:
        """Return a tensor `[n, 2]` of scenes and frames for each validator that failed, by name."""
        failed: dict[str, list[FailedFrame]] = defaultdict(list)
        for scene, outputs in scene_validation_results.items():
            for name, output in outputs.items():
                if output.failed_frames:
                    failed[name] += [FailedFrame(scene, frame) for frame in output.failed_frames]
        return _tensors(failed)

    def aggregate(self, scene_validation_results: SceneValidations) -> dict[str, Any]:
        """Return a tensor `[n, 2]` of scenes and frames for each validator that failed, by name."""
        return self.aggregate_scenes(scene_validation_results)


def _tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    torch: Any = require("torch", "torch")
    return {name: torch.as_tensor(value) for name, value in values.items()}
