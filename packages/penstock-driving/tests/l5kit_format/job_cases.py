"""The conversion of driving logs in parts, and the same without jobs."""

# pyright: basic

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.data.chosen import ChosenDataset
from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE, L5KitWriter
from tests.jobs.cases import Case, Inputs, files_in

OPTIONS = {"chunk_rows": 50}


def log_of(inputs: Inputs) -> Path:
    return inputs.recording.parent / "drive"


def write_inputs(folder: Path, rng: np.random.Generator) -> None:
    """Write a driving log of scenes of very different lengths."""
    with L5KitWriter.create(folder / "drive") as writer:
        for length in [*rng.integers(1, 9, 9).tolist(), 120, *rng.integers(1, 9, 10).tolist()]:
            frames, counts = np.zeros(length, FRAME_DTYPE), rng.integers(0, 9, length)
            frames["ego_translation"] = rng.standard_normal((length, 3))
            frames["agent_index_interval"][:, 1] = counts
            agents = np.zeros(int(counts.sum()), AGENT_DTYPE)
            agents["centroid"] = rng.standard_normal((len(agents), 2))
            writer.write_scene(np.zeros((), SCENE_DTYPE), frames, agents, np.zeros(0, TL_FACE_DTYPE))


def arguments(inputs: Inputs, folder: Path) -> dict[str, Any]:
    out = {"out": str(folder / "out"), "to": "l5kit", "writer": OPTIONS}
    return {**ChosenDataset(str(log_of(inputs))).arguments(), **out}


def plain(inputs: Inputs, folder: Path) -> Mapping[str, bytes]:
    penstock.convert(log_of(inputs), folder / "out", format="l5kit", options=OPTIONS)
    return files_in(folder / "out")


CASES = {
    "convert to l5kit": Case(
        "convert", arguments, plain, lambda result, folder: files_in(folder / "out"), range_bytes=5000
    )
}
