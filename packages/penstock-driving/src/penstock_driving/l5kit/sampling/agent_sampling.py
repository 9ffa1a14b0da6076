"""The sample of one frame, out of the rows of its scene; datasets make them many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array
from penstock.errors import DataError
from penstock_driving.config import Sampling
from penstock_driving.formats.l5kit import SCENE_DTYPE
from penstock_driving.formats.l5kit.columns import intervals
from penstock_driving.geometry import angular_distance, rotation33_as_yaw, transform_points
from penstock_driving.l5kit.data.filter import filter_agents_by_frames, filter_tl_faces_by_frames
from penstock_driving.l5kit.kinematic.perturbation import Perturbation
from penstock_driving.l5kit.sampling.slicing import get_future_slice, get_history_slice
from penstock_driving.logs import EGO_EXTENT, Arrays
from penstock_driving.rasterize import Rasterizer, RenderContext
from penstock_driving.sampling import Sampler

Context = tuple[AnyArray, AnyArray, list[AnyArray], list[AnyArray], list[AnyArray], list[AnyArray]]


def get_agent_context(
    state_index: int, frames: AnyArray, agents: Any, tl_faces: Any, history_num_frames: int, future_num_frames: int
) -> Context:
    """Frames, agents and faces around frame `state_index` of a scene's `frames`, whose intervals count in `agents` and
    `tl_faces`: history frames (the current one first, back in time), future frames, then of each a list of agents, a
    list of agents, a list of faces, a list of faces. Intervals of what is given count from the earliest frame on.
    """
    history = frames[get_history_slice(state_index, history_num_frames, 1, include_current_state=True)].copy()
    future = frames[get_future_slice(state_index, future_num_frames, 1)].copy()
    near_agents = _near("agent_index_interval", history, future, agents)
    near_faces = _near("traffic_light_faces_index_interval", history, future, tl_faces)
    return (
        history,
        future,
        filter_agents_by_frames(history, near_agents),
        filter_agents_by_frames(future, near_agents),
        filter_tl_faces_by_frames(history, near_faces),
        filter_tl_faces_by_frames(future, near_faces),
    )


def _near(field: str, history: AnyArray, future: AnyArray, rows: Any) -> AnyArray:
    """The rows that the frames own, whose intervals are made to count in them."""
    spans = np.concatenate([history[field], future[field]])
    full = spans[spans[:, 1] > spans[:, 0]]
    begin, end = (int(full[:, 0].min()), int(full[:, 1].max())) if len(full) else (0, 0)
    for frames in (history, future):
        frames[field] -= begin
        frames[field][frames[field][:, 0] == frames[field][:, 1]] = 0
    return np.array(rows[begin:end])


def compute_agent_velocity(
    history_positions_m: AnyArray, future_positions_m: AnyArray, step_time: float
) -> tuple[Float32Array, Float32Array]:
    """m/s in the past `[H, 2]` and in the future `[F, 2]`, of positions `[H + 1, 2]` and `[F, 2]` around the current
    one, which is at the origin.
    """
    if not step_time > np.finfo(float).eps:
        raise DataError(f"expected a step of more than 0 s, got {step_time}")
    ahead = np.diff(future_positions_m, axis=0, prepend=np.zeros_like(future_positions_m[:1]))
    back = history_positions_m[:-1] - history_positions_m[1:]
    return (back / step_time).astype(np.float32), (ahead / step_time).astype(np.float32)


def get_relative_poses(
    num_frames: int,
    frames: AnyArray,
    selected_track_id: int | None,
    agents: Sequence[AnyArray],
    agent_from_world: AnyArray,
    current_agent_yaw: float,
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Return positions `[n, 2]`, yaws `[n, 1]`, extents `[n, 2]` and availabilities `[n]`, float32, of a track.

    Track None is the ego. Values are relative to a pose. Each of `frames` has its list of `agents`. Missing values are
    0.
    """
    positions, yaws = np.zeros((num_frames, 2)), np.zeros((num_frames, 1), np.float32)
    extents, there = np.zeros((num_frames, 2), np.float32), np.zeros(num_frames, np.float32)
    n = min(len(frames), len(agents))
    if selected_track_id is None:
        positions[:n] = frames["ego_translation"][:n, :2]
        yaws[:n, 0] = rotation33_as_yaw(frames["ego_rotation"][:n])
        extents[:n], there[:n] = EGO_EXTENT[:2], 1
    else:
        for step in range(n):
            own = np.flatnonzero(agents[step]["track_id"] == selected_track_id)
            if len(own):
                row = agents[step][own[0]]
                positions[step] = row["centroid"]
                yaws[step] = row["yaw"]
                extents[step] = row["extent"][:2]
                there[step] = 1
    seen = transform_points(positions, agent_from_world) * there[:, None]
    turned = angular_distance(yaws, np.float32(current_agent_yaw)) * there[:, None]
    return seen.astype(np.float32), turned.astype(np.float32), extents, there


def moved_context(context: Context, perturbation: Perturbation | None, future_num_frames: int) -> Context:
    """Return the context with frames moved by the perturbation, if one is given and the future is complete."""
    if perturbation is None or len(context[1]) != future_num_frames:
        return context
    history, future = perturbation.perturb(history_frames=context[0], future_frames=context[1])
    return (history, future, *context[2:])


def as_logs(context: Context) -> tuple[Arrays, int]:
    """Return the frames around a frame as a separate scene, and the number of that frame in it."""
    history, future, history_agents, future_agents, history_faces, future_faces = context
    frames = np.concatenate([history[::-1], future])
    agents, faces = [*history_agents[::-1], *future_agents], [*history_faces[::-1], *future_faces]
    frames["agent_index_interval"] = intervals(np.array([len(rows) for rows in agents], np.int64))
    frames["traffic_light_faces_index_interval"] = intervals(np.array([len(rows) for rows in faces], np.int64))
    scene = np.zeros(1, SCENE_DTYPE)
    scene["frame_index_interval"] = [0, len(frames)]
    return Arrays(scene, frames, np.concatenate(agents), np.concatenate(faces)), len(history) - 1


def generate_agent_sample(
    state_index: int,
    frames: AnyArray,
    agents: Any,
    tl_faces: Any,
    selected_track_id: int | None,
    render_context: RenderContext,
    history_num_frames: int,
    future_num_frames: int,
    step_time: float,
    filter_agents_threshold: float,
    rasterizer: Rasterizer,
    perturbation: Perturbation | None = None,
) -> dict[str, Any]:
    """Return the sample of the ego (None), or of a track, in frame `state_index` of a scene's `frames`.

    It has the keys of `EgoDataset` without `scene_index`, `host_id`, `timestamp` and `track_id`; `image` is `[H, W,
    C]`.
    """
    context = get_agent_context(state_index, frames, agents, tl_faces, history_num_frames, future_num_frames)
    context = moved_context(context, perturbation, future_num_frames)
    logs, here = as_logs(context)
    sampling = Sampling(
        history_num_frames,
        future_num_frames,
        step_time,
        filter_agents_threshold,
        render_context.raster_size_px,
        render_context.pixel_size_m,
        render_context.center_in_raster_ratio,
        render_context.set_origin_to_bottom,
    )
    sampler = Sampler(logs, sampling)
    if selected_track_id is None:
        row, chosen = np.array([here]), None
        sample, _ = sampler.ego(row, row)
    else:
        row = sampler.find(here, selected_track_id)
        chosen = logs.agents[row]
        sample, _ = sampler.agents(np.array([row]))
    history, _, history_agents, _, history_faces, _ = context
    values = sample.row(0)
    for name in ("scene_index", "host_id", "timestamp", "track_id"):
        del values[name]
    values["image"] = rasterizer.rasterize(history, history_agents, history_faces, chosen)
    return {**values, "frame_index": state_index}
