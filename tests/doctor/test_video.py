"""Repeated and black pictures are found in video that was compressed with loss, and moving pictures are not."""

# pyright: basic

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.video import VideoFiles, VideoWriter
from penstock.doctor.examine import examine
from penstock.formats.memory import MemorySource

STEPS = 90


def scene(seed: int) -> np.ndarray:
    """`[90, 144, 160, 3]` a noisy picture in which a square moves."""
    rng = np.random.default_rng(seed)
    coarse = np.kron(rng.integers(30, 220, (9, 10, 3)), np.ones((16, 16, 1)))
    frames = np.clip(coarse + rng.normal(0, 12, (144, 160, 1)), 0, 255)[None] + rng.normal(0, 2, (STEPS, 144, 160, 1))
    for t in range(STEPS):
        frames[t, 20 + t % 90 : 50 + t % 90, 10 + t : 40 + t] = [250, 20, 20]
    return np.clip(frames, 0, 255).astype(np.uint8)


def names(frames: np.ndarray, path: Path, codec: str, crf: int, g: int) -> dict[str, tuple[int, ...]]:
    """Findings of a dataset whose camera is the decoded video of the pictures, with their first rows."""
    with VideoWriter(path, 10, codec=codec, crf=crf, g=g) as writer:
        writer.append(frames)
    decoded, numbers = np.empty_like(frames), np.arange(len(frames))
    files = VideoFiles([path])
    files.read(numbers * 0, numbers, numbers, decoded)
    files.close()
    actions = np.cumsum(np.random.default_rng(0).normal(size=(len(frames), 2)), 0)
    spec = penstock.Spec(
        {
            "observations/camera": penstock.Field(np.dtype("u1"), frames.shape[1:]),
            "actions": penstock.Field(np.dtype("f8"), (2,)),
        }
    )
    source = MemorySource(spec, {"observations/camera": decoded, "actions": actions}, np.array([0, len(frames)]))
    report = examine(source, deep=True, progress=False)
    return {f.name: f.rows for f in report.findings}


@pytest.fixture
def one_core() -> Iterator[None]:
    """What libx264 writes depends on the number of cores: a machine with one is the hardest case."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize(("codec", "crf", "g"), [("libx264", 23, 250), ("libx264", 32, 12), ("libsvtav1", 30, 2)])
def test_pictures_of_lossy_video(tmp_path: Path, codec: str, crf: int, g: int) -> None:
    sound = scene(crf)
    assert names(sound, tmp_path / "sound.mp4", codec, crf, g) == {}
    frozen, black = sound.copy(), sound.copy()
    frozen[20:] = frozen[20]
    found = names(frozen, tmp_path / "frozen.mp4", codec, crf, g)
    assert found.keys() == {"frozen-picture"}
    assert (
        20 < found["frozen-picture"][0] <= 40
    )  # libx264 took 6 to 13 pictures to get to rest, by its threads and the process
    frozen[5:] = frozen[5]  # 45 steps: fewer than 50, and most of the episode
    assert names(frozen[:50], tmp_path / "short.mp4", codec, crf, g).keys() == {"frozen-picture"}
    black[40:50] = np.random.default_rng(1).integers(0, 6, black[40:50].shape)
    found = names(black, tmp_path / "black.mp4", codec, crf, g)
    assert found.keys() == {"blank-picture"}
    assert found["blank-picture"][0] == 40
