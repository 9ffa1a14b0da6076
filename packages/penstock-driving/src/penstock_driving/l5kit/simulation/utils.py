"""Datasets of one scene in memory, changed: fewer frames, fewer agents, another agent."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.l5kit.data.zarr_dataset import FIELDS, ChunkedDataset
from penstock_driving.logs import Arrays, Logs
from penstock_driving.simulation import hide_others, windows, with_agents

__all__ = ["disable_agents", "get_frames_subset", "insert_agent"]


def insert_agent(agent: AnyArray, frame_idx: int, dataset: ChunkedDataset) -> None:
    """Put an agent, a row `[1]`, into a frame: it replaces the one of its track, or is added."""
    rows = _rows(dataset)
    if not 0 <= frame_idx < len(rows.frames):
        raise DataError(f"expected a frame within 0:{len(rows.frames)}, got {frame_idx}")
    dataset.agents = with_agents(rows, frame_idx, agent).agents


def disable_agents(dataset: ChunkedDataset, allowlist: AnyArray) -> None:
    """Hide all agents except the tracks in `allowlist` `[n]`: move them to the origin and set their size to 0."""
    rows = _rows(dataset)
    if np.ndim(allowlist) != 1:
        raise DataError(f"expected an allowlist [n] of track ids, got shape {list(np.shape(allowlist))}")
    hide_others(rows.agents, np.asarray(allowlist))


def get_frames_subset(dataset: ChunkedDataset, frame_start_idx: int, frame_end_idx: int) -> ChunkedDataset:
    """Return frames `frame_start_idx : frame_end_idx` as a new dataset, with copies of the rows."""
    rows = _rows(dataset)
    if not 0 <= frame_start_idx < frame_end_idx <= len(rows.frames):
        wanted = f"{frame_start_idx}:{frame_end_idx}"
        raise DataError(f"expected one frame or more within 0:{len(rows.frames)}, got {wanted}")
    return chunked(windows([rows], frame_start_idx, frame_end_idx))


def chunked(logs: Logs) -> ChunkedDataset:
    """Return the same arrays as a `ChunkedDataset` in memory."""
    dataset = ChunkedDataset("")
    for name in FIELDS:
        setattr(dataset, name, getattr(logs, name))
    return dataset


def _rows(dataset: ChunkedDataset) -> Arrays:
    """The arrays of a dataset of one scene in memory."""
    if len(dataset.scenes) != 1:
        raise DataError(f"expected a dataset of one scene, got {len(dataset.scenes)}; see get_scene_dataset")
    arrays = [getattr(dataset, name) for name in FIELDS]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        raise DataError("expected a dataset in memory, got one on disk; see get_scene_dataset")
    return Arrays(*arrays)
