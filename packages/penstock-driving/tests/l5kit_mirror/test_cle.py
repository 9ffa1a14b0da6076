"""Metrics of simulations against the original's, limits that no metric of the original reaches, and refusals."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from l5kit_mirror.cle_outputs import cle_outputs
from penstock.errors import DataError
from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE
from penstock_driving.l5kit.cle.closed_loop_evaluator import ClosedLoopEvaluator, EvaluationPlan
from penstock_driving.l5kit.cle.composite_metrics import (
    CompositeMetricAggregator,
    DrivenMilesCompositeMetric,
    PassedDrivenMilesCompositeMetric,
)
from penstock_driving.l5kit.cle.metric_set import L5MetricSet
from penstock_driving.l5kit.cle.metrics import (
    CollisionFrontMetric,
    CollisionSideMetric,
    DisplacementErrorL2Metric,
    DistanceToRefTrajectoryMetric,
    SimulatedVsRecordedEgoSpeedMetric,
    YawErrorCAMetric,
)
from penstock_driving.l5kit.cle.validators import DurationMode, RangeValidator


def simulated(states: Any, recorded: Any = None) -> Any:
    """An output of a simulation without agents, of states `[T, 7]`."""
    states = torch.as_tensor(states, dtype=torch.float32)
    recorded = torch.zeros_like(states) if recorded is None else torch.as_tensor(recorded, dtype=torch.float32)
    frames, agents = np.zeros(len(states), FRAME_DTYPE), np.zeros(0, AGENT_DTYPE)
    return SimpleNamespace(
        simulated_ego_states=states, recorded_ego_states=recorded, simulated_ego=frames, simulated_agents=agents
    )


def test_metrics_limits_and_totals_are_the_originals(golden: Path) -> None:
    with np.load(golden / "cle.npz") as file:
        expected = dict(file)
    found = cle_outputs(lambda name: importlib.import_module(f"penstock_driving.l5kit.{name}"), golden)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].shape == values.shape, name
        assert found[name].dtype == values.dtype, name
        assert_allclose(found[name], values, rtol=1e-6, atol=1e-6, err_msg=name)


def test_a_scene_without_agents_has_no_collisions() -> None:
    assert CollisionFrontMetric().compute(simulated(np.zeros((3, 7)))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("mode", DurationMode)
def test_durations_hold_for_metrics_of_fewer_frames(mode: DurationMode) -> None:
    states = np.zeros((10, 7))
    states[:, 0], states[:, 6] = np.arange(10), np.arange(10) / 10
    check = RangeValidator(
        "speed", SimulatedVsRecordedEgoSpeedMetric, max_value=5, violation_duration_s=0.55, duration_mode=mode
    )
    output = simulated(states)
    speeds = SimulatedVsRecordedEgoSpeedMetric().compute(output)
    assert speeds.tolist() == [10] * 9
    assert check.validate({check.metric_name: speeds}, output) == (False, [6, 7, 8])


def test_frames_of_yaw_errors_are_numbers() -> None:
    states = np.zeros((3, 7))
    states[2, 2] = 1
    errors = YawErrorCAMetric().compute(simulated(states))
    check = RangeValidator("yaw", YawErrorCAMetric, max_value=0.5)
    assert check.validate({check.metric_name: errors}, simulated(states)) == (False, [2])


def test_reset_forgets() -> None:
    output = simulated(np.zeros((3, 7)))
    output.get_scene_id = lambda: 4
    evaluator = ClosedLoopEvaluator(EvaluationPlan([DisplacementErrorL2Metric()]))
    evaluator.evaluate([output])
    assert list(evaluator.metric_results()) == [4]
    evaluator.reset()
    assert evaluator.metric_results() == evaluator.validation_results() == evaluator.composite_metric_results() == {}


def test_a_set_needs_results_of_its_own() -> None:
    class Empty(L5MetricSet):
        def build_metrics(self) -> list[Any]:
            return []

    assert Empty().aggregate_failed_frames() == {}
    with pytest.raises(NotImplementedError, match="Empty defines no get_results"):
        Empty().get_results()


FAR, NEAR = DisplacementErrorL2Metric(), DistanceToRefTrajectoryMetric()
LIMIT = RangeValidator("limit", CollisionSideMetric, max_value=0)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([FAR, FAR],), "metric once in the plan, got 'displacement_error_l2'"),
        (([CollisionSideMetric()], [LIMIT, LIMIT]), "validator once in the plan, got 'limit'"),
        (([], [LIMIT]), "metric 'collision_side', required by validator 'limit'"),
        (([FAR], [], [DrivenMilesCompositeMetric("d")]), "'simulated_driven_miles', required by composite metric 'd'"),
        (([FAR], [], [PassedDrivenMilesCompositeMetric("p", ["x"], type(FAR))]), "validator 'x', required by"),
        (([FAR], [], [], ["x"]), "validator 'x', required by the intervention_validators"),
    ],
)
def test_plans_that_do_not_fit_together_are_refused(parts: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        EvaluationPlan(*parts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RangeValidator("v", type(FAR)), "got neither"),
        (lambda: RangeValidator("v", type(FAR), 2.0, 2.0), "min_value below max_value"),
        (lambda: DistanceToRefTrajectoryMetric(1.1), "within 0 to 1, got 1.1"),
        (lambda: CompositeMetricAggregator(3), "reduce_mode"),  # type: ignore[arg-type]
        (lambda: FAR.compute(simulated(np.zeros((3, 7)), np.zeros((2, 7)))), "each of 3 simulated ones, got 2"),
        (lambda: NEAR.compute(simulated(np.zeros((3, 7)), np.zeros((2, 7)))), "each of 3 simulated ones, got 2"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call()


def test_a_collision_needs_a_frame() -> None:
    output = simulated(np.zeros((3, 7)))
    output.simulated_ego = output.simulated_ego[:2]
    with pytest.raises(DataError, match="for each of 3 states, got 2"):
        CollisionFrontMetric().compute(output)
