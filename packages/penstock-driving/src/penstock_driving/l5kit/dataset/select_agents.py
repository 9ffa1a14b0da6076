"""Selection of agent observations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, UInt32Array
from penstock_driving.config import section
from penstock_driving.formats.l5kit import SCENE_DTYPE
from penstock_driving.geometry import angular_distance
from penstock_driving.logs import Arrays, Logs, Timeline, interest_of, scene_logs
from penstock_driving.mask import Thresholds, agents_mask, reference_mask

_DEFAULT = Thresholds()
_LEAST_AREA = 0.01  # m2
_REASONS = (
    "reject_th_agent_filter_probability_threshold",
    "reject_th_AV_distance",
    "reject_th_hole",
    "reject_th_yaw",
    "reject_th_extent",
)
TH_YAW_DEGREE = _DEFAULT.yaw_degrees
TH_EXTENT_RATIO = _DEFAULT.extent_ratio
TH_DISTANCE_AV = _DEFAULT.distance


def select_agents(
    zarr_dataset: Logs,
    th_agent_prob: float,
    th_yaw_degree: float = TH_YAW_DEGREE,
    th_extent_ratio: float = TH_EXTENT_RATIO,
    th_distance_av: float = TH_DISTANCE_AV,
) -> UInt32Array:
    """Return `[N, 2]` numbers of frames before and after each observation of its track; see `penstock`'s `agents_mask`.

    Hand it to a dataset as `agents_mask`; nothing is written.
    """
    return agents_mask(zarr_dataset, Thresholds(th_agent_prob, th_yaw_degree, th_extent_ratio, th_distance_av))


def in_consecutive_frame(frame_idx: int, past_frame_idx: int) -> bool:
    """Return whether a frame follows another one."""
    return bool(frame_idx - past_frame_idx == 1)


def in_av_distance(av_translation: AnyArray, agent_centroid: AnyArray, th: float) -> bool:
    """Return whether an agent `[2]` is less than `th` metres from the ego `[2 or more]`."""
    return bool(np.linalg.norm(av_translation[:2] - agent_centroid) < th)


def in_angular_distance(yaw1: AnyArray | float, yaw2: AnyArray | float, th: float) -> bool:
    """Return whether two angles (radians) are less than `th` degrees apart."""
    return bool(np.degrees(np.abs(angular_distance(yaw2, yaw1))) < th)


def in_extent_ratio(extent1: AnyArray, extent2: AnyArray, th: float) -> bool:
    """Return whether the larger of two footprints, of 0.01 m2 or more, is less than `th` times the smaller."""
    small, large = sorted(float(extent[0] * extent[1]) for extent in (extent1, extent2))
    return small >= _LEAST_AREA and large / small < th


def update_mask(mask: AnyArray, agent_list: Sequence[tuple[int, int, Any]]) -> None:
    """Put into `mask` `[N, 2]` how many observations of a track are before and after each: `agent_list` has them in
    their order, each a frame, a row of the mask, and the agent.
    """
    rows = [row for _, row, _ in agent_list]
    mask[rows, 0] = np.arange(len(rows))
    mask[rows, 1] = np.arange(len(rows))[::-1]


def get_valid_agents(
    frames_range: AnyArray,
    dataset: Logs,
    th_agent_filter_probability_threshold: float,
    th_yaw_degree: float,
    th_extent_ratio: float,
    th_distance_av: float,
) -> tuple[UInt32Array, Counter[str], tuple[int, int]]:
    """The mask of the agents in the frames `[first, last)` of one scene, how many were left out or began a new track
    for which reason, and the agents `[first, last)` of the dataset that these are.
    """
    first, last = (int(frame) for frame in frames_range)
    scene = np.zeros(1, SCENE_DTYPE)
    scene["frame_index_interval"] = first, last
    begins = np.array(dataset.frames[first:last]["agent_index_interval"])
    full = begins[begins[:, 1] > begins[:, 0]]
    rows = (int(full[0, 0]), int(full[-1, 1])) if len(full) else (0, 0)
    logs = scene_logs(Arrays(scene, dataset.frames, dataset.agents, dataset.tl_faces), 0)
    timeline = Timeline.of(logs)
    limits = Thresholds(th_agent_filter_probability_threshold, th_yaw_degree, th_extent_ratio, th_distance_av)
    report = _report(logs, timeline, limits)
    return agents_mask(logs, limits, timeline=timeline), report, rows


def _report(logs: Arrays, timeline: Timeline, limits: Thresholds) -> Counter[str]:
    """Why observations count for nothing or begin a new track; of several reasons the first counts."""
    agents = logs.agents
    frame = timeline.frame_of(np.arange(len(agents)))
    unlikely = ~(interest_of(agents["label_probabilities"]) > np.float32(limits.probability))
    far = ~(np.linalg.norm(timeline.ego[frame, :2] - agents["centroid"], axis=1) < limits.distance) & ~unlikely
    report = Counter({_REASONS[0]: int(unlikely.sum()), _REASONS[1]: int(far.sum())})
    order = np.argsort(agents["track_id"], kind="stable")
    before, after = order[:-1], order[1:]
    counts = ~(unlikely | far)
    same = (agents["track_id"][before] == agents["track_id"][after]) & counts[before] & counts[after]
    for one, two in zip(before[same].tolist(), after[same].tolist(), strict=True):
        if not in_consecutive_frame(int(frame[two]), int(frame[one])):
            report[_REASONS[2]] += 1
        elif not in_angular_distance(agents["yaw"][one], agents["yaw"][two], limits.yaw_degrees):
            report[_REASONS[3]] += 1
        elif not in_extent_ratio(agents["extent"][one], agents["extent"][two], limits.extent_ratio):
            report[_REASONS[4]] += 1
    report["total_reject"] = sum(report.values())
    report["total_agent_frames"] = len(agents)
    return report


def stored_mask(logs: Any, cfg: Mapping[str, Any]) -> AnyArray | None:
    """Return the mask that the original stored in the dataset's folder for the configured probability, or None."""
    name = section(cfg, "raster_params")["filter_agents_threshold"]
    path = Path(getattr(logs, "path", "") or "/nowhere")
    return reference_mask(path, name) if (path / "agents_mask" / str(name) / ".zarray").is_file() else None
