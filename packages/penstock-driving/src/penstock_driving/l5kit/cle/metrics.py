"""Metrics of a simulated scene: a tensor with one value a frame.

A simulation's output has `simulated_ego_states` and `recorded_ego_states`, tensors `[T, 7]` float32 whose columns are
x, y (metres), yaw (radians), speed, acceleration, curvature and time (seconds), and the rows `simulated_ego` (frames)
and `simulated_agents`.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.errors import DataError
from penstock_driving.collisions import ego_collisions
from penstock_driving.l5kit.evaluation.error_functions import ErrorFunction, closest_angle_error, l2_error
from penstock_driving.l5kit.evaluation.metrics import CollisionType
from penstock_driving.metrics import distance_to_reference_trajectory

__all__ = [
    "CollisionFrontMetric",
    "CollisionMetricBase",
    "CollisionRearMetric",
    "CollisionSideMetric",
    "DisplacementErrorL2Metric",
    "DisplacementErrorMetric",
    "DistanceToRefTrajectoryMetric",
    "ReplayDrivenMilesMetric",
    "SimulatedDrivenMilesMetric",
    "SimulatedVsRecordedEgoSpeedMetric",
    "SupportsMetricCompute",
    "YawErrorCAMetric",
    "YawErrorMetric",
]

Tensor = Any
_MILES = 0.000621371  # in a metre
_STEPS = 10  # frames a second, as in the original


class SupportsMetricCompute(Protocol):
    """A metric: its name, and `compute`."""

    metric_name: str

    def compute(self, simulation_output: Any) -> Tensor:
        """Return the metric of each frame, `[T]`."""
        ...


class CollisionMetricBase:
    """1 in frames in which the ego hits an agent with one side, 0 elsewhere.

    The first agent of a frame that the ego touches counts.
    """

    metric_name: str

    def __init__(self, collision_type: CollisionType) -> None:
        self.collision_type = collision_type

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[T]` float32."""
        states, frames = simulation_output.simulated_ego_states, simulation_output.simulated_ego
        if len(frames) < len(states):
            raise DataError(f"expected a simulated frame for each of {len(states)} states, got {len(frames)}")
        spans = frames["agent_index_interval"][: len(states)]
        types = ego_collisions(states[:, :3].cpu().numpy(), simulation_output.simulated_agents, spans)
        return states.new_tensor(types == self.collision_type)


class CollisionFrontMetric(CollisionMetricBase):
    """Frames in which the ego's front touches an agent."""

    metric_name = "collision_front"

    def __init__(self) -> None:
        super().__init__(CollisionType.FRONT)


class CollisionRearMetric(CollisionMetricBase):
    """Frames in which the ego's rear touches an agent."""

    metric_name = "collision_rear"

    def __init__(self) -> None:
        super().__init__(CollisionType.REAR)


class CollisionSideMetric(CollisionMetricBase):
    """Frames in which the left or right side of the ego touches an agent."""

    metric_name = "collision_side"

    def __init__(self) -> None:
        super().__init__(CollisionType.SIDE)


class DisplacementErrorMetric(SupportsMetricCompute):
    """Distance of the simulated ego from the recorded one in the same frame, as `error_function` measures it."""

    metric_name = "displacement_error"

    def __init__(self, error_function: ErrorFunction) -> None:
        self.error_function = error_function

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[T]`."""
        return self.error_function(*_both(simulation_output, slice(0, 2)))


class DisplacementErrorL2Metric(DisplacementErrorMetric):
    """Euclidean distance of the simulated ego from the recorded one in the same frame, in metres."""

    metric_name = "displacement_error_l2"

    def __init__(self) -> None:
        super().__init__(l2_error)


class DistanceToRefTrajectoryMetric(SupportsMetricCompute):
    """Distance of the simulated ego from the nearest point of the whole recorded trajectory, in metres."""

    metric_name = "distance_to_reference_trajectory"

    def __init__(self, scene_fraction: float = 0.8) -> None:
        if not 0.0 <= scene_fraction <= 1.0:
            raise DataError(f"expected a scene_fraction within 0 to 1, got {scene_fraction}")
        self.scene_fraction = scene_fraction

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[int(T * scene_fraction)]`."""
        simulated, _ = _both(simulation_output, slice(0, 2))
        looked_at = simulated[: int(len(simulated) * self.scene_fraction)]
        reference = simulation_output.recorded_ego_states[None, :, :2]
        distances = distance_to_reference_trajectory(looked_at.cpu().numpy(), reference.cpu().numpy())
        return looked_at.new_tensor(distances)


class SimulatedDrivenMilesMetric(SupportsMetricCompute):
    """Miles that the simulated ego drives from the frame before to each frame; 0 in the first."""

    metric_name = "simulated_driven_miles"
    METER_TO_MILES = _MILES

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[T]` float64."""
        return _driven(simulation_output.simulated_ego_states) * self.METER_TO_MILES


class ReplayDrivenMilesMetric(SupportsMetricCompute):
    """Miles that the recorded ego drives from the frame before to each frame; 0 in the first."""

    metric_name = "replay_driven_miles"
    METER_TO_MILES = _MILES

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[T]` float64."""
        return _driven(simulation_output.recorded_ego_states) * self.METER_TO_MILES


class YawErrorMetric(SupportsMetricCompute):
    """Difference of the simulated ego's yaw from the recorded one in the same frame, in radians."""

    metric_name = "yaw_error"

    def __init__(self, error_function: ErrorFunction = closest_angle_error) -> None:
        self.error_function = error_function

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[T, 1]`."""
        return self.error_function(*_both(simulation_output, slice(2, 3)))


class YawErrorCAMetric(YawErrorMetric):
    """Difference of the simulated ego's yaw from the recorded one, the shorter way around, in radians."""

    metric_name = "yaw_error_closest_angle"

    def __init__(self) -> None:
        super().__init__(closest_angle_error)


class SimulatedVsRecordedEgoSpeedMetric(SupportsMetricCompute):
    """Speed of the simulated ego minus speed of the recorded ego, in metres a second, at 10 frames a second."""

    metric_name = "simulated_minus_recorded_ego_speed"

    def compute(self, simulation_output: Any) -> Tensor:
        """Return `[T - 1]`, one value for each pair of neighbouring frames."""
        simulated = _lengths(simulation_output.simulated_ego_states[:, :2])
        return (simulated - _lengths(simulation_output.recorded_ego_states[:, :2])) * _STEPS


def _both(output: Any, columns: slice) -> tuple[Tensor, Tensor]:
    """Return columns of the simulated states, and of the recorded states at the same frames."""
    simulated, recorded = output.simulated_ego_states[:, columns], output.recorded_ego_states[:, columns]
    if len(recorded) < len(simulated):
        raise DataError(f"expected a recorded state for each of {len(simulated)} simulated ones, got {len(recorded)}")
    return simulated, recorded[: len(simulated)]


def _lengths(positions: Tensor) -> Tensor:
    """`[T - 1]` metres from each position to the next."""
    return (positions[1:] - positions[:-1]).norm(p=2, dim=-1)


def _driven(states: Tensor) -> Tensor:
    """`[T]` metres from the frame before, 0 in the first."""
    positions = states[:, :2].double()
    driven = positions.new_zeros(len(positions))
    driven[1:] = _lengths(positions)
    return driven
