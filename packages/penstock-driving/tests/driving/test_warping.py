"""Aerial images are turned and resized by the bits of OpenCV's rules, and both kernels do so."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.reference.warping import warp as reference
from penstock_driving.kernels.warping import warp
from penstock_driving.rasterize import RasterOptions, RenderContext, SatelliteRasterizer
from penstock_driving.rasterize.satellite import turned_from


def layout(cut: int, size: tuple[int, int], upwards: bool = True) -> SatelliteRasterizer:
    """The rasteriser of `size` rasters that are resized from `cut` pixels of the image on the larger side."""
    matrix = np.diag([cut / max(size), cut / max(size), 1, 1])
    context = RenderContext(size, (1.0, 1.0), (0.5, 0.5), upwards)
    made = SatelliteRasterizer(context, np.zeros((3, 3, 3), np.uint8), matrix, RasterOptions(outside="pad"))
    assert made.cut == cut
    return made


def drawn(
    warp_image, made: SatelliteRasterizer, image: np.ndarray, corner: tuple[int, int], degrees: float
) -> np.ndarray:
    out = np.full((3, *made.context.shape), 99, np.uint8)
    box = np.array([*corner, made.reach])
    matrix = turned_from(np.array([degrees]), made.reach / 2)[0]
    image = image.view()
    image.flags.writeable = False
    warp_image(image, box, matrix, made.columns, made.left, made.across, made.rows, made.down, out)
    return out


def by_opencv(made: SatelliteRasterizer, image: np.ndarray, corner: tuple[int, int], degrees: float) -> np.ndarray:
    """Cut out (black beyond the image), turn all of it, cut out the middle, resize, cut out the raster, flip."""
    reach, cut, side = made.reach, made.cut, made.side
    room = np.zeros((*(np.array(image.shape[:2]) + 2 * reach), 3), np.uint8)
    room[reach:-reach, reach:-reach] = image
    row, column = (max(0, min(at + reach, size + reach)) for at, size in zip(corner, image.shape[:2], strict=True))
    found = np.zeros((reach, reach, 3), np.uint8)
    part = room[row : row + reach, column : column + reach]
    found[: part.shape[0], : part.shape[1]] = part
    turned = cv2.warpAffine(found, cv2.getRotationMatrix2D((reach / 2, reach / 2), degrees, 1.0), (reach, reach))
    start = int(reach / 2 - cut / 2)
    square = cv2.resize(turned[start : start + cut, start : start + cut], (side, side), interpolation=cv2.INTER_LINEAR)
    height, width = made.context.shape
    top, left = int(side / 2 - height / 2), int(side / 2 - width / 2)
    shown = square[top : top + height, left : left + width]
    return (shown if made.context.set_origin_to_bottom else shown[::-1]).transpose(2, 0, 1)


@pytest.mark.parametrize("cut", [1, 2, 13, 31, 32, 33, 64, 65, 200])
@pytest.mark.parametrize("degrees", [0.0, 90.0, -180.0, 33.3, -101.7])
def test_the_picture_is_opencvs(cut, degrees) -> None:
    made = layout(cut, (32, 32))
    image = np.random.default_rng(cut).integers(0, 256, (made.reach + 9, made.reach + 12, 3), np.uint8)
    expected = by_opencv(made, image, (4, 5), degrees)
    assert np.array_equal(drawn(warp, made, image, (4, 5), degrees), expected)
    assert np.array_equal(drawn(reference, made, image, (4, 5), degrees), expected)


@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.tuples(st.integers(1, 24), st.integers(1, 24)),
    st.tuples(st.integers(-90, 50), st.integers(-90, 50)),
    st.floats(-200, 200),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_anywhere_at_any_angle_the_kernels_and_opencv_agree(seed, cut, size, corner, degrees, upwards) -> None:
    made = layout(cut, size, upwards)
    image = np.random.default_rng(seed).integers(0, 256, (40, 47, 3), np.uint8)
    expected = by_opencv(made, image, corner, degrees)
    assert np.array_equal(drawn(warp, made, image, corner, degrees), expected)
    assert np.array_equal(drawn(reference, made, image, corner, degrees), expected)
