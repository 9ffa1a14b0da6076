"""Which episodes a dataset shows first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import FormatError
from penstock_studio.viewer.episode_contents import EpisodeContents
from penstock_studio.viewer.thumbnails import farthest, shown_episodes


@pytest.mark.parametrize("seed", range(5))
def test_chosen_points_are_as_far_from_one_another_as_a_plain_search_makes_them(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(12, 3))
    wanted = [0]
    while len(wanted) < 5:
        rest = [i for i in range(12) if i not in wanted]
        wanted.append(max(rest, key=lambda i: min(float(np.linalg.norm(points[i] - points[j])) for j in wanted)))
    assert farthest(points, 5) == sorted(wanted)
    assert farthest(points[:3], 5) == [0, 1, 2]
    assert farthest(np.zeros((7, 3)), 4) == [0, 1, 2, 3]


def test_episodes_that_look_different_are_shown() -> None:
    lengths = [2, 0, 3, *[2] * 17]
    cameras = np.zeros((sum(lengths), 40, 50, 3), np.uint8)
    starts = np.cumsum([0, *lengths])
    for e, value in ((7, 255), (13, 120)):
        cameras[starts[e] : starts[e + 1]] = value
    cameras[starts[2] + 2, :, :, 0] = 90  # only in the last picture
    data = penstock.from_arrays({"camera": cameras}, lengths=lengths)
    shown = shown_episodes(EpisodeContents(data), data.episodes.length)
    assert {0, 2, 7, 13} <= {each["episode"] for each in shown}
    assert 1 not in {each["episode"] for each in shown}  # it has no picture
    assert {each["episode"]: each["rows"] for each in shown}[2] == [0, 2]
    assert shown_episodes(EpisodeContents(data[:0]), data[:0].episodes.length) == []


def test_episodes_whose_pictures_cannot_be_read_are_among_them(damaged_pictures: Path) -> None:
    with penstock.open(damaged_pictures) as data:
        contents = EpisodeContents(data)
        with pytest.raises(FormatError, match="expected an image"):
            contents.picture(0, "camera", 0)
        shown = shown_episodes(contents, data.episodes.length)
    assert [each["episode"] for each in shown] == [0, 1]


def test_data_without_pictures_show_none() -> None:
    data = penstock.from_arrays({"rewards": np.zeros(4)}, lengths=[2, 2])
    assert shown_episodes(EpisodeContents(data), data.episodes.length) == []
