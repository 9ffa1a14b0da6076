"""Logs that the original ships, and made-up scenes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE, Scene

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "l5kit"


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of files that the original wrote."""
    return GOLDEN


Make = Callable[..., Scene]


@pytest.fixture(scope="session")
def make() -> Make:
    """`make(seed, counts, faces)`: a scene of as many agents and faces in each frame."""

    def made(seed: int = 0, counts: Sequence[int] = (2, 0, 3), faces: Sequence[int] | None = None) -> Scene:
        rng = np.random.default_rng(seed)
        frames: Any = np.zeros(len(counts), FRAME_DTYPE)
        frames["timestamp"] = seed * 10**9 + np.arange(len(counts)) * 10**8
        frames["ego_rotation"], frames["ego_translation"] = np.eye(3), rng.normal(size=(len(counts), 3))
        parts: list[Any] = []
        wanted = (("agent_index_interval", counts), ("traffic_light_faces_index_interval", faces or counts[::-1]))
        for (field, numbers), dtype in zip(wanted, (AGENT_DTYPE, TL_FACE_DTYPE), strict=True):
            ends = np.cumsum(numbers)
            frames[field] = np.stack([ends - numbers, ends], 1) if len(counts) else np.zeros((0, 2))
            parts.append(np.zeros(int(np.sum(numbers)), dtype))
        agents, lights = parts
        agents["centroid"], agents["yaw"] = rng.normal(size=(len(agents), 2)), rng.normal(size=len(agents))
        agents["track_id"], agents["extent"] = np.arange(1, len(agents) + 1), rng.random((len(agents), 3))
        agents["label_probabilities"] = rng.random((len(agents), 17))
        lights["face_id"], lights["traffic_light_id"] = rng.choice(["a1", "b2é"], len(lights)), "light"
        lights["traffic_light_face_status"] = rng.random((len(lights), 3))
        scene = np.array((np.array([0, len(counts)]), f"host-{seed}", seed, seed + 1), SCENE_DTYPE)
        return Scene(scene, frames, agents, lights)

    return made
