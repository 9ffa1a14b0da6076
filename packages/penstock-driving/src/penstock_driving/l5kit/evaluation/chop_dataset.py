"""Test sets: scenes cut short."""

from __future__ import annotations

import os

from penstock_driving import evaluation
from penstock_driving.evaluation import MIN_FUTURE_STEPS

__all__ = ["MIN_FUTURE_STEPS", "create_chopped_dataset"]


def create_chopped_dataset(
    zarr_path: str | os.PathLike[str],
    th_agent_prob: float,
    num_frames_to_copy: int,
    num_frames_gt: int,
    min_frame_future: int = MIN_FUTURE_STEPS,
) -> str:
    """Call `penstock_driving.evaluation.create_chopped_dataset`, and return its folder. Same errors."""
    return str(
        evaluation.create_chopped_dataset(zarr_path, th_agent_prob, num_frames_to_copy, num_frames_gt, min_frame_future)
    )
