"""Metrics of one prediction, or of many at once: see `penstock_driving.metrics` for the shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array
from penstock_driving import metrics
from penstock_driving.collisions import NONE, CollisionType, collision_types
from penstock_driving.metrics import (
    average_displacement_error,
    final_displacement_error,
    neg_multi_log_likelihood,
    prob_true_mode,
    rmse,
    time_displace,
)

__all__ = [
    "CollisionType",
    "average_displacement_error_mean",
    "average_displacement_error_oracle",
    "detect_collision",
    "distance_to_reference_trajectory",
    "final_displacement_error_mean",
    "final_displacement_error_oracle",
    "metric_signature",
    "neg_multi_log_likelihood",
    "prob_true_mode",
    "rmse",
    "time_displace",
]

metric_signature = Callable[[AnyArray, AnyArray, AnyArray, AnyArray], AnyArray]
"""Of metrics: truth, predictions, confidences and availabilities of one sample, or of many."""


def average_displacement_error_oracle(
    ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray
) -> AnyArray:
    """Return the displacement `[...]` in metres, averaged over steps, of the best mode."""
    return average_displacement_error(ground_truth, pred, confidences, avails, "oracle")


def average_displacement_error_mean(
    ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray
) -> AnyArray:
    """Return the displacement `[...]` in metres, averaged over steps and modes."""
    return average_displacement_error(ground_truth, pred, confidences, avails, "mean")


def final_displacement_error_oracle(
    ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray
) -> AnyArray:
    """Return the displacement `[...]` in metres at the last step, of the best mode."""
    return final_displacement_error(ground_truth, pred, confidences, avails, "oracle")


def final_displacement_error_mean(
    ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray
) -> AnyArray:
    """Return the displacement `[...]` in metres at the last step, averaged over modes."""
    return final_displacement_error(ground_truth, pred, confidences, avails, "mean")


def distance_to_reference_trajectory(pred_centroid: Any, ref_traj: Any) -> Any:
    """Return metres `[n]` of centroids `[n, 2]` to the nearest point of trajectories `[n, T, 2]` or `[1, T, 2]`.

    Arguments are arrays, or tensors for a tensor.
    """
    if is_array(pred_centroid):
        return metrics.distance_to_reference_trajectory(pred_centroid, ref_traj)
    distances = metrics.distance_to_reference_trajectory(pred_centroid.cpu().numpy(), ref_traj.cpu().numpy())
    return pred_centroid.new_tensor(distances)


def detect_collision(
    pred_centroid: AnyArray, pred_yaw: AnyArray | float, pred_extent: AnyArray, target_agents: AnyArray
) -> tuple[CollisionType, np.uint64] | None:
    """Return how the ego hits the first of `target_agents` that it touches, and the track id of that agent, or None.

    The ego is at `[2]` metres, turned by `pred_yaw` radians, and `[3]` metres in size. `target_agents` are rows of the
    agents' dtype.
    """
    yaw = np.asarray(pred_yaw, np.float64).reshape(())
    boxes = (target_agents["centroid"], target_agents["yaw"], target_agents["extent"])
    types = collision_types(np.asarray(pred_centroid), yaw, np.asarray(pred_extent), *boxes)
    hit = np.flatnonzero(types != NONE)
    return (CollisionType(types[hit[0]]), np.uint64(target_agents["track_id"][hit[0]])) if len(hit) else None
