"""Simulations of two scenes: run with the original they made `golden/l5kit/simulation.npz`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

CUT = 30  # the frame of the golden drive where the second scene begins
CASES: dict[str, dict[str, Any]] = {
    "both": {"start_frame_index": 3, "num_simulation_steps": 14, "distance_th_far": 22.0, "distance_th_close": 15.0},
    "ego": {"use_agents_gt": True, "num_simulation_steps": 5},
    "agents": {"use_ego_gt": True, "disable_new_agents": True, "num_simulation_steps": 8, "distance_th_close": 20.0},
}
CONFIG = {
    "model_params": {
        "history_num_frames": 3,
        "history_num_frames_ego": 3,
        "history_num_frames_agents": 3,
        "future_num_frames": 4,
        "step_time": 0.1,
        "render_ego_history": True,
    },
    "raster_params": {
        "raster_size": [28, 28],
        "pixel_size": [2.0, 2.0],
        "ego_center": [0.25, 0.5],
        "map_type": "box_debug",
        "dataset_meta_key": "meta.json",
        "filter_agents_threshold": 0.5,
        "disable_traffic_light_faces": False,
        "set_origin_to_bottom": True,
    },
}


class Driver(torch.nn.Module):
    """Goes on as fast as before and turns a little, by how much of the raster is lit."""

    def forward(self, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        step = x["history_positions"][:, 0] - x["history_positions"][:, 1]
        lit = (x["image"] > 0.5).float().mean(dim=(1, 2, 3))
        positions = step[:, None] * torch.arange(1.0, 5.0)[:, None] + x["target_positions"] * 0.25
        yaws = (0.05 * x["history_yaws"][:, :1] + lit[:, None, None] * 0.1).repeat(1, 4, 1)
        return {"positions": positions, "yaws": yaws}


def two_scenes(module: Callable[[str], Any], folder: Path) -> Any:
    """The first frames of the golden drive, as two scenes in memory."""
    drive = module("data").ChunkedDataset(str(folder / "single.zarr")).open()
    made = module("data").ChunkedDataset("")
    made.frames, made.agents, made.tl_faces = drive.frames[: 2 * CUT], drive.agents[:], drive.tl_faces[:]
    made.agents = made.agents[: int(made.frames["agent_index_interval"][-1, 1])]
    made.tl_faces = made.tl_faces[: int(made.frames["traffic_light_faces_index_interval"][-1, 1])]
    made.scenes = np.repeat(drive.scenes[:], 2)
    made.scenes["frame_index_interval"] = [[0, CUT], [CUT, 2 * CUT]]
    return made


def simulation_outputs(module: Callable[[str], Any], folder: Path) -> dict[str, np.ndarray]:
    """Where the modules that `module(name)` gives send the ego and agents, and what models saw."""
    rasterizer = module("rasterization").build_rasterizer(CONFIG, module("data").LocalDataManager(str(folder)))
    dataset = module("dataset").EgoDataset(CONFIG, two_scenes(module, folder), rasterizer)
    unroll, made = module("simulation.unroll"), dict[str, Any]()
    for case, options in CASES.items():
        config = module("simulation.dataset").SimulationConfig(**options)
        driver = Driver()
        simulator = unroll.ClosedLoopSimulator(config, dataset, torch.device("cpu"), driver, driver)
        for scene, output in zip((1, 0), simulator.unroll([1, 0]), strict=True):
            kept = _kept(output)
            made |= {f"{case}/{scene}/{name}": values for name, values in kept.items()}
    return made


def _kept(output: Any) -> dict[str, np.ndarray]:
    agents, names = output.simulated_agents, ("frame_index", "scene_index", "centroid", "yaw", "target_positions")
    each = [*output.ego_ins_outs, *(one for of_frame in output.agents_ins_outs for one in of_frame)]
    placed = (agents["velocity"] == 0).all(axis=1) & (agents["label_probabilities"][:, 3] == 1)
    kept = {
        "ego": output.simulated_ego_states.numpy(),
        "recorded": output.recorded_ego_states.numpy(),
        "intervals": output.simulated_ego["agent_index_interval"],
        "centroids": agents["centroid"].sum(axis=0),
        "hidden": (agents["label_probabilities"] < 0).all(axis=1).sum(),
        "tracks": np.array([one.track_id for one in each]),
        "image": np.array("image" in each[0].inputs),
        "output": np.array([one.outputs["positions"][0] for one in each]),
        "moved": np.concatenate([agents["centroid"], agents["yaw"][:, None]], axis=1)[placed],
    }
    return kept | {name: np.array([one.inputs[name] for one in each]) for name in names}
