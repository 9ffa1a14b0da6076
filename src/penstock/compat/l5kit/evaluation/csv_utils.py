"""Ground truth and predictions as CSV files; readers yield one line at a time, in the original's form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from penstock.domains.driving import tables
from penstock.domains.driving.tables import MAX_MODES, write_gt_csv, write_pred_csv

__all__ = ["MAX_MODES", "read_gt_csv", "read_pred_csv", "write_gt_csv", "write_pred_csv"]


def read_gt_csv(csv_path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield `track_id` and `timestamp` as text, `coord` `[T, 2]` and `avail` `[T]` of each agent.

    Raises `FormatError`.
    """
    found = tables.read_gt_csv(csv_path)
    for i in range(len(found.timestamps)):
        yield {**_key(found, i), "coord": found.coords[i], "avail": found.avails[i]}


def read_pred_csv(csv_path: str | os.PathLike[str], max_modes: int = MAX_MODES) -> Iterator[dict[str, Any]]:
    """Yield `track_id` and `timestamp` as text, `coords` `[M, T, 2]` and `conf` `[M]` of each agent.

    Raises `FormatError`.
    """
    found = tables.read_pred_csv(csv_path, max_modes)
    for i in range(len(found.timestamps)):
        yield {**_key(found, i), "coords": found.coords[i], "conf": found.confs[i]}


def _key(found: tables.GroundTruth | tables.Predictions, i: int) -> dict[str, str]:
    return {"track_id": str(found.track_ids[i]), "timestamp": str(found.timestamps[i])}
