"""Parts of aerial images, cut out, turned and scaled by OpenCV: `penstock-driving[raster]`.

Images are `[rows, columns, 3]`; a place in one is (row, column, ...). Sizes of crops count the first two axes.
`penstock_driving.rasterize.SatelliteRasterizer` makes the same pictures without crops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock_driving.geometry import transform_points
from penstock_driving.rasterize.drawing import opencv
from penstock_driving.rasterize.satellite import OutsideImageError

Size = Sequence[int] | AnyArray

LINEAR = 1  # cv2.INTER_LINEAR


def get_sat_image_crop_scaled_from_ecef(
    sat_image: AnyArray, crop_size: Size, ecef_translation: AnyArray, ecef_to_sat: AnyArray, **kwargs: Any
) -> AnyArray:
    """Crop like `get_sat_image_crop_scaled`, around a place on the globe; `ecef_to_sat` `[4, 4]` maps to the image."""
    place = transform_points(np.asarray(ecef_translation)[None], ecef_to_sat)[0]
    return get_sat_image_crop_scaled(sat_image, crop_size, place, **kwargs)


def get_sat_image_crop_scaled(
    sat_image: AnyArray,
    crop_size: Size,
    sat_pixel_translation: AnyArray,
    yaw: float | None = None,
    sat_pixel_scale: float = 1.0,
    pixel_size: float | AnyArray = 1.0,
    interpolation: int = LINEAR,
) -> AnyArray:
    """Crop an image around a place, turned by `yaw`, to `crop_size` (width, height) pixels of `pixel_size` metres.

    Pixels of the image are `sat_pixel_scale` metres.
    """
    width, height = (int(side) for side in crop_size)
    side = max(width, height)
    wanted = np.rint(np.array([side, side]) * pixel_size / sat_pixel_scale).astype(np.int64)
    cut = get_sat_image_crop(sat_image, wanted, sat_pixel_translation, yaw)
    scaled = opencv().resize(cut, (side, side), interpolation=interpolation)
    return _middle(scaled, (height, width))


def get_sat_image_crop(
    sat_image: AnyArray, crop_size: Size, sat_pixel_translation: AnyArray, yaw: float | None = None
) -> AnyArray:
    """Crop `crop_size` pixels of an image around a place, turned by `yaw` radians if it is given."""
    size = np.asarray(crop_size)[:2]
    if yaw is None:
        return _cut(sat_image, size, sat_pixel_translation)
    around = _cut(sat_image, np.ceil(size * np.sqrt(2)).astype(np.int64), sat_pixel_translation)
    rows, columns = around.shape[:2]
    turn = opencv().getRotationMatrix2D((columns / 2, rows / 2), np.degrees(yaw), 1.0)
    return _middle(opencv().warpAffine(around, turn, (columns, rows)), size)


def _cut(image: AnyArray, size: Size, center: AnyArray) -> AnyArray:
    """The pixels around a place."""
    if len(size) < 2 or np.ndim(center) != 1 or len(center) < 2:
        raise OutsideImageError(f"expected a size and a place of two numbers, got {size} and {center}")
    begin = np.trunc(np.asarray(center)[:2] - np.asarray(size) // 2).astype(np.int64)
    end = begin + size
    if (begin < 0).any() or (end >= image.shape[:2]).any():
        raise OutsideImageError(
            f"expected pixels within an image of {list(image.shape[:2])}, got {begin.tolist()} to {end.tolist()}"
        )
    return image[begin[0] : end[0], begin[1] : end[1]]


def _middle(image: AnyArray, size: Size) -> AnyArray:
    rows, columns = ((whole - part) / 2 for whole, part in zip(image.shape[:2], size, strict=True))
    return image[int(rows) : int(rows) + int(size[0]), int(columns) : int(columns) + int(size[1])]
