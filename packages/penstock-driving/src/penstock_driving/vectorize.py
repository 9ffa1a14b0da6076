"""Vector samples: the ego, the agents around it, and the map, as arrays of fixed shapes.

The keys of a batch of `n` samples, with `H` frames of history (the longer of ego and agents), `F` of future and `K`
agents around; float32 in the frame of the current pose, and bool for availabilities:

* `target_*` and `history_*` (`positions`, `yaws`, `extents`, `availabilities`), `centroid`, `yaw`, `extent`,
  `agent_from_world`, `world_from_agent`, `scene_index`, `host_id`, `timestamp`, `track_id`: as `sampling` has them;
  `speed` `[n]` m/s to the next frame; `type` `[n]` int64, the label.
* `all_other_agents_history_*` `[n, K, H + 1, ...]`, `all_other_agents_future_*` `[n, K, F, ...]`, each `positions`,
  `yaws`, `extents` and `availability`; `all_other_agents_types` and `all_other_agents_track_ids` `[n, K]` int64, 0
  for none.
* `agent_trajectory_polyline` `[n, H + 1, 3]` and `other_agents_polyline` `[n, K, H + 1, 3]` (x, y, yaw), with
  `agent_polyline_availability` and `other_agents_polyline_availability`.
* `lanes`, `lanes_mid`, `crosswalks` and their `..._availabilities`: see `Surroundings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock_driving.config import section
from penstock_driving.kernels.agents import nearest_agents
from penstock_driving.logs import EGO_LABEL, Tracks
from penstock_driving.map.api import MapAPI
from penstock_driving.sampling import Poses, Sampler, SampleSubjects, relative, transforms
from penstock_driving.surroundings import ActiveFaces, Reach, Surroundings

HISTORIES = ("history_num_frames_ego", "history_num_frames_agents")
"""The keys of `model_params` that say how many frames of history the ego and agents have."""


@dataclass(frozen=True)
class VectorSizes:
    """How much a vector sample has: history of the ego and of agents, `others` agents within `radius` metres."""

    history_ego: int = 1
    history_agents: int = 3
    others: int = 30
    radius: float = 35.0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> VectorSizes:
        """From `model_params` and `data_generation_params` of a configuration."""
        model, data = section(config, "model_params"), section(config, "data_generation_params")
        return cls(
            int(model[HISTORIES[0]]),
            int(model[HISTORIES[1]]),
            int(data["other_agents_num"]),
            float(data["max_agents_distance"]),
        )

    @property
    def history(self) -> int:
        """Frames before the current one that arrays have room for."""
        return max(self.history_ego, self.history_agents)


class Vectorizer:
    """How samples become vectors: `VectorSizes` and `Reach` of a configuration, and the map. Datasets share one.

    Cost: a few passes over the map's lanes.
    """

    def __init__(self, cfg: Mapping[str, Any], map_api: MapAPI) -> None:
        self.sizes, self.reach = VectorSizes.of(cfg), Reach.of(cfg)
        self.map = map_api
        self.surroundings = Surroundings(map_api, self.reach)

    def __repr__(self) -> str:
        return f"Vectorizer({self.sizes}, {self.reach}, {len(self.map)} elements)"


class VectorSampler:
    """Vector samples of what `sampler` samples, with `others` agents around. Thread-safe."""

    def __init__(self, sampler: Sampler, vectorizer: Vectorizer, others: int, lights: bool) -> None:
        self.sampler = sampler
        self.vectorizer = vectorizer
        self.others = others
        self._active = ActiveFaces(sampler.logs, sampler.timeline, vectorizer.surroundings.faces, lights)

    def ego(self, frames: IntArray, positions: IntArray) -> Columns:
        """The samples of the ego in `[n]` frames of the dataset, for `[n]` positions of a plan."""
        sample, targets = self.sampler.ego(frames, positions)
        return self._vectors(sample, targets, np.full(len(frames), EGO_LABEL))

    def agents(self, rows: IntArray) -> Columns:
        """The samples of the observations in `[n]` rows of the agents."""
        sample, targets = self.sampler.agents(rows)
        kind = np.empty(len(rows), np.int64)
        for members, tracks in self.sampler.by_table(targets.scene):
            kind[members] = tracks.kind[tracks.place[rows[members] - tracks.first]]
        return self._vectors(sample, targets, kind)

    def _vectors(self, sample: Columns, targets: SampleSubjects, kind: IntArray) -> Columns:
        sizes = self.vectorizer.sizes
        own = sizes.history_ego + 1
        names = ("positions", "yaws", "extents", "availabilities")
        history = {name: np.array(sample[f"history_{name}"]) for name in names}
        for array in history.values():
            array[:, own:] = 0
        there = history["availabilities"].astype(np.bool_)
        first = np.asarray(sample["target_positions"])[:, :1] / np.float32(self.sampler.sampling.step_time)
        active = self._active(targets.frame)
        matrices = transforms(targets.pose)
        return Columns(
            {
                "extent": sample["extent"],
                "type": kind,
                **matrices,
                "target_positions": sample["target_positions"],
                "target_yaws": sample["target_yaws"],
                "target_extents": sample["future_extents"],
                "target_availabilities": np.asarray(sample["target_availabilities"]).astype(np.bool_),
                "history_positions": history["positions"],
                "history_yaws": history["yaws"],
                "history_extents": history["extents"],
                "history_availabilities": there,
                "centroid": sample["centroid"],
                "yaw": sample["yaw"],
                "speed": np.linalg.norm(first, axis=-1).sum(axis=1),
                **self._around(targets),
                "agent_trajectory_polyline": np.concatenate([history["positions"], history["yaws"]], axis=-1),
                "agent_polyline_availability": there.copy(),
                **self.vectorizer.surroundings(targets.pose, matrices["agent_from_world"], active),
                **self.sampler.metadata(targets),
            }
        )

    def _around(self, targets: SampleSubjects) -> dict[str, AnyArray]:
        """The keys of the agents around, the nearest first; agents of the current frame before others."""
        n = len(targets.frame)
        k = self.others
        sizes = self.vectorizer.sizes
        past, ahead = (Poses.empty(n * k, length) for length in self.sampler.sampling.steps)
        kinds, names = np.zeros((n, k), np.int64), np.zeros((n, k), np.int64)
        for members, tracks in self.sampler.by_table(targets.scene):
            place, nearest = self._nearest(tracks, targets, members)
            flat, rows = place.reshape(-1), (members[:, None] * k + np.arange(k)).reshape(-1)
            frame, pose = np.repeat(targets.frame[members], k), np.repeat(targets.pose[members], k, axis=0)
            history, future = self.sampler.sampling.steps
            past.put(rows, relative(tracks, flat, frame, pose, 0, -1, history))
            ahead.put(rows, relative(tracks, flat, frame, pose, 1, 1, future))
            if len(tracks.names):
                kinds[members] = np.where(nearest >= 0, tracks.kind[np.maximum(nearest, 0)], 0)
                track_names = tracks.names[tracks.track[np.maximum(place, 0)]].astype(np.int64)
                names[members] = np.where(place >= 0, track_names, 0)
        for array in (past.positions, past.yaws, past.extents, past.there):
            array[:, sizes.history_agents + 1 :] = 0
        outputs: dict[str, AnyArray] = {}
        for when, poses in (("history", past), ("future", ahead)):
            length = poses.there.shape[1]
            outputs[f"all_other_agents_{when}_positions"] = poses.positions.reshape(n, k, length, 2)
            outputs[f"all_other_agents_{when}_yaws"] = poses.yaws.reshape(n, k, length, 1)
            outputs[f"all_other_agents_{when}_extents"] = poses.extents.reshape(n, k, length, 2)
            outputs[f"all_other_agents_{when}_availability"] = poses.there.reshape(n, k, length).astype(np.bool_)
        points = (outputs["all_other_agents_history_positions"], outputs["all_other_agents_history_yaws"])
        return {
            **outputs,
            "all_other_agents_types": kinds,
            "all_other_agents_track_ids": names,
            "other_agents_polyline": np.concatenate(points, axis=-1),
            "other_agents_polyline_availability": outputs["all_other_agents_history_availability"].copy(),
        }

    def _nearest(self, tracks: Tracks, targets: SampleSubjects, members: IntArray) -> tuple[IntArray, IntArray]:
        """`[n, others]` a place of each agent around, and the one where it was nearest; -1 where there are fewer."""
        timeline, frame = self.sampler.timeline, targets.frame[members]
        low = np.maximum(frame - self.vectorizer.sizes.history, timeline.offsets[targets.scene[members]])
        start = int(low.min())
        frames = np.stack([low, frame + 1], axis=1) - start
        spans = timeline.intervals[start : int(frame.max()) + 1] - tracks.first
        own = np.full(len(members), -1)
        chosen = np.flatnonzero(targets.agent[members] >= 0)
        own[chosen] = tracks.track[tracks.place[targets.agent[members[chosen]] - tracks.first]]
        place, nearest = (np.empty((len(members), self.others), np.int64) for _ in range(2))
        nearest_agents(
            frames,
            spans,
            tracks.place,
            tracks.xy,
            tracks.track,
            tracks.likely,
            np.ascontiguousarray(targets.pose[members, :2]),
            own,
            self.vectorizer.sizes.radius,
            place,
            nearest,
        )
        return place, nearest
