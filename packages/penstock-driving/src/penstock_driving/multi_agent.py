"""Samples of frames: the agents of each as the targets of one sample."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.errors import DataError
from penstock_driving.agent import Least, Rejected, mask_of, masked
from penstock_driving.config import Velocities
from penstock_driving.dataset import merged
from penstock_driving.ego import RasterChoice, RasterDataset
from penstock_driving.logs import TRACK_BYTES, Logs, Timeline
from penstock_driving.mask import MIN_FUTURE, MIN_HISTORY, Thresholds
from penstock_driving.pictures import SCENE_BYTES, ImageType
from penstock_driving.rasterize.scenes import ranges
from penstock_driving.sampling import MATRICES, SampleSubjects

Centric = Literal["agent", "scene"]

_OF_FRAMES = ("frame_index", "scene_index", "host_id", "timestamp")
_EGO, _NONE = -1, -2  # in the place of rows of the agents
_BLOCK = 1 << 18  # observations whose centroids are read at a time


class MultiAgentDataset(RasterDataset):
    """One sample for each frame: past and future of the agents that a mask selects, nearest to the ego first.

    Keys are as in `AgentDataset`, with a second axis of `K` agents. Frames with fewer agents are padded with zeros;
    `agent_availabilities` `[n, K]` float32 is 1 for agents and 0 for padding. `frame_index`, `scene_index`, `host_id`
    and `timestamp` have no such axis. Cost: one `agents_mask` and a pass over the agents; a sample costs as much as the
    samples of its agents.

    Args:
        cfg: Configuration of l5kit with `model_params` and `raster_params`.
        logs: The four arrays of a driving log.
        rasterizer: Draws `image`, as in `EgoDataset`. The default is `"config"`.
        agents_mask: Mask of the agents, as in `AgentDataset`. The default is None: computed from `thresholds`.
        min_frame_history: Frames before an observation that its track must have. The default is 10.
        min_frame_future: Frames after an observation that its track must have. The default is 1.
        agents: `K`, 1 or more. The default is None: the most that any frame has.
        centric: With `"agent"` (the default), each agent is seen from its own pose; `image` is `[n, K, C, H, W]`, black
            for padding. With `"scene"`, all are seen from the ego; `image` is `[n, C, H, W]` and matrices are `[n, 3,
            3]`.
        ego: Whether the first agent is the ego, with `track_id` -1. The default is False.
        min_agents: Frames with fewer agents, without the ego, are left out. The default is 0.
        thresholds: Limits for the computed mask, as in `AgentDataset`. The default is None.
        cache: Folder that keeps the computed mask. The default is None: it is not stored.
        rejected: `"leave_out"` (the default) or `"keep"`, as in `AgentDataset`.
        velocities: `"original"` (the default) or `"masked"`, as in `Sampling`.
        image_type: Dtype of `image`: `"float32"` in 0 to 1 (the default), or `"uint8"`.
        track_bytes: Bytes of memory for tables of tracks. The default is 512 MiB.
        scene_bytes: Bytes of rows up to which the log stays in memory for rasters. The default is 512 MiB.

    Raises:
        DataError: `agents` or `min_agents` is out of range, `centric` is unknown, and as for `AgentDataset`.
        FormatError: Intervals of scenes, frames and agents do not fit together.

    Example:
        >>> from penstock_driving.logs import Arrays
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> rows = {1: SCENE_DTYPE, 3: FRAME_DTYPE}, {4: AGENT_DTYPE, 0: TL_FACE_DTYPE}
        >>> logs = Arrays(*(np.zeros(n, dtype) for part in rows for n, dtype in part.items()))
        >>> logs.scenes["frame_index_interval"] = [0, 3]
        >>> logs.frames["agent_index_interval"] = [[0, 1], [1, 3], [3, 4]]
        >>> logs.agents["extent"], logs.agents["label_probabilities"][:, 3] = 1, 1
        >>> logs.agents["track_id"], logs.agents["centroid"][:, 0] = [1, 2, 1, 1], [5, 8, 6, 7]
        >>> raster = {"raster_size": (9, 9), "pixel_size": (1, 1), "ego_center": (0.5, 0.5)}
        >>> raster |= {"filter_agents_threshold": 0.5, "set_origin_to_bottom": True}
        >>> model = {"history_num_frames": 1, "future_num_frames": 1, "step_time": 0.1}
        >>> cfg = {"raster_params": raster, "model_params": model}
        >>> data = MultiAgentDataset(cfg, logs, min_frame_history=0, min_frame_future=0)
        >>> data[:]["track_id"].tolist(), data[1]["target_positions"][:, 0].tolist()
        ([[1, 0], [1, 2], [1, 0]], [[1.0, 0.0], [0.0, 0.0]])
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        rasterizer: RasterChoice = "config",
        agents_mask: AnyArray | None = None,
        min_frame_history: int = MIN_HISTORY,
        min_frame_future: int = MIN_FUTURE,
        *,
        agents: int | None = None,
        centric: Centric = "agent",
        ego: bool = False,
        min_agents: int = 0,
        thresholds: Thresholds | None = None,
        cache: str | os.PathLike[str] | None = None,
        rejected: Rejected = "leave_out",
        velocities: Velocities = "original",
        image_type: ImageType = "float32",
        track_bytes: int = TRACK_BYTES,
        scene_bytes: int = SCENE_BYTES,
    ) -> None:
        if centric not in ("agent", "scene"):
            raise DataError(f"expected centric to be 'agent' or 'scene', got {centric!r}")
        if min_agents < 0 or (agents is not None and agents < 1):
            raise DataError(f"expected min_agents from 0 and agents from 1 on, got {min_agents} and {agents}")
        timeline = Timeline.of(logs)
        least = Least(min_frame_history, min_frame_future, rejected)
        self.agents_mask, self.agents_indices = masked(cfg, logs, timeline, agents_mask, least, thresholds, cache)
        self._nearest = _by_distance(logs, timeline, self.agents_indices)
        self._begins = np.searchsorted(self.agents_indices, timeline.agents)  # the rows of each frame in `_nearest`
        counts = np.diff(self._begins)
        self.agents = max(int(counts.max(initial=0)) + ego, 1) if agents is None else agents
        self.centric: Centric = centric
        self.ego, self.min_agents = ego, min_agents
        options = {
            "velocities": velocities,
            "image_type": image_type,
            "track_bytes": track_bytes,
            "scene_bytes": scene_bytes,
        }
        frames = np.flatnonzero(counts >= min_agents)
        cuts = np.searchsorted(frames, timeline.offsets)
        who = hashlib.sha256(self.agents_indices.tobytes()).hexdigest()
        parts = (self.agents, centric, ego, who)
        super().__init__(cfg, logs, timeline, frames, cuts, rasterizer, None, options, *parts)

    def _given(self, agents: slice) -> dict[str, Any]:
        mask = mask_of(self.agents_indices, len(self.dataset.agents))
        own = {name: getattr(self, name) for name in ("agents", "centric", "ego", "min_agents")}
        return {"rasterizer": self.rasterizer, "agents_mask": mask[agents], **own, **self.options}

    def _make(self, rows: IntArray, positions: IntArray) -> Columns:
        return self._stacked(rows, self._chosen(rows))

    def _one(self, frame: int, track_id: int | None) -> Columns:
        chosen = self._chosen(np.array([frame]))
        if track_id is not None:  # that agent alone
            chosen[0] = _NONE
            chosen[0, 0] = _EGO if track_id == _EGO else self.sampler.find(frame, track_id)
        return self._stacked(np.array([frame]), chosen)

    def _chosen(self, frames: IntArray) -> IntArray:
        """`[n, K]` the rows of the agents in `[n]` frames of the dataset, `_EGO` and `_NONE` among them."""
        chosen = np.full((len(frames), self.agents), _NONE)
        chosen[:, : int(self.ego)] = _EGO
        begin = self._begins[frames]
        end = np.minimum(self._begins[frames + 1], begin + self.agents - self.ego)
        place, sample = ranges(np.stack([begin, end], axis=1))
        chosen[sample, place - begin[sample] + self.ego] = self._nearest[place]
        return chosen

    def _stacked(self, frames: IntArray, chosen: IntArray) -> Columns:
        """The samples of `[n]` frames, of the agents `[n, K]`."""
        flat, k = chosen.reshape(-1), chosen.shape[1]
        here, egos = np.flatnonzero(flat >= 0), np.flatnonzero(flat == _EGO)
        around = self.sampler.standing(frames)
        scene = self.centric == "scene"
        sample, targets = self.sampler.agents(flat[here], around.pose[here // k] if scene else None)
        parts, seen = [(here, sample)], [targets]
        if len(egos):
            sample, targets = self.sampler.ego(frames[egos // k], frames[egos // k])
            parts, seen = [*parts, (egos, sample)], [*seen, targets]
        left_out = {*_OF_FRAMES, *(MATRICES if scene else ())}
        columns = {name: _padded(parts, name, chosen.shape) for name in sample.flat if name not in left_out}
        columns["agent_availabilities"] = (chosen != _NONE).astype(np.float32)
        columns["frame_index"] = frames - self.timeline.offsets[around.scene]
        if scene:
            columns |= self.sampler.matrices(around.pose)
        whole = Columns({**self.sampler.metadata(around), **columns})
        if self.pictures is None or scene:
            return self._pictured(whole, around)
        images = self.pictures.padded(SampleSubjects.joined(seen), np.concatenate([here, egos]), chosen.size)
        return merged(whole, images.reshape(*chosen.shape, *images.shape[1:]))


def _padded(parts: list[tuple[IntArray, Columns]], name: str, shape: tuple[int, ...]) -> AnyArray:
    """`[n, K, ...]` the values of samples at their places among `n * K`, zeros elsewhere."""
    first = np.asarray(parts[0][1][name])
    values = np.zeros((int(np.prod(shape)), *first.shape[1:]), first.dtype)
    for places, sample in parts:
        values[places] = sample[name]
    return values.reshape(*shape, *first.shape[1:])


def _by_distance(logs: Logs, timeline: Timeline, rows: IntArray) -> IntArray:
    """Rows of the agents that rise, frame by frame in the order of their distance to the ego."""
    frame, away = timeline.frame_of(rows), np.empty((len(rows), 2))
    for lo in range(0, int(timeline.agents[-1]), _BLOCK):
        part = slice(*np.searchsorted(rows, [lo, lo + _BLOCK]).tolist())
        away[part] = logs.agents[lo : lo + _BLOCK]["centroid"][rows[part] - lo]
    away -= timeline.ego[frame, :2]
    return rows[np.lexsort(((away * away).sum(axis=1), frame))]
