"""Metrics, limits and totals of two drives that go astray: run with the original they made `golden/l5kit/cle.npz`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

LENGTHS = (100, 60)
METRICS = (
    "CollisionFrontMetric",
    "CollisionRearMetric",
    "CollisionSideMetric",
    "DisplacementErrorL2Metric",
    "YawErrorCAMetric",
    "DistanceToRefTrajectoryMetric",
    "SimulatedDrivenMilesMetric",
    "ReplayDrivenMilesMetric",
    "SimulatedVsRecordedEgoSpeedMetric",
)


def drives(frames: np.ndarray, agents: np.ndarray) -> list[Any]:
    """Outputs of simulations: the ego drifts off, and now and then it is put next to an agent."""
    rng = np.random.default_rng(4)
    made: list[Any] = []
    for scene, length in enumerate(LENGTHS):
        rows = frames[20 * scene : 20 * scene + length].copy()
        recorded = np.zeros((length, 7))
        recorded[:, :2] = rows["ego_translation"][:, :2]
        recorded[:, 2] = np.arctan2(rows["ego_rotation"][:, 1, 0], rows["ego_rotation"][:, 0, 0])
        recorded[:, 6] = 0.1 * np.arange(length)
        simulated = recorded.copy()
        simulated[:, :3] += np.cumsum(rng.normal(0, [0.2, 0.2, 0.03], (length, 3)), axis=0)
        for i in range(scene, length, 5):
            chosen = rng.integers(*rows["agent_index_interval"][i])
            simulated[i, :2] = agents["centroid"][chosen] + rng.uniform(-3, 3, 2)
            simulated[i, 2] = rng.uniform(-3, 3)
        states = [torch.tensor(values, dtype=torch.float32) for values in (simulated, recorded)]
        made.append(
            SimpleNamespace(
                get_scene_id=lambda scene=scene: 7 * scene,
                simulated_ego_states=states[0],
                recorded_ego_states=states[1],
                simulated_ego=rows,
                simulated_agents=agents,
            )
        )
    return made


def metric_set(module: Callable[[str], Any]) -> Any:
    """A set of two metrics and a validator each."""
    of, check = module("cle.metrics"), module("cle.validators")
    sides = {"front": of.CollisionFrontMetric, "side": of.CollisionSideMetric}

    class Collisions(module("cle.metric_set").L5MetricSet):
        def build_metrics(self) -> Any:
            return [metric() for metric in sides.values()]

        def build_validators(self) -> Any:
            return [check.RangeValidator(name, metric, max_value=0) for name, metric in sides.items()]

        def get_validator_interventions(self) -> list[str]:
            return ["front"]

    return Collisions()


def plan(module: Callable[[str], Any], interventions: list[str]) -> Any:
    """A plan with each metric, limits of each kind, and composite metrics."""
    of, check, whole = module("cle.metrics"), module("cle.validators"), module("cle.composite_metrics")
    far, near = of.DisplacementErrorL2Metric, of.DistanceToRefTrajectoryMetric
    continuous = check.DurationMode.CONTINUOUS
    validators = [
        check.RangeValidator("front", of.CollisionFrontMetric, max_value=0),
        check.RangeValidator("rear", of.CollisionRearMetric, max_value=0),
        check.RangeValidator("far", far, max_value=3.0),
        check.RangeValidator("far_long", far, max_value=1.0, violation_duration_s=2.0),
        check.RangeValidator("far_on", far, max_value=1.0, violation_duration_s=0.3, duration_mode=continuous),
        check.RangeValidator("near", near, min_value=0.2, max_value=2.0),
        check.RangeValidator("never", far, min_value=-1.0),
        check.RangeValidator("speed", of.SimulatedVsRecordedEgoSpeedMetric, min_value=-5.0, max_value=5.0),
    ]
    replay = of.ReplayDrivenMilesMetric
    composites = [
        whole.PassedDrivenMilesCompositeMetric("passed", ["rear", "far_on"]),
        whole.PassedDrivenMilesCompositeMetric("passed_replay", ["front"], replay, ignore_entire_scene=True),
        whole.DrivenMilesCompositeMetric("driven"),
        whole.DrivenMilesCompositeMetric("driven_replay", replay),
    ]
    metrics = [getattr(of, name)() for name in METRICS]
    return module("cle.closed_loop_evaluator").EvaluationPlan(metrics, validators, composites, interventions)


def cle_outputs(module: Callable[[str], Any], folder: Path) -> dict[str, np.ndarray]:
    """What the modules that `module(name)` gives make of the golden scene's drives."""
    drive = module("data").ChunkedDataset(str(folder / "single.zarr")).open()
    simulations = drives(drive.frames[:], drive.agents[:])
    check, made = module("cle.validators"), dict[str, Any]()
    for kind, interventions in (("plain", []), ("stopped", ["front", "rear"])):
        evaluator = module("cle.closed_loop_evaluator").ClosedLoopEvaluator(plan(module, interventions))
        evaluator.evaluate(simulations)
        results = evaluator.validation_results()
        for scene, outputs in results.items():
            for name, output in outputs.items():
                assert output.is_valid_scene == (not output.failed_frames)
                made[f"{kind}/{scene}/{name}"] = np.array(output.failed_frames, np.int64)
        totals = module("cle.composite_metrics").CompositeMetricAggregator()
        parts = {
            "scenes": check.ValidationCountingAggregator().aggregate(results),
            "frames": check.ValidationCountingAggregator(failed_frames=True).aggregate(results),
            "failed": check.ValidationFailedFramesAggregator().aggregate(results),
            "totals": totals.aggregate(evaluator.composite_metric_results()),
        }
        made |= {f"{kind}/{part}/{name}": value.numpy() for part in parts for name, value in parts[part].items()}
        if kind == "plain":
            for scene, metrics in evaluator.metric_results().items():
                made |= {f"metrics/{scene}/{name}": value.numpy() for name, value in metrics.items()}
    collisions, types = metric_set(module), [["city", "left"], *[["none"]] * 6, ["city", "city", "rain"]]
    collisions.evaluate(simulations)
    counts = module("cle.scene_type_agg").compute_cle_scene_type_aggregations(collisions, types, [])
    return made | {f"types/{name}": np.array(count) for name, count in counts.items()}
