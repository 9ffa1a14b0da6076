"""Made-up logs with everything odd in them, the logs that the original ships, and a configuration for both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.geometry import rotation33_as_yaw
from penstock_driving.logs import Arrays

GOLDEN = Path(__file__).parents[5] / "tests" / "golden" / "l5kit"


@pytest.fixture(scope="session")
def source() -> Iterator[L5KitSource]:
    with L5KitSource(GOLDEN / "single.zarr") as opened:
        yield opened


@pytest.fixture(scope="session")
def expected() -> dict[str, np.ndarray]:
    """What the original computes."""
    with np.load(GOLDEN / "samples.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.fixture
def config() -> dict[str, Any]:
    return configured()


def configured(history: int = 10, future: int = 50, threshold: float = 0.5) -> dict[str, Any]:
    lanes = {"max_num_lanes": 30, "max_points_per_lane": 20, "max_points_per_crosswalk": 20}
    return {
        "model_params": {
            "history_num_frames": history,
            "history_num_frames_ego": 1,
            "history_num_frames_agents": history,
            "future_num_frames": future,
            "step_time": 0.1,
        },
        "raster_params": {
            "raster_size": [40, 30],
            "pixel_size": [0.5, 0.5],
            "ego_center": [0.25, 0.5],
            "filter_agents_threshold": threshold,
            "set_origin_to_bottom": True,
            "disable_traffic_light_faces": False,
        },
        "data_generation_params": {
            "other_agents_num": 30,
            "max_agents_distance": 35,
            "lane_params": {**lanes, "max_num_crosswalks": 20, "max_retrieval_distance_m": 35},
        },
    }


def made_logs(seed: int, lengths: Sequence[int] = (7, 1, 0, 12), tracks: int = 5) -> Arrays:
    """Scenes of so many frames: tracks with holes, empty frames, turns, jumps in size, agents far away or of no
    interest, now and then one twice in a frame; ids that come again in other scenes."""
    rng = np.random.default_rng(seed)
    frames: Any = np.zeros(sum(lengths), FRAME_DTYPE)
    frames["timestamp"] = np.arange(len(frames)) * 10**8 + 10**18
    turn = rng.uniform(-3, 3, len(frames))
    frames["ego_rotation"][:, 0, 0] = frames["ego_rotation"][:, 1, 1] = np.cos(turn)
    frames["ego_rotation"][:, 1, 0], frames["ego_rotation"][:, 0, 1] = np.sin(turn), -np.sin(turn)
    frames["ego_translation"] = rng.normal([1000, -2000, 0], 5, (len(frames), 3))
    names = rng.integers(1, 2**62, tracks).astype(np.uint64) if seed % 2 else np.arange(1, tracks + 1)
    agents: list[Any] = []
    for f in range(len(frames)):
        here = rng.permutation(names[rng.random(tracks) < rng.choice([0, 0.9, 0.95])])
        if len(here) and rng.random() < 0.1:
            here = np.append(here, here[0])
        rows: Any = np.zeros(len(here), AGENT_DTYPE)
        rows["track_id"] = here
        rows["centroid"] = frames["ego_translation"][f, :2] + rng.normal(0, 25, (len(here), 2))
        rows["yaw"] = rng.choice([0.1, 0.2, 3.1, -3.1], len(here)) if seed % 3 else rng.uniform(-3, 3, len(here))
        rows["extent"] = rng.choice([2, 2.05, 3], (len(here), 3)) * (rng.random((len(here), 1)) > 0.05)
        rows["label_probabilities"][:, 3] = rng.choice([0.2, 0.6, 0.9], len(here), p=[0.1, 0.5, 0.4])
        rows["label_probabilities"][:, 14] = 0.05
        frames["agent_index_interval"][f] = len(rows) and [sum(map(len, agents)), sum(map(len, agents)) + len(rows)]
        if not len(rows):
            frames["agent_index_interval"][f] = sum(map(len, agents))
        agents.append(rows)
    scenes = np.zeros(len(lengths), SCENE_DTYPE)
    ends = np.cumsum(lengths)
    scenes["frame_index_interval"] = np.stack([ends - lengths, ends], axis=1)
    scenes["host"] = [f"host-{i}" for i in range(len(lengths))]
    everyone = np.concatenate(agents) if agents else np.zeros(0, AGENT_DTYPE)
    return Arrays(scenes, frames, everyone, np.zeros(0, TL_FACE_DTYPE))


def seen(logs: Arrays, frame: int, track: int | None) -> tuple[float, float, float, float, float] | None:
    """x, y, yaw, length and width in a frame."""
    row = logs.frames[frame]
    if track is None:
        return (*row["ego_translation"][:2].tolist(), float(rotation33_as_yaw(row["ego_rotation"])), 4.87, 1.85)
    rows = logs.agents[slice(*row["agent_index_interval"])]
    rows = rows[rows["track_id"] == track]
    return (
        (*rows[0]["centroid"].tolist(), float(rows[0]["yaw"]), *rows[0]["extent"][:2].tolist()) if len(rows) else None
    )


def looped(
    logs: Arrays, frame: int, track: int | None, steps: range, edges: tuple[int, int], origin: Any = None
) -> list[Any]:
    """Position, yaw, extent and availability of each step, seen from where it is, or from `origin`."""
    x, y, turn, *_ = seen(logs, frame, track) if origin is None else origin
    told = []
    for step in steps:
        found = seen(logs, frame + step, track) if edges[0] <= frame + step < edges[1] else None
        if found is None:
            told.append(((0, 0), 0, (0, 0), 0))
            continue
        dx, dy = found[0] - x, found[1] - y
        moved = (np.cos(turn) * dx + np.sin(turn) * dy, np.cos(turn) * dy - np.sin(turn) * dx)
        told.append((moved, (found[2] - turn + np.pi) % (2 * np.pi) - np.pi, found[3:], 1))
    return told


def checked(sample: Any, i: int, prefix: str, extents: str, told: list[Any]) -> None:
    positions, yaws, sizes, there = (np.array(part) for part in zip(*told, strict=True)) if told else [np.zeros(0)] * 4
    assert sample[f"{prefix}_availabilities"][i].tolist() == there.tolist()
    if not told:
        return
    np.testing.assert_allclose(sample[f"{prefix}_positions"][i], positions, rtol=1e-5, atol=1e-4)
    apart = sample[f"{prefix}_yaws"][i][:, 0] - yaws
    np.testing.assert_allclose(np.sin(apart), 0, atol=1e-5)  # half a turn may be either
    np.testing.assert_allclose(np.cos(apart), 1, atol=1e-5)
    np.testing.assert_allclose(sample[extents][i], sizes, rtol=1e-6)
