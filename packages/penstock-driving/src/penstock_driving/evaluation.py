"""Test sets: scenes cut short, which agents are to be predicted, and what became of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray
from penstock.errors import DataError
from penstock.files import atomic_path
from penstock_driving.config import Sampling
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.formats.l5kit.tools import chop
from penstock_driving.geometry import transform_points
from penstock_driving.logs import Logs, Timeline
from penstock_driving.mask import Thresholds, agents_mask, chosen
from penstock_driving.sampling import Sampler
from penstock_driving.tables import GroundTruth, write_gt_csv

MIN_FUTURE_STEPS = 10
"""Frames that an agent must go on behind the last frame of a test set to be one of those to predict."""
_BLOCK = 4096


def ground_truth(
    logs: Logs,
    agents_mask: AnyArray,
    future: int,
    threshold: float = 0.5,
    step_time: float = 0.1,
    *,
    timeline: Timeline | None = None,
) -> GroundTruth:
    """What became of the agents that a mask lets through, `future` frames on: metres along the axes of the world.

    The mask is as in `AgentDataset`; `timeline` is the timeline of `logs`, if one exists already. Raises as
    `AgentDataset` does. Cost: its samples without rasters.
    """
    sampler = Sampler(logs, Sampling(0, future, step_time, threshold), timeline=timeline)
    rows = chosen(agents_mask, len(logs.agents))
    rows = rows[rows < sampler.timeline.agents[-1]]
    n = len(rows)
    truth = GroundTruth(
        np.empty(n, np.int64), np.empty(n, np.int64), np.empty((n, future, 2)), np.empty((n, future), np.float32)
    )
    for lo in range(0, n, _BLOCK):
        part = slice(lo, min(lo + _BLOCK, n))
        batch, _ = sampler.agents(rows[part])
        truth.timestamps[part], truth.track_ids[part] = batch["timestamp"], batch["track_id"]
        truth.coords[part] = transform_points(batch["target_positions"], batch["world_from_agent"])
        truth.coords[part] -= batch["centroid"][:, None]
        truth.avails[part] = batch["target_availabilities"]
    return truth


def create_chopped_dataset(
    zarr_path: str | os.PathLike[str],
    th_agent_prob: float,
    num_frames_to_copy: int,
    num_frames_gt: int,
    min_frame_future: int = MIN_FUTURE_STEPS,
) -> Path:
    """A test set next to a dataset: `<stem>_chopped_<frames>/` with the first `num_frames_to_copy` frames of every
    scene (under the name of the dataset), `mask.npz` (`arr_0`, `[N]` bool: the agents of the last frames that go on for
    `min_frame_future`), and `gt.csv` with `num_frames_gt` frames of what became of them. Returns the folder.

    The folder appears only when it is whole. Cost: two passes over the agents, and copying what is kept.
    """
    path = Path(zarr_path)
    folder = path.parent / f"{path.stem}_chopped_{num_frames_to_copy}"
    if num_frames_to_copy < 1 or num_frames_gt < 1:
        raise DataError(f"expected frames of 1 or more, got {num_frames_to_copy} and {num_frames_gt}")

    def make(part: Path) -> None:
        part.mkdir()
        chop(path, part / path.name, num_frames_to_copy)
        with L5KitSource(path) as source, L5KitSource(part / path.name) as short:
            timeline, cut = Timeline.of(source), Timeline.of(short)
            goes_on = agents_mask(source, Thresholds(th_agent_prob), timeline=timeline)[:, 1] >= min_frame_future
            full, kept = _last_agents(goes_on, timeline, cut, num_frames_to_copy)
            np.savez(part / "mask", kept)
            truth = ground_truth(source, full, num_frames_gt, th_agent_prob, timeline=timeline)
            write_gt_csv(part / "gt.csv", *truth)

    with atomic_path(folder) as new_folder:
        make(new_folder)
    return folder


def _last_agents(goes_on: BoolArray, timeline: Timeline, cut: Timeline, frames: int) -> tuple[BoolArray, BoolArray]:
    """The agents of the last frame of each scene to predict, in the dataset and in the one cut short."""
    full, kept = np.zeros(len(goes_on), np.bool_), np.zeros(int(cut.agents[-1]), np.bool_)
    for begin, end in zip(timeline.offsets[:-1].tolist(), cut.offsets[1:].tolist(), strict=True):
        here = slice(*timeline.agents[begin + frames - 1 : begin + frames + 1].tolist())
        full[here] = goes_on[here]
        kept[slice(*cut.agents[end - 1 : end + 1].tolist())] = full[here]
    return full, kept
