"""Ground truth and predictions as CSV files; readers yield one line at a time, in the original's form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from penstock_driving import tables
from penstock_driving.tables import MAX_MODES, write_gt_csv, write_pred_csv

__all__ = ["MAX_MODES", "read_gt_csv", "read_pred_csv", "write_gt_csv", "write_pred_csv"]


def read_gt_csv(csv_path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield `track_id` and `timestamp` as text, `coord` `[T, 2]` and `avail` `[T]` of each agent."""
    truth = tables.read_gt_csv(csv_path)
    for i in range(len(truth.timestamps)):
        yield {**_key(truth, i), "coord": truth.coords[i], "avail": truth.avails[i]}


def read_pred_csv(csv_path: str | os.PathLike[str], max_modes: int = MAX_MODES) -> Iterator[dict[str, Any]]:
    """Yield `track_id` and `timestamp` as text, `coords` `[M, T, 2]` and `conf` `[M]` of each agent."""
    predictions = tables.read_pred_csv(csv_path, max_modes)
    for i in range(len(predictions.timestamps)):
        yield {**_key(predictions, i), "coords": predictions.coords[i], "conf": predictions.confs[i]}


def _key(rows: tables.GroundTruth | tables.Predictions, i: int) -> dict[str, str]:
    return {"track_id": str(rows.track_ids[i]), "timestamp": str(rows.timestamps[i])}
