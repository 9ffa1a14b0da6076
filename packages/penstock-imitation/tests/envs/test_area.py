"""Pictures made gray and small, against pictures that OpenCV made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock_imitation.envs.wrappers import box_mean, gray, shrink

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "envs" / "opencv.npz"


@pytest.mark.parametrize("height", [210, 214, 250])
def test_gray_and_small_equal_opencv(height: int) -> None:
    with np.load(GOLDEN, allow_pickle=False) as golden:
        picture, grayed, small = (golden[f"{height}/{name}"] for name in ("picture", "gray", "small"))
    assert np.array_equal(gray(picture), grayed)
    assert np.array_equal(shrink(grayed, 84, 84), small)


def test_means_of_squares_equal_opencv() -> None:
    with np.load(GOLDEN, allow_pickle=False) as golden:
        assert np.array_equal(box_mean(golden["box/picture"], 4), golden["box/small"])


def test_a_half_goes_to_the_even_neighbour() -> None:
    sums = np.arange(0, 33)  # of 16 pixels each: means of 0, 1/16, ... 2
    squares = np.stack([np.r_[np.full(s % 16, s // 16 + 1), np.full(16 - s % 16, s // 16)] for s in sums])
    pictures = squares.astype(np.uint8).reshape(-1, 4, 4, 1).reshape(-1, 4, 1)
    assert np.array_equal(box_mean(pictures, 4).ravel(), np.rint(sums / 16).astype(np.uint8))


def test_a_flat_picture_stays_as_it_is() -> None:
    for value in (0, 1, 127, 128, 254, 255):
        assert (shrink(np.full((210, 160), value, np.uint8), 84, 84) == value).all()
        assert (gray(np.full((3, 5, 3), value, np.uint8)) == value).all()
