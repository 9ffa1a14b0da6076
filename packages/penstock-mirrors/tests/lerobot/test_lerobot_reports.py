"""Public reports about LeRobot datasets: frames of other episodes, times, depth, statistics after merging."""

# pyright: basic

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.containers.images import encode
from penstock.errors import DamageWarning
from penstock_mirrors.lerobot import LeRobotDataset, StreamingLeRobotDataset
from tests.formats.lerobot.test_lerobot_damage import changed
from tests.formats.lerobot.test_lerobot_depth import GOLDEN, depth_of, images
from tests.formats.lerobot.test_lerobot_video import filmed, own, seen
from tests.reports.reported import report


@report("huggingface/lerobot#1144", "depth of 16 bits is not clipped to 8")
@report("huggingface/lerobot#2604", "depth of 16 bits is not clipped to 8")
def test_depth_in_png_keeps_its_bits(tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "depth_image_mm", tmp_path / "a"))
    depth = np.linspace(0, 65535, 48 * 64).astype(np.uint16).reshape(48, 64)
    images(root, [encode(depth, "png")])
    assert np.array_equal(depth_of(root)[17, ..., 0], depth)


@report("huggingface/lerobot#2447", "an episode does not end with the first frame of the next one")
@pytest.mark.parametrize("shift", [0.0, -1e-6, 1e-6])
def test_an_episode_has_its_own_frames_alone(shift: float, tmp_path: Path) -> None:
    edge = 0.7 + shift
    root = filmed(tmp_path / "a", [7, 7], [7, 7], [(0.0, edge), (edge, 1.4)])
    assert seen(root) == {0: own(0, 7), 1: own(1, 7)}


@report("huggingface/lerobot#3177", "sums of durations that drift do not lose frames of late episodes")
def test_sums_of_durations_find_the_frames_of_the_last_episode(tmp_path: Path) -> None:
    n = 60
    ends = np.cumsum(np.full(n, 0.1 + 0.1 + 0.1) + 1e-6)  # a duration in microseconds, rounded up
    parts = list(zip([0.0, *ends[:-1].tolist()], ends.tolist(), strict=True))
    root = filmed(tmp_path / "a", [3] * n, [3] * n, parts)
    with penstock.open(root) as data:
        assert len(data) == n
        assert data[n - 1].columns["observations/images/top"].shape == (3, 16, 16, 3)
    assert penstock.check(root).sound


@report("huggingface/lerobot#2550", "episodes whose times lie behind the end of their video are named")
@report("huggingface/lerobot#2438", "episodes whose times lie behind the end of their video are named")
def test_times_behind_the_end_of_a_video(tmp_path: Path) -> None:
    root = filmed(tmp_path / "a", [5, 5], [5, 5], [(0.0, 0.5), (100.5, 101.0)])
    with pytest.warns(DamageWarning, match="left out 1 episode: episode 1 .*expected 5 frames up to 100.9 s"):
        penstock.open(root).source.close()
    assert seen(root) == {0: own(0, 5)}
    assert not penstock.check(root).sound


@report("huggingface/lerobot#4027", "a stream shows the frames of the items, also behind the first video file")
def test_a_stream_of_several_video_files_shows_the_same_frames() -> None:
    whole = LeRobotDataset("me/set", root=GOLDEN / "v21_video")
    for item in StreamingLeRobotDataset("me/set", root=GOLDEN / "v21_video", buffer_size=8):
        assert torch.equal(item["observation.images.top"], whole[int(item["index"])]["observation.images.top"])


def stale(name: str, value: int) -> Callable[[dict[str, Any]], object]:
    return lambda stats: stats[name].update(max=[value], mean=[float(value)])


@report("huggingface/lerobot#3508", "statistics of numbers of episodes that a merge left stale are a finding")
@report("huggingface/lerobot#3788", "statistics of numbers of tasks that a merge left stale are a finding")
@pytest.mark.parametrize("name", ["episode_index", "task_index"])
def test_stale_statistics_of_numbers_are_found(name: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "v3_image", tmp_path / "a"))
    assert "wrong-statistics" not in {finding.name for finding in penstock.check(root).findings}
    changed(root / "meta/stats.json", stale(name, 0))
    found = [finding for finding in penstock.check(root).findings if finding.name == "wrong-statistics"]
    assert [finding.column for finding in found] == [name]


@report("huggingface/lerobot#3508", "merged datasets have the statistics of their own numbers")
def test_a_merged_dataset_has_the_numbers_of_all_parts(tmp_path: Path) -> None:
    data = penstock.open([GOLDEN / "v3_image", GOLDEN / "v21_image"], columns=["action"])
    penstock.convert(data, tmp_path / "a", format="lerobot", options={"fps": 10})
    stats = penstock.open(tmp_path / "a").metadata["statistics"]
    assert (stats["episode_index"]["max"], stats["index"]["max"]) == ([7], [217])
