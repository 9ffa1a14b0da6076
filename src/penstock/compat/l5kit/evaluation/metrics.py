"""Metrics of one prediction, or of many at once: see `penstock.domains.driving.metrics` for the shapes."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from penstock.domains.driving.metrics import (
    average_displacement_error,
    distance_to_reference_trajectory,
    final_displacement_error,
    neg_multi_log_likelihood,
    prob_true_mode,
    rmse,
    time_displace,
)

__all__ = [
    "average_displacement_error_mean",
    "average_displacement_error_oracle",
    "distance_to_reference_trajectory",
    "final_displacement_error_mean",
    "final_displacement_error_oracle",
    "neg_multi_log_likelihood",
    "prob_true_mode",
    "rmse",
    "time_displace",
]

Array = npt.NDArray[Any]


def average_displacement_error_oracle(ground_truth: Array, pred: Array, confidences: Array, avails: Array) -> Array:
    """`[...]` metres off, averaged over steps, of the best mode."""
    return average_displacement_error(ground_truth, pred, confidences, avails, "oracle")


def average_displacement_error_mean(ground_truth: Array, pred: Array, confidences: Array, avails: Array) -> Array:
    """`[...]` metres off, averaged over steps and modes."""
    return average_displacement_error(ground_truth, pred, confidences, avails, "mean")


def final_displacement_error_oracle(ground_truth: Array, pred: Array, confidences: Array, avails: Array) -> Array:
    """`[...]` metres off at the last step, of the best mode."""
    return final_displacement_error(ground_truth, pred, confidences, avails, "oracle")


def final_displacement_error_mean(ground_truth: Array, pred: Array, confidences: Array, avails: Array) -> Array:
    """`[...]` metres off at the last step, averaged over modes."""
    return final_displacement_error(ground_truth, pred, confidences, avails, "mean")
