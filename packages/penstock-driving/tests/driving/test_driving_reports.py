"""Reports from L5Kit, Waymo, Argoverse, nuScenes and KITTI about the clocks of driving logs, and velocities."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock_driving.config import Sampling
from penstock_driving.formats.l5kit import (
    AGENT_DTYPE,
    FRAME_DTYPE,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    L5KitSource,
    L5KitWriter,
)
from penstock_driving.sampling import Sampler
from tests.reports.reported import report

TENTHS = np.arange(20) / 10


def log(path: Path, times: np.ndarray, places: np.ndarray | None = None) -> Path:
    """A scene whose ego is at such places (metres along x), 10 m a second by default."""
    frames = np.zeros(len(times), FRAME_DTYPE)
    frames["timestamp"] = np.round(times * 1e9)
    frames["ego_rotation"] = np.eye(3)
    frames["ego_translation"][:, 0] = 10 * times if places is None else places
    with L5KitWriter.create(path) as writer:
        writer.write_scene(np.zeros((), SCENE_DTYPE), frames, np.zeros(0, AGENT_DTYPE), np.zeros(0, TL_FACE_DTYPE))
    return path


def sampled(path: Path, frame: int, step_time: float = 0.1) -> dict[str, np.ndarray]:
    with L5KitSource(path) as source:
        samples, _ = Sampler(source, Sampling(3, 3, step_time)).ego(np.array([frame]), np.array([0]))
    return {name: samples[name][0] for name in ("target_velocities", "history_velocities", "curr_speed")}


def findings(path: Path) -> dict[str, tuple[int, ...]]:
    return {each.name: each.rows for each in penstock.check(path, deep=True).findings[::-1]}


@report("waymo-research/waymo-open-dataset#158", "a frame that is missing at 10 Hz is a finding, with its place")
@report("waymo-research/waymo-open-dataset#773", "timestamps that are lost from a scenario are a finding")
@report("tomas789/kitti2bag#4", "measurements that are missing from a log are a finding")
@report("XiaolongTang23/HPNet#7", "a jump from one frame over the next is a finding")
@pytest.mark.parametrize("lost", [(7,), (7, 8), (1,), (18,), (3, 9)])
def test_missing_frames(tmp_path: Path, lost: tuple[int, ...]) -> None:
    noise = 1e-4 * np.sin(np.arange(20))  # as real clocks have it
    assert findings(log(tmp_path / "sound", TENTHS + noise)) == {}
    assert findings(log(tmp_path / "log", np.delete(TENTHS + noise, lost))) == {"time-gap": (min(lost),)}


@report("argoverse/argoverse-api#124", "a log that has another rate than 10 Hz is a finding")
@report("sungyeonparkk/NuPlanQA#3", "frames that are 0.6 s apart and not 0.5 s are a finding")
@pytest.mark.parametrize("step", [1 / 6, 0.6, 0.5, 0.05])
def test_another_rate(tmp_path: Path, step: float) -> None:
    assert "time-rate" in findings(log(tmp_path / "log", np.arange(20) * step))


@report("nutonomy/nuscenes-devkit#359", "velocities of a log of 2 Hz that is read with 10 Hz are warned of")
@report("nutonomy/nuscenes-devkit#365", "cars of 70 m a second are a wrong time step, which is said")
def test_a_step_of_half_a_second(tmp_path: Path) -> None:
    path = log(tmp_path / "log", np.arange(20) / 2)
    with pytest.warns(UserWarning, match="expected step_time 0.5, .* got 0.1: velocities are 5 times"):
        assert sampled(path, 9)["curr_speed"] == pytest.approx(50)
    assert sampled(path, 9, 0.5)["curr_speed"] == pytest.approx(10)


@report("woven-by-toyota/l5kit#215", "velocities of the history point forward")
def test_the_direction_of_the_history(tmp_path: Path) -> None:
    sample = sampled(log(tmp_path / "log", TENTHS), 9)
    np.testing.assert_allclose(sample["history_velocities"][:, 0], 10, rtol=1e-5)
    np.testing.assert_allclose(sample["target_velocities"][:, 0], 10, rtol=1e-5)


@report("woven-by-toyota/l5kit#197", "the current speed does not look into the future")
def test_a_car_that_starts(tmp_path: Path) -> None:
    places = np.maximum(TENTHS - 0.9, 0) * 10  # it starts in frame 9
    path = log(tmp_path / "log", TENTHS, places)
    assert sampled(path, 9)["curr_speed"] == pytest.approx(0, abs=1e-6)
    assert sampled(path, 9)["target_velocities"][0, 0] == pytest.approx(10, rel=1e-5)


@report("woven-by-toyota/l5kit#90", "a clock with another start is no finding: only differences of times count")
def test_times_of_another_year(tmp_path: Path) -> None:
    assert findings(log(tmp_path / "log", TENTHS + 1_256_678_902.0)) == {}
