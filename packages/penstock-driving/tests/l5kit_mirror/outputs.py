"""Calls of small functions on inputs of one seed: run with the original they made `golden/l5kit/functions.npz`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


def outputs(module: Callable[[str], Any], folder: Path) -> dict[str, np.ndarray]:
    """What the modules that `module(name)` gives make of the scene in a folder, and of random numbers."""
    made: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    drive = module("data").ChunkedDataset(str(folder / "single.zarr")).open()
    frames, agents, faces = drive.frames[:], drive.agents[:], drive.tl_faces[:]
    _of_sampling(module, rng, frames, agents, faces, made)
    _of_drawing(module, rng, frames, agents, made)
    _of_motion(module, rng, frames, made)
    image = rng.integers(0, 255, (200, 300, 3)).astype(np.uint8)
    cut = module("rasterization.satellite_image")
    for name, yaw in (("straight", None), ("turned", 0.3)):
        made[f"crop_{name}"] = cut.get_sat_image_crop(image, (20, 27), np.array([100.7, 133.2]), yaw)
        made[f"scaled_{name}"] = cut.get_sat_image_crop_scaled(
            image, (20, 27), np.array([100.7, 133.2]), yaw, 0.47, 0.5
        )
    geometry, cells = module("geometry"), rng.integers(-2, 6, (50, 3))
    made["voxels"] = geometry.voxel_coords_to_intensity_grid(cells, (4, 5, 6))
    made["rectangle"] = geometry.crop_rectangle_from_image(image, np.array([[40, 60], [70, 90], [50, 110], [20, 80]]))
    scene = SimpleNamespace(frames=frames.copy(), agents=agents, tl_faces=faces, scenes=drive.scenes[:])
    mask, report, _ = module("dataset.select_agents").get_valid_agents(np.array([0, 248]), scene, 0.5, 30, 1.1, 50)
    made["mask_sums"], made["reasons"] = mask.astype(np.int64).sum(axis=0), sorted(v for v in report.values() if v)
    return {name: np.asarray(values) for name, values in made.items()}


def _of_sampling(module: Any, rng: Any, frames: Any, agents: Any, faces: Any, made: dict[str, Any]) -> None:
    slicing, sampling = module("sampling.slicing"), module("sampling.agent_sampling")
    slices = [
        slicing.get_history_slice(i, n, step, include)
        for i in range(8)
        for n in range(4)
        for step in (1, 3)
        for include in (False, True)
    ]
    slices += [slicing.get_future_slice(i, n, step) for i in range(3) for n in range(3) for step in (1, 3)]
    made["slices"] = [[part.start, -9 if part.stop is None else part.stop, part.step] for part in slices]
    moved = rng.normal(size=(5, 2))
    made["past"], made["ahead"] = sampling.compute_agent_velocity(moved - moved[0], rng.normal(size=(7, 2)), 0.1)
    context = sampling.get_agent_context(3, frames.copy(), agents, faces, 6, 4)
    made["stamps"] = np.concatenate([context[0]["timestamp"], context[1]["timestamp"]])
    made["counts"] = [len(rows) for part in context[2:] for rows in part]
    matrix = np.array([[0.6, 0.8, 3], [-0.8, 0.6, 5], [0, 0, 1.0]])
    for name, track in (("ego", None), ("agent", agents["track_id"][frames[3]["agent_index_interval"][0] + 2])):
        poses = sampling.get_relative_poses(6, context[0], track, context[2], matrix, 0.7)
        made |= {f"poses_{name}_{k}": part for k, part in enumerate(poses)}


def _of_drawing(module: Any, rng: Any, frames: Any, agents: Any, made: dict[str, Any]) -> None:
    boxes, drawing = module("rasterization.box_rasterizer"), module("visualization.utils")
    context = module("rasterization").RenderContext(np.array([96, 64]), np.array([1.0, 1]), np.array([0.25, 0.5]), True)
    matrix = context.raster_from_world(frames[50]["ego_translation"], 0.3)
    here = agents[slice(*frames[50]["agent_index_interval"])]
    made["ego_row"] = np.frombuffer(boxes.get_ego_as_agent(frames[9]).tobytes(), np.uint8)
    made["corners"] = boxes.get_box_world_coords(here[:5])
    made["boxes"], made["colored"] = (boxes.draw_boxes((96, 64), matrix, here, color) for color in (255, (10, 200, 77)))
    canvas, points = np.zeros((64, 64, 3), np.uint8), rng.uniform(-3, 67, (12, 2))
    drawing.draw_trajectory(canvas, points, (1, 200, 3))
    made["discs"] = canvas.copy()
    drawing.draw_trajectory(canvas, points, (100, 20, 3), yaws=rng.uniform(-3, 3, (12, 1)))
    made["arrows"] = canvas.copy()
    drawing.draw_reference_trajectory(canvas, np.eye(3), rng.uniform(-3, 67, (12, 2)))
    made["reference"] = canvas


def _of_motion(module: Any, rng: Any, frames: Any, made: dict[str, Any]) -> None:
    kinematic, random = module("kinematic"), module("random")
    yaw, speed = np.cumsum(rng.normal(0, 0.03, 12)), 1 + np.cumsum(rng.normal(0, 0.05, 12))
    x, y = np.cumsum(np.cos(yaw) * speed), np.cumsum(np.sin(yaw) * speed)
    weights = [rng.uniform(0.2, 2, 12) for _ in range(8)]
    made["exact"] = kinematic.fit_ackerman_model_exact(0.3, 0.5, 0.1, 1, x, y, yaw, speed, *weights[:4])
    made["approximate"] = kinematic.fit_ackerman_model_approximate(x, y, yaw, speed, *weights)
    generator = random.GaussianRandomGenerator([0, 1, 2], [1, 2, 3], 7)
    made["gaussian"] = [generator() for _ in range(3)]
    np.random.seed(3)
    made["uniform"] = random.UniformRandomGenerator(np.array([0, 1]), np.array([1, 2]))()
    moves = kinematic.AckermanPerturbation(random.GaussianRandomGenerator([0, 0, 0], [1, 1, 0.1]), 0.9)
    for name in ("one", "two"):
        history, future = moves.perturb(frames[30:33][::-1].copy(), frames[33:45].copy())
        rows = np.concatenate([history, future])
        made[f"moved_{name}"] = np.column_stack([rows["ego_translation"], rows["ego_rotation"].reshape(-1, 9)])
