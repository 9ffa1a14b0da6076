"""Averages of metrics over two CSV files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.errors import DataError
from penstock_driving.l5kit.evaluation.csv_utils import MAX_MODES, read_gt_csv, read_pred_csv

Metric = Callable[[Any, Any, Any, Any], Any]


def validate_dicts(ground_truth: Mapping[str, Any], predicted: Mapping[str, Any]) -> bool:
    """Return whether predictions and ground truth have the same agents; print the agents that differ."""
    for what, names in (
        ("no prediction for", ground_truth.keys() - predicted.keys()),
        ("no ground truth for", predicted.keys() - ground_truth.keys()),
    ):
        for name in sorted(names):
            print(what, name)
    return ground_truth.keys() == predicted.keys()


def compute_metrics_csv(
    ground_truth_path: str | os.PathLike[str],
    inference_output_path: str | os.PathLike[str],
    metrics: Sequence[Metric],
    max_modes: int = MAX_MODES,
) -> dict[str, Any]:
    """Return the average of each metric over all agents, by its name; metrics take truth, predictions, confidences and
    availabilities of one agent.
    """
    if not metrics:
        raise DataError("expected one metric or more, got none")
    truth = {(line["track_id"], line["timestamp"]): line for line in read_gt_csv(ground_truth_path)}
    lines = {(line["track_id"], line["timestamp"]): line for line in read_pred_csv(inference_output_path, max_modes)}
    if apart := sorted(truth.keys() ^ lines.keys()):
        kind = "no prediction" if apart[0] in truth else "no ground truth"
        raise DataError(
            f"expected predictions of the {len(truth)} agents of the ground truth, got {len(lines)}; {kind} for track "
            f"{apart[0][0]} at {apart[0][1]}"
        )
    pairs = [(line["coord"], lines[key]["coords"], lines[key]["conf"], line["avail"]) for key, line in truth.items()]
    return {metric.__name__: np.mean([metric(*pair) for pair in pairs], axis=0) for metric in metrics}
