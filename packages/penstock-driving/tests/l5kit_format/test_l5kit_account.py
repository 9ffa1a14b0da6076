"""What a driving log holds besides its four arrays is named; so are missing frames and logs of another rate."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import penstock
from penstock.formats.base.source import Source
from penstock.testing.accounts import AccountContract, Planted
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

TENTHS = np.arange(12) / 10  # seconds


def log(path: Path, *scenes: Sequence[float] | np.ndarray, **options: Any) -> Path:
    """Scenes with frames at such times, in which the ego drives 10 m a second."""
    with L5KitWriter.create(path, **options) as writer:
        for times in scenes:
            frames = np.zeros(len(times), FRAME_DTYPE)
            frames["timestamp"] = np.round(np.asarray(times) * 1e9)
            frames["ego_rotation"] = np.eye(3)
            frames["ego_translation"][:, 0] = 10 * np.asarray(times)
            writer.write_scene(np.zeros((), SCENE_DTYPE), frames, np.zeros(0, AGENT_DTYPE), np.zeros(0, TL_FACE_DTYPE))
    return path


def found(path: Path, *, deep: bool) -> dict[str, tuple[tuple[int, ...], tuple[int, ...], str]]:
    findings = penstock.check(path, deep=deep).findings[::-1]  # so that the first of a name stays
    return {each.name: (each.episodes, each.rows, each.message) for each in findings if each.name != "partial"}


@pytest.mark.parametrize("deep", [False, True])
def test_a_missing_frame_is_a_finding(tmp_path: Path, deep: bool) -> None:
    """The velocity from the frame before it is twice what it should be."""
    path = log(tmp_path / "log", TENTHS, np.delete(TENTHS, 6), np.delete(TENTHS + 50, [2, 3, 4, 8]))
    gap = found(path, deep=deep).pop("time-gap")
    assert gap[:2] == ((1, 2), (6, 2))
    assert gap[2].startswith("frames are missing at 3 places of 2 scenes, 5 in all; velocities there are up to 4 times")
    # One frame that is late is not a missing one.
    assert found(log(tmp_path / "sound", TENTHS, TENTHS + 7 + 0.06 * (TENTHS == 0.6)), deep=deep) == {}


@pytest.mark.parametrize("deep", [False, True])
def test_a_log_of_another_rate_is_a_finding(tmp_path: Path, deep: bool) -> None:
    """nuScenes has 2 annotated frames a second, Argoverse and nuPlan 10 and 20."""
    path = log(tmp_path / "log", 5 * TENTHS)
    assert found(path, deep=deep)["time-rate"][2] == (
        "expected a frame every 0.1 s, as L5Kit's logs have them, got one every 0.5 s; use step_time=0.5, or "
        "velocities are wrong"
    )


@pytest.mark.parametrize(("step_time", "factor"), [(0.1, "5"), (1.0, "0.5"), (0.5, None)])
def test_a_step_time_that_is_not_that_of_the_log_is_a_warning(
    tmp_path: Path, step_time: float, factor: str | None
) -> None:
    with L5KitSource(log(tmp_path / "log", 5 * TENTHS)) as source, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples, _ = Sampler(source, Sampling(1, 2, step_time)).ego(np.array([5]), np.array([0]))
    assert [factor] * len(caught) == [str(each.message).split("velocities are ")[1].split(" ")[0] for each in caught]
    assert len(caught) == (factor is not None)
    np.testing.assert_allclose(samples["target_velocities"][0, :, 0], 10 * float(factor or 1))


def array(path: Path, name: str) -> None:
    described = {"chunks": [1], "compressor": None, "dtype": "<f4", "fill_value": 0, "filters": None, "order": "C"}
    (path / name).mkdir(parents=True)
    (path / name / ".zarray").write_text(json.dumps({"zarr_format": 2, "shape": [3], **described}))


def shorter_scene(path: Path) -> None:
    scenes = np.zeros(1, SCENE_DTYPE)
    scenes["frame_index_interval"] = [0, 11]
    if (path / "scenes.npy").exists():
        np.save(path / "scenes.npy", scenes)
    else:
        (path / "scenes/0").write_bytes(scenes.tobytes())


class TestAccount(AccountContract):
    planted: ClassVar = {
        "file": Planted(lambda path: (path / "gt.csv").touch(), "other-file", "gt.csv"),
        "array": Planted(lambda path: array(path, "lanes"), "unused-array", "lanes"),
        "member": Planted(lambda path: (path / ".DS_Store").touch(), "hidden", ".DS_Store"),
        "tail": Planted(shorter_scene, "unused-rows", "frames"),
        "bad first file": Planted(lambda path: (path / "scenes/.zarray").write_text("{"), "", "scenes", refused=True),
    }
    absent: ClassVar = {
        "column": "columns are fields of the arrays, whose dtype must be that of the format",
        "unfinished": "a log appears at its path when it is complete; parts have folders of their own",
    }

    def write(self, path: Path) -> Path:
        path = log(path / "log", TENTHS, compressor=None, chunk_rows=1)
        array(path, "agents_mask/0.5")  # as L5Kit stores which agents are samples
        return path

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


class TestAccountOfNpy(TestAccount):
    planted: ClassVar = {
        "file": Planted(lambda path: np.save(path / "lanes.npy", np.zeros(3)), "other-file", "lanes.npy"),
        "member": TestAccount.planted["member"],
        "tail": TestAccount.planted["tail"],
        "bad first file": Planted(lambda path: (path / "scenes.npy").write_bytes(b"1"), "", "scenes", refused=True),
    }
    absent: ClassVar = {**TestAccount.absent, "array": "an array is a file"}

    def write(self, path: Path) -> Path:
        return log(path / "log", TENTHS, layout="npy")
