"""Datasets of vector samples: the ego in every frame, alone or as one of the agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.errors import DataError
from penstock_driving.config import Sampling, section
from penstock_driving.dataset import DrivingDataset, EgoSamples, Sampled, described, lights_of
from penstock_driving.logs import EGO_LABEL, TRACK_BYTES, Logs, NoSuchRowError, Timeline
from penstock_driving.mask import MIN_FUTURE, MIN_HISTORY, Thresholds, agents_mask, chosen
from penstock_driving.perturbation import Perturbation
from penstock_driving.sampling import Sampler
from penstock_driving.vectorize import HISTORIES, Vectorizer, VectorSampler

EVALUATED_FRAME = 99
"""The frame of each scene that evaluation looks at, from 0."""
VALID_AGENTS = 50
"""The least room for the agents of a scene that are evaluated."""


class EgoDatasetVectorized(EgoSamples):
    """One vector sample for each frame: the ego, the agents around it (nearest first), and the map.

    `penstock_driving.vectorize` lists the keys of a sample. Cost: some hundred microseconds a sample.

    Args:
        cfg: Configuration of l5kit with `model_params`, `raster_params` and `data_generation_params`.
        logs: The four arrays of a driving log.
        vectorizer: Makes the vectors of agents and of the map.
        perturbation: Moves the ego in random samples, as in `EgoDataset`. The default is None.
        track_bytes: Bytes of memory for tables of tracks. The default is 512 MiB.

    Raises:
        DataError: The configuration lacks an entry, or the vectorizer was made for another length of history.
        FormatError: Intervals of scenes, frames and agents do not fit together.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from penstock_driving.logs import Arrays
        >>> from penstock_driving.map import MapAPI
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> file = Path(tempfile.mkdtemp(), "map.pb")  # a map of one junction without lanes
        >>> _ = file.write_bytes(bytes.fromhex("12090a030a014a12022a00"))
        >>> lanes = {"max_num_lanes": 30, "max_points_per_lane": 20, "max_num_crosswalks": 20}
        >>> lanes |= {"max_points_per_crosswalk": 20, "max_retrieval_distance_m": 35}
        >>> raster = {"raster_size": (9, 9), "pixel_size": (1, 1), "ego_center": (0.5, 0.5)}
        >>> raster |= {"filter_agents_threshold": 0.5, "set_origin_to_bottom": True}
        >>> model = {"history_num_frames_ego": 1, "history_num_frames_agents": 3}
        >>> model |= {"future_num_frames": 2, "step_time": 0.1}
        >>> agents = {"other_agents_num": 4, "max_agents_distance": 35, "lane_params": lanes}
        >>> cfg = {"raster_params": raster, "model_params": model, "data_generation_params": agents}
        >>> kinds = (SCENE_DTYPE, 1), (FRAME_DTYPE, 3), (AGENT_DTYPE, 3), (TL_FACE_DTYPE, 0)
        >>> logs = Arrays(*(np.zeros(n, dtype) for dtype, n in kinds))
        >>> logs.scenes["frame_index_interval"], logs.frames["ego_rotation"] = [0, 3], np.eye(3)
        >>> logs.frames["agent_index_interval"] = [[0, 1], [1, 2], [2, 3]]
        >>> logs.agents["extent"], logs.agents["label_probabilities"][:, 3], logs.agents["track_id"] = 1, 1, 7
        >>> vectorizer = Vectorizer(cfg, MapAPI(file, np.eye(4)))
        >>> data = EgoDatasetVectorized(cfg, logs, vectorizer)
        >>> data[0]["all_other_agents_track_ids"].tolist()
        [7, 0, 0, 0]
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        vectorizer: Vectorizer,
        perturbation: Perturbation | None = None,
        *,
        track_bytes: int = TRACK_BYTES,
    ) -> None:
        timeline = Timeline.of(logs)
        self._begin(cfg, logs, timeline, vectorizer, perturbation, vectorizer.sizes.others, track_bytes)
        frames = np.arange(len(timeline))
        super().__init__(cfg, logs, timeline, frames, timeline.offsets, self._stage())

    def _begin(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        timeline: Timeline,
        vectorizer: Vectorizer,
        perturbation: Perturbation | None,
        others: int,
        track_bytes: int,
    ) -> None:
        sampling = _sampling(cfg, vectorizer)
        self.vectorizer = vectorizer
        self.perturbation = perturbation
        self.track_bytes = track_bytes
        lights = lights_of(cfg)
        sampler = Sampler(logs, sampling, perturbation, timeline=timeline, track_bytes=track_bytes)
        self.sampler = VectorSampler(sampler, vectorizer, others, lights)
        self._fingerprint_parts = (logs, type(self).__name__, sampling, vectorizer, others, lights)

    def _stage(self, *more: object) -> Sampled:
        logs, *parts = self._fingerprint_parts
        return Sampled(self._make, described(logs, *parts, *more), self.perturbation)

    def _make(self, rows: IntArray, positions: IntArray) -> Columns:
        return self.sampler.ego(rows, positions)

    @property
    @override
    def sampling(self) -> Sampling:
        return self.sampler.sampler.sampling

    @override
    def agent_samples(self, rows: IntArray) -> Columns:
        return self.sampler.agents(rows)

    def _one(self, frame: int, track_id: int | None) -> Columns:
        if track_id is None or track_id == -1:
            return self.sampler.ego(np.array([frame]), np.array([frame]))
        return self.sampler.agents(np.array([self.sampler.sampler.find(frame, track_id)]))

    def _given(self, agents: slice) -> dict[str, Any]:
        return {"vectorizer": self.vectorizer, "perturbation": self.perturbation, "track_bytes": self.track_bytes}


class EgoAgentDatasetVectorized(EgoDatasetVectorized):
    """One vector sample for each frame, with the ego as the first of the agents; `other_agents_num` counts it.

    Futures of agents with at most 10 observed frames of history, or at most 1 of future, are not available. With
    `eval_mode`, there is one sample for each scene. Then `all_valid_agents_track_ids` `[n, valid_agents]` int64 are the
    agents of the scene that `agents_mask` selects, each once, in the order of their first frame, padded with 0; without
    `eval_mode`, all are 0.

    Args:
        cfg: Configuration of l5kit with `model_params`, `raster_params` and `data_generation_params`.
        logs: The four arrays of a driving log.
        vectorizer: Makes the vectors of agents and of the map.
        perturbation: Moves the ego in random samples, as in `EgoDataset`. The default is None.
        agents_mask: Mask of the agents, as in `AgentDataset`. The default is None: computed.
        eval_mode: Whether there is one sample for each scene. The default is False.
        eval_frame: Frame of each scene to evaluate, from 0. Only with `eval_mode`; the default is `EVALUATED_FRAME`,
            99.
        valid_agents: Width of `all_valid_agents_track_ids`. The default is None: the most that any scene has, and at
            least `VALID_AGENTS`, 50.
        track_bytes: Bytes of memory for tables of tracks. The default is 512 MiB.

    Raises:
        DataError: A scene has more than `valid_agents`, `eval_frame` is set without `eval_mode`, and as for
            `EgoDatasetVectorized`.
        NoSuchRowError: With `eval_mode`, a scene has no frame `eval_frame`.
        FormatError: Intervals of scenes, frames and agents do not fit together.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from penstock_driving.logs import Arrays
        >>> from penstock_driving.map import MapAPI
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
        >>> file = Path(tempfile.mkdtemp(), "map.pb")  # a map of one junction without lanes
        >>> _ = file.write_bytes(bytes.fromhex("12090a030a014a12022a00"))
        >>> lanes = {"max_num_lanes": 30, "max_points_per_lane": 20, "max_num_crosswalks": 20}
        >>> lanes |= {"max_points_per_crosswalk": 20, "max_retrieval_distance_m": 35}
        >>> raster = {"raster_size": (9, 9), "pixel_size": (1, 1), "ego_center": (0.5, 0.5)}
        >>> raster |= {"filter_agents_threshold": 0.5, "set_origin_to_bottom": True}
        >>> model = {"history_num_frames_ego": 1, "history_num_frames_agents": 3}
        >>> model |= {"future_num_frames": 2, "step_time": 0.1}
        >>> agents = {"other_agents_num": 4, "max_agents_distance": 35, "lane_params": lanes}
        >>> cfg = {"raster_params": raster, "model_params": model, "data_generation_params": agents}
        >>> kinds = (SCENE_DTYPE, 1), (FRAME_DTYPE, 3), (AGENT_DTYPE, 3), (TL_FACE_DTYPE, 0)
        >>> logs = Arrays(*(np.zeros(n, dtype) for dtype, n in kinds))
        >>> logs.scenes["frame_index_interval"], logs.frames["ego_rotation"] = [0, 3], np.eye(3)
        >>> logs.frames["agent_index_interval"] = [[0, 1], [1, 2], [2, 3]]
        >>> logs.agents["extent"], logs.agents["label_probabilities"][:, 3], logs.agents["track_id"] = 1, 1, 7
        >>> vectorizer = Vectorizer(cfg, MapAPI(file, np.eye(4)))
        >>> data = EgoAgentDatasetVectorized(cfg, logs, vectorizer)
        >>> data[0]["all_other_agents_track_ids"].tolist()  # the ego is -1
        [-1, 7, 0, 0]
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        logs: Logs,
        vectorizer: Vectorizer,
        perturbation: Perturbation | None = None,
        agents_mask: AnyArray | None = None,
        eval_mode: bool = False,
        *,
        eval_frame: int | None = None,
        valid_agents: int | None = None,
        track_bytes: int = TRACK_BYTES,
    ) -> None:
        timeline = Timeline.of(logs)
        others = max(vectorizer.sizes.others - 1, 0)
        self._begin(cfg, logs, timeline, vectorizer, perturbation, others, track_bytes)
        if eval_frame is not None and not eval_mode:
            raise DataError(f"expected eval_frame with eval_mode=True, got {eval_frame} without it")
        self.eval_mode, self.eval_frame = eval_mode, EVALUATED_FRAME if eval_frame is None else eval_frame
        mask = _mask(logs, self.sampling.threshold, timeline) if agents_mask is None else agents_mask
        self.agents_mask = mask
        self.agents_indices = chosen(mask, len(logs.agents), MIN_HISTORY, MIN_FUTURE)
        valid = _valid_of_scenes(logs, timeline, self.agents_indices) if eval_mode else []
        most = max(map(len, valid), default=0)
        self.valid_agents = max(most, VALID_AGENTS) if valid_agents is None else valid_agents
        if most > self.valid_agents:
            raise DataError(
                f"expected at most {self.valid_agents} valid agents a scene, got {most}; raise valid_agents"
            )
        self._valid = np.zeros((timeline.scenes, self.valid_agents), np.int64)
        for scene, names in enumerate(valid):
            self._valid[scene, : len(names)] = names
        rows, cuts = np.arange(len(timeline)), timeline.offsets
        if eval_mode:
            rows, cuts = timeline.offsets[:-1] + self.eval_frame, np.arange(timeline.scenes + 1)
            short = np.flatnonzero(rows >= timeline.offsets[1:])
            if len(short):
                raise NoSuchRowError(
                    f"expected scenes of more than {self.eval_frame} frames, got a shorter one: {short[0]}"
                )
        stage = self._stage(eval_mode, self.eval_frame, self.valid_agents)
        DrivingDataset.__init__(self, cfg, logs, timeline, rows, cuts, stage)

    def _make(self, rows: IntArray, positions: IntArray) -> Columns:
        sample = super()._make(rows, positions)
        both = {name: np.asarray(sample[name]) for name in sample}
        pairs = [(f"all_other_agents_history_{part}", f"history_{part}") for part in ("positions", "yaws", "extents")]
        pairs += [(f"all_other_agents_future_{part}", f"target_{part}") for part in ("positions", "yaws", "extents")]
        pairs += [
            ("all_other_agents_history_availability", "history_availabilities"),
            ("all_other_agents_future_availability", "target_availabilities"),
            ("all_other_agents_track_ids", "track_id"),
            ("other_agents_polyline", "agent_trajectory_polyline"),
            ("other_agents_polyline_availability", "agent_polyline_availability"),
        ]
        for name, own in pairs:
            both[name] = np.concatenate([both[own][:, None], both[name]], axis=1)
        ego = np.full((len(rows), 1), EGO_LABEL)
        both["all_other_agents_types"] = np.concatenate([ego, both["all_other_agents_types"]], axis=1)
        past = both["all_other_agents_history_availability"].sum(axis=-1) > MIN_HISTORY
        future = both["all_other_agents_future_availability"]
        future &= (past & (future.sum(axis=-1) > MIN_FUTURE))[..., None]
        return Columns({**both, "all_valid_agents_track_ids": self._valid[self.timeline.scene_of(rows)]})

    def _given(self, agents: slice) -> dict[str, Any]:
        keywords: dict[str, Any] = {"eval_mode": self.eval_mode, "valid_agents": self.valid_agents}
        if self.eval_mode:
            keywords["eval_frame"] = self.eval_frame
        return {**super()._given(agents), **keywords, "agents_mask": self.agents_mask[agents]}


def _valid_of_scenes(logs: Logs, timeline: Timeline, rows: IntArray) -> list[IntArray]:
    """The track ids in some rows of the agents of each scene, each once, in the order in which they appear."""
    begins = np.searchsorted(rows, timeline.agents[timeline.offsets]).tolist()
    by_scene: list[IntArray] = []
    for first, last in pairwise(begins):
        names = logs.agents[rows[first:last]]["track_id"].astype(np.int64)
        distinct, once = np.unique(names, return_index=True)
        by_scene.append(distinct[np.argsort(once)])
    return by_scene


def _mask(logs: Logs, threshold: float, timeline: Timeline) -> AnyArray:
    return agents_mask(logs, Thresholds(threshold), timeline=timeline)


def _sampling(cfg: Mapping[str, Any], vectorizer: Vectorizer) -> Sampling:
    """As of the configuration, with history for the longer of ego and agents."""
    model, sizes = dict(section(cfg, "model_params")), vectorizer.sizes
    for name, length in zip(HISTORIES, (sizes.history_ego, sizes.history_agents), strict=True):
        if int(model.get(name, length)) != length:
            raise DataError(
                f"expected model_params.{name} of {length}, which the vectorizer was made with, got {model[name]}"
            )
    model.setdefault("history_num_frames", 0)
    return replace(Sampling.of({**cfg, "model_params": model}), history=sizes.history)
