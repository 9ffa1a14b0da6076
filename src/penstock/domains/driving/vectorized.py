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
from penstock.domains.driving.dataset import DrivingDataset, EgoSamples, Sampled, described, lights_of
from penstock.domains.driving.logs import EGO_LABEL, TRACK_BYTES, Logs, NoSuchRowError, Timeline
from penstock.domains.driving.mask import MIN_FUTURE, MIN_HISTORY, Thresholds, agents_mask, chosen
from penstock.domains.driving.perturbation import Perturbation
from penstock.domains.driving.sampling import Sampler, Sampling, section
from penstock.domains.driving.vectorize import HISTORIES, Vectorizer, VectorSampler
from penstock.errors import DataError

EVALUATED_FRAME = 99
"""The frame of each scene that evaluation looks at, from 0."""
VALID_AGENTS = 50
"""The least room for the agents of a scene that are evaluated."""


class EgoDatasetVectorized(EgoSamples):
    """One vector sample for every frame: the ego, the agents around it, and the map.

    `cfg` is a configuration of l5kit (`model_params`, `raster_params`, `data_generation_params`).
    `penstock.domains.driving.vectorize` says what the keys of a sample are. Agents around come nearest first. Raises as
    `EgoDataset` does. Cost: some hundred microseconds a sample.
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
    """As `EgoDatasetVectorized`, with the ego as the first of the agents; `other_agents_num` counts it.

    Futures of agents that are not observed for more than 10 frames of history and more than 1 of future are not
    available. In `eval_mode` there is one sample a scene: its frame `eval_frame` (by default `EVALUATED_FRAME`). Then
    `all_valid_agents_track_ids` `[n, valid_agents]` int64 are the agents of the scene that `agents_mask` lets through,
    each once, in the order in which they appear, and 0 where there are fewer; without `eval_mode` all are 0.
    `valid_agents` None is the most that any scene has, and at least `VALID_AGENTS`.

    `agents_mask` is as in `AgentDataset`. Raises `NoSuchRowError` in `eval_mode` for a scene that is too short,
    `DataError` for one with more than `valid_agents`, or an `eval_frame` without `eval_mode`.
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
        mask = _mask(logs, Sampling.of(cfg).threshold, timeline) if agents_mask is None else agents_mask
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
        told: dict[str, Any] = {"eval_mode": self.eval_mode, "valid_agents": self.valid_agents}
        if self.eval_mode:
            told["eval_frame"] = self.eval_frame
        return {**super()._given(agents), **told, "agents_mask": self.agents_mask[agents]}


def _valid_of_scenes(logs: Logs, timeline: Timeline, rows: IntArray) -> list[IntArray]:
    """The track ids in some rows of the agents of each scene, each once, in the order in which they appear."""
    begins = np.searchsorted(rows, timeline.agents[timeline.offsets]).tolist()
    found: list[IntArray] = []
    for first, last in pairwise(begins):
        names = logs.agents[rows[first:last]]["track_id"].astype(np.int64)
        distinct, once = np.unique(names, return_index=True)
        found.append(distinct[np.argsort(once)])
    return found


def _mask(logs: Logs, threshold: float, timeline: Timeline) -> AnyArray:
    return agents_mask(logs, Thresholds(threshold), timeline=timeline)


def _sampling(cfg: Mapping[str, Any], vectorizer: Vectorizer) -> Sampling:
    """As of the configuration, with history for the longer of ego and agents.

    Raises `DataError` for a vectorizer that was made for another length of history.
    """
    model, sizes = dict(section(cfg, "model_params")), vectorizer.sizes
    for name, length in zip(HISTORIES, (sizes.history_ego, sizes.history_agents), strict=True):
        if int(model.get(name, length)) != length:
            raise DataError(
                f"expected model_params.{name} of {length}, which the vectorizer was made with, got {model[name]}"
            )
    model.setdefault("history_num_frames", 0)
    return replace(Sampling.of({**cfg, "model_params": model}), history=sizes.history)
