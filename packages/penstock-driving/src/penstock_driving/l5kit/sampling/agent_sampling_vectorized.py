"""The vector sample of one frame, out of the rows of its scene; datasets make them many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.config import Sampling
from penstock_driving.l5kit.kinematic.perturbation import Perturbation
from penstock_driving.l5kit.sampling.agent_sampling import as_logs, get_agent_context, moved_context
from penstock_driving.sampling import Sampler
from penstock_driving.vectorize import Vectorizer, VectorSampler


def generate_agent_sample_vectorized(
    state_index: int,
    frames: AnyArray,
    agents: Any,
    tl_faces: Any,
    selected_track_id: int | None,
    history_num_frames_ego: int,
    history_num_frames_agents: int,
    future_num_frames: int,
    step_time: float,
    filter_agents_threshold: float,
    vectorizer: Vectorizer,
    perturbation: Perturbation | None = None,
) -> dict[str, Any]:
    """Return the vector sample of the ego (None), or of a track, in frame `state_index` of a scene's `frames`.

    It has the keys of `EgoDatasetVectorized` without `scene_index`, `host_id`, `timestamp` and `track_id`.
    """
    sizes = vectorizer.sizes
    if (history_num_frames_ego, history_num_frames_agents) != (sizes.history_ego, sizes.history_agents):
        raise DataError(
            f"expected history of {sizes.history_ego} and {sizes.history_agents} frames of ego and agents, which the "
            f"vectorizer was made with, got {history_num_frames_ego} and {history_num_frames_agents}"
        )
    context = get_agent_context(state_index, frames, agents, tl_faces, sizes.history, future_num_frames)
    logs, here = as_logs(moved_context(context, perturbation, future_num_frames))
    sampler = Sampler(logs, Sampling(sizes.history, future_num_frames, step_time, filter_agents_threshold))
    vectors = VectorSampler(sampler, vectorizer, sizes.others, lights=True)
    if selected_track_id is None:
        sample = vectors.ego(np.array([here]), np.array([here]))
    else:
        sample = vectors.agents(np.array([sampler.find(here, selected_track_id)]))
    left_out = ("scene_index", "host_id", "timestamp", "track_id")
    return {name: value for name, value in sample.row(0).items() if name not in left_out}
