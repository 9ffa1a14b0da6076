"""Ground-truth trajectories of agents as a file."""

from __future__ import annotations

import os

from penstock.core.arrays import AnyArray
from penstock_driving.evaluation import ground_truth
from penstock_driving.l5kit.dataset.select_agents import select_agents, stored_mask
from penstock_driving.logs import Logs
from penstock_driving.tables import write_gt_csv


def export_zarr_to_csv(
    zarr_dataset: Logs,
    csv_file_path: str | os.PathLike[str],
    future_num_frames: int,
    filter_agents_threshold: float,
    step_time: float = 0.1,
    agents_mask: AnyArray | None = None,
) -> None:
    """Write the ground truth of the agents that a mask selects. The default is the mask of `AgentDataset`.

    Raises as `penstock_driving.evaluation.ground_truth` does.
    """
    if agents_mask is None:
        agents_mask = stored_mask(zarr_dataset, {"raster_params": {"filter_agents_threshold": filter_agents_threshold}})
    if agents_mask is None:
        agents_mask = select_agents(zarr_dataset, filter_agents_threshold)
    truth = ground_truth(zarr_dataset, agents_mask, future_num_frames, filter_agents_threshold, step_time)
    write_gt_csv(csv_file_path, *truth)
