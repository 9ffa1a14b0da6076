"""Conversion of scenes and simulation results to the visible elements of each frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.geometry import transform_points
from penstock_driving.l5kit.data.filter import (
    filter_agents_by_frames,
    filter_agents_by_labels,
    filter_tl_faces_by_frames,
    filter_tl_faces_by_status,
)
from penstock_driving.l5kit.data.labels import PERCEPTION_LABELS
from penstock_driving.l5kit.rasterization.box_rasterizer import get_box_world_coords, get_ego_as_agent
from penstock_driving.l5kit.rasterization.semantic_rasterizer import indices_in_bounds
from penstock_driving.l5kit.visualization.visualizer.common import (
    AgentVisualization,
    CWVisualization,
    EgoVisualization,
    FrameVisualization,
    LaneVisualization,
    TrajectoryVisualization,
)
from penstock_driving.logs import Logs
from penstock_driving.map import MapAPI

COLORS = {
    "GREEN": "#33CC33",
    "RED": "#FF3300",
    "YELLOW": "#FFFF66",
    "PERCEPTION_LABEL_CAR": "#1F77B4",
    "PERCEPTION_LABEL_CYCLIST": "#CC33FF",
    "PERCEPTION_LABEL_PEDESTRIAN": "#66CCFF",
}
_AROUND = 50  # metres, along x and y
_LIKELY = 0.1  # agents that are shown
_AGENT_STEPS, _EGO_STEPS = 20, 100  # of trajectories
_SCALE = 10  # of a single step


def zarr_to_visualizer_scene(
    scene_dataset: Logs, mapAPI: MapAPI, with_trajectories: bool = True
) -> list[FrameVisualization]:
    """Return the visible elements of each frame of a dataset of one scene (`get_scene_dataset`).

    They are the map around the ego, all agents with a probability above 0.1, and the future of ego and agents.
    """
    if len(scene_dataset.scenes) != 1:
        raise DataError(f"expected a dataset of one scene, got {len(scene_dataset.scenes)}; see get_scene_dataset")
    frames = scene_dataset.frames[:]
    agents = filter_agents_by_frames(frames, scene_dataset.agents[:])
    lights = filter_tl_faces_by_frames(frames, scene_dataset.tl_faces[:])
    seen: list[FrameVisualization] = []
    for number, frame in enumerate(frames):
        likely = filter_agents_by_labels(agents[number], _LIKELY)
        shown = _frame(mapAPI, frame, likely, lights[number])
        if with_trajectories:
            shown = shown._replace(trajectories=_ways(frames, agents, likely["track_id"], number))
        seen.append(shown)
    return seen


def _frame(road: MapAPI, frame: AnyArray, agents: AnyArray, faces: AnyArray) -> FrameVisualization:
    """Return the visible elements of a frame, without trajectories."""
    center = frame["ego_translation"][:2]
    ego = get_box_world_coords(get_ego_as_agent(frame))[0]
    active = set(filter_tl_faces_by_status(faces, "ACTIVE")["face_id"].tolist())
    bounds = road.bounds_info
    lanes: list[LaneVisualization] = []
    for number in indices_in_bounds(center, bounds["lanes"]["bounds"], _AROUND):
        name = bounds["lanes"]["ids"][number]
        lit = sorted(road.get_lane_traffic_control_ids(name) & active, key=road.ids_to_el.__getitem__)
        sides = road.get_lane_coords(name)
        outline = np.concatenate([sides["xyz_left"], sides["xyz_right"][::-1]])
        color = COLORS[road.get_color_for_face(lit[-1])] if lit else "gray"
        lanes.append(LaneVisualization(outline[:, 0], outline[:, 1], color))
    walks: list[CWVisualization] = []
    for number in indices_in_bounds(center, bounds["crosswalks"]["bounds"], _AROUND):
        outline = road.get_crosswalk_coords(bounds["crosswalks"]["ids"][number])["xyz"]
        walks.append(CWVisualization(outline[:, 0], outline[:, 1], "yellow"))
    return FrameVisualization(
        ego=EgoVisualization(ego[:, 0], ego[:, 1], "red", float(center[0]), float(center[1])),
        agents=_agents(agents),
        lanes=lanes,
        crosswalks=walks,
        trajectories=[],
    )


def _agents(agents: AnyArray) -> list[AgentVisualization]:
    seen: list[AgentVisualization] = []
    for agent, box in zip(agents, get_box_world_coords(agents), strict=True):
        label = int(agent["label_probabilities"].argmax())
        kind, likely = PERCEPTION_LABELS[label], float(agent["label_probabilities"][label])
        color = COLORS.get(kind, COLORS["PERCEPTION_LABEL_CAR"])
        seen.append(AgentVisualization(box[:, 0], box[:, 1], color, int(agent["track_id"]), kind, likely))
    return seen


def _ways(frames: AnyArray, agents: Sequence[AnyArray], tracks: AnyArray, number: int) -> list[TrajectoryVisualization]:
    """Where tracks and the ego are from a frame on, without the frames in which they are not."""
    ways: list[TrajectoryVisualization] = []
    near = np.concatenate(agents[number : number + _AGENT_STEPS])
    for track in tracks.tolist():
        xy = near["centroid"][near["track_id"] == track].astype(np.float32)
        ways.append(TrajectoryVisualization(xy[:, 0], xy[:, 1], "blue", "agent_trajectory", track))
    ego = frames["ego_translation"][number : number + _EGO_STEPS].astype(np.float32)
    return [*ways, TrajectoryVisualization(ego[:, 0], ego[:, 1], "red", "ego_trajectory", -1)]


def simulation_out_to_visualizer_scene(sim_out: Any, mapAPI: MapAPI) -> list[FrameVisualization]:
    """Return the visible elements of each frame of a simulation: the map, agents, and their target and predicted paths.

    `sim_out` has the attributes of the original's `SimulationOutput`.
    """
    dataset = sim_out.simulated_dataset
    threshold = dataset.cfg["raster_params"]["filter_agents_threshold"]
    seen = _simulated(sim_out, dataset.dataset.tl_faces, threshold, len(sim_out.simulated_ego), mapAPI)
    for number, frame in enumerate(seen):
        for each in sim_out.ego_ins_outs[number : number + 1]:
            frame.trajectories.extend(_sent(each, -1, ("ego_replay", "blue"), ("ego_simulated", "red")))
        _add_agents(frame, sim_out.agents_ins_outs[number : number + 1])
    return seen


def episode_out_to_visualizer_scene_gym_cle(sim_out: Any, mapAPI: MapAPI) -> list[FrameVisualization]:
    """Return the visible elements of each frame of an episode of the original's environment (`EpisodeOutputGym`).

    It works like `simulation_out_to_visualizer_scene`, but leaves out the last two frames, and shows the ego's next
    step, ten times as long.
    """
    count = max(len(sim_out.simulated_ego) - 2, 0)
    seen = _simulated(sim_out, sim_out.tls_frames, sim_out.agents_th, count, mapAPI)
    for number, frame in enumerate(seen):
        center = np.array([[frame.ego.center_x, frame.ego.center_y]])
        for each in sim_out.ego_ins_outs[number : number + 1]:
            replayed, simulated = _in_world(each)
            for way, name, color in ((simulated, "ego_simulated", "green"), (replayed, "ego_replay", "yellow")):
                step = np.concatenate([center, center + _SCALE * (way[:1] - center)])
                label = f"{name} ({_SCALE}x scale)"
                frame.trajectories.append(TrajectoryVisualization(step[:, 0], step[:, 1], color, label, -1))
        _add_agents(frame, sim_out.agents_ins_outs[number : number + 1])
    return seen


def _simulated(sim_out: Any, tl_faces: Any, threshold: float, count: int, road: MapAPI) -> list[FrameVisualization]:
    """The first `count` frames of a simulation, without trajectories."""
    frames = sim_out.simulated_ego
    agents = filter_agents_by_frames(frames, sim_out.simulated_agents)
    lights = filter_tl_faces_by_frames(frames, tl_faces)
    return [
        _frame(road, frames[number], filter_agents_by_labels(agents[number], threshold), lights[number])
        for number in range(count)
    ]


def _add_agents(frame: FrameVisualization, ins_outs: Sequence[Sequence[Any]]) -> None:
    for each in (one for frame_of_all in ins_outs for one in frame_of_all):
        track = each.inputs["track_id"]
        frame.trajectories.extend(_sent(each, track, ("agent_replay", "orange"), ("agent_simulated", "purple")))


def _sent(
    in_out: Any, track: int, replay: tuple[str, str], simulated: tuple[str, str]
) -> list[TrajectoryVisualization]:
    """Where something was to be, and where it was sent."""
    ways = zip(_in_world(in_out), (replay, simulated), strict=True)
    return [TrajectoryVisualization(way[:, 0], way[:, 1], color, name, track) for way, (name, color) in ways]


def _in_world(in_out: Any) -> tuple[AnyArray, AnyArray]:
    """`[m, 2]` the targets that are available, and `[T, 2]` what a model gave instead."""
    inputs, outputs = in_out.inputs, in_out.outputs
    replay = transform_points(inputs["target_positions"], inputs["world_from_agent"])
    simulated = transform_points(outputs["positions"], inputs["world_from_agent"])
    return replay[inputs["target_availabilities"] > 0], simulated
