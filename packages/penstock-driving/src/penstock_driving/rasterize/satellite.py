"""The aerial image, cut out, turned and resized in one pass over the pixels of the raster."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.npy import map_array
from penstock.core.arrays import AnyArray, Float32Array, FloatArray, Int32Array, IntArray, read_only
from penstock.errors import DataError, FormatError
from penstock.files.mapping import check_mapped
from penstock_driving.geometry import transform_points
from penstock_driving.kernels.warping import warp
from penstock_driving.rasterize.base import Draw, Planes, Rasterizer, refuse_colors
from penstock_driving.rasterize.context import RenderContext
from penstock_driving.rasterize.drawing import opencv
from penstock_driving.rasterize.options import RasterOptions
from penstock_driving.rasterize.scenes import Scenes, Views
from penstock_driving.rasterize.semantic import picture

WEIGHT = np.float32(2048)  # of what is resized: weights are whole numbers of 1 / 2048


class OutsideImageError(DataError, IndexError):
    """A view that reaches beyond the aerial image."""


class SatelliteRasterizer(Rasterizer):
    """Three channels: the aerial image around each view, which looks right.

    The image is turned by the yaw, then resized, bilinearly both times. The result equals OpenCV 4's bit for bit, but
    only the pixels that the resizing reads are turned. The image is read in place; it may be mapped from a file.

    Args:
        context: Size and place of rasters, with square pixels.
        map_im: `[rows, columns, 3]` uint8 RGB.
        world_to_aerial: `[4, 4]` from metres of the world to (row, column, ...) of the image.
        options: Differences from L5Kit. The default is None: none.

    Raises:
        DataError: The image or the matrix has another form, pixels are not square, or the image is coarser than the
            raster.
        OutsideImageError: A view reaches beyond the image, and `outside` is `"error"`.

    Example:
        >>> image = np.zeros((90, 90, 3), np.uint8)
        >>> SatelliteRasterizer(RenderContext((9, 9), (1.0, 1.0), (0.5, 0.5)), image, np.eye(4)).num_channels()
        3
    """

    def __init__(
        self,
        context: RenderContext,
        map_im: Planes,
        world_to_aerial: AnyArray,
        options: RasterOptions | None = None,
    ) -> None:
        if map_im.ndim != 3 or map_im.shape[2] != 3 or map_im.dtype != np.uint8:
            raise DataError(f"expected an image [rows, columns, 3] uint8, got {list(map_im.shape)} {map_im.dtype}")
        if context.pixel_size_m[0] != context.pixel_size_m[1]:
            raise DataError(f"expected square pixels for aerial images, got {context.pixel_size_m}")
        self.context = context
        self.map_im = np.ascontiguousarray(map_im)
        self.world_to_aerial = world_to_aerial
        self.options = options or RasterOptions()
        norms = np.linalg.norm(world_to_aerial[:2, :3], axis=1)
        if not np.all(norms > 0):
            raise DataError("expected a matrix with a scale, got one that maps the world to a line")
        self.map_pixel_scale = float((1 / norms[0] + 1 / norms[1]) / 2)  # metres a pixel
        self.side = max(context.raster_size_px)  # of the square that is resized to
        self.cut = round(self.side * context.pixel_size_m[0] / self.map_pixel_scale)  # of it, in the image
        self.reach = int(np.ceil(self.cut * np.sqrt(2)))  # of what is cut out, so that it can be turned
        if self.cut < 1:
            raise DataError(f"expected an image finer than the raster, got {self.map_pixel_scale:.3g} m a pixel")
        self._lay_out()

    def _lay_out(self) -> None:
        """Which pixels of the turned image each of the raster is mixed from, two a side, and their weights."""
        height, width = self.context.shape
        top, left = int(self.side / 2 - height / 2), int(self.side / 2 - width / 2)
        scale = 1 / (self.side / self.cut)
        place = ((np.arange(self.side) + 0.5) * scale - 0.5).astype(np.float32)
        low = np.floor(place)
        between, first = place - low, int(self.reach / 2 - self.cut / 2)
        down, last = slice(top, top + height), self.cut - 1
        self.rows = first + np.clip(np.stack([low, low + 1], axis=1), 0, last).astype(np.int64)[down]
        self.down = _weights(between[down])
        # Beyond the first and last column nothing is mixed; rows are mixed with themselves there.
        across = slice(left, left + width)
        column = np.clip(low, 0, last).astype(np.int64)[across]
        self.across = _weights(np.where((low < 0) | (low >= last), np.float32(0), between)[across])
        turned = np.unique(np.stack([column, column + 1]))
        self.columns, self.left = first + turned, np.searchsorted(turned, column)
        if not self.context.set_origin_to_bottom:
            self.rows, self.down = np.ascontiguousarray(self.rows[::-1]), np.ascontiguousarray(self.down[::-1])

    def num_channels(self) -> int:
        """Red, green, blue."""
        return 3

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Place of each view in the image; drawing is one call."""
        boxes, turns = self.places(views)
        image = read_only(self.map_im)

        check_mapped(self.map_im)

        def draw(view: int, planes: Planes) -> None:
            warp(image, boxes[view], turns[view], self.columns, self.left, self.across, self.rows, self.down, planes)

        return draw

    def places(self, views: Views) -> tuple[IntArray, FloatArray]:
        """Return the places of views in the image.

        Args:
            views: `n` views.

        Returns:
            `[n, 3]` int64 row, column and side to cut out, and `[n, 2, 3]` float64 how to turn it.

        Raises:
            OutsideImageError: A view reaches beyond the image, and `outside` is `"error"`.
        """
        middle = np.array([self.context.raster_size_px]) * 0.5
        inverse = np.linalg.inv(self.matrices(views))
        centers = transform_points(np.broadcast_to(middle, (len(views), 1, 2)), inverse)[:, 0]
        points = np.concatenate([centers, views.position[:, 2:]], axis=1)
        corners = (transform_points(points, self.world_to_aerial)[:, :2] - self.reach // 2).astype(np.int64)
        self._check(corners)
        single = np.degrees(-views.yaw.astype(np.float32))  # the yaws of agents are float32
        degrees = np.where(views.track >= 0, single, np.degrees(-views.yaw))
        boxes = np.concatenate([corners, np.full((len(views), 1), self.reach)], axis=1)
        return boxes, turned_from(degrees, self.reach / 2)

    def _check(self, corners: IntArray) -> None:
        """Raise `OutsideImageError` for what is cut out beyond the image, unless it is to be black there."""
        ends = corners + self.reach
        wrong = np.flatnonzero(np.any((corners < 0) | (ends >= self.map_im.shape[:2]), axis=1))
        if self.options.outside == "error" and len(wrong):
            (row, column), (bottom, right) = corners[wrong[0]].tolist(), ends[wrong[0]].tolist()
            rows, columns = self.map_im.shape[:2]
            raise OutsideImageError(
                f"expected a view within the aerial image of {rows} x {columns} pixels, got {row}:{bottom}, "
                f"{column}:{right}; the option outside='pad' draws black there"
            )

    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """The raster itself, as uint8. Raises `DataError` for colours of boxes."""
        refuse_colors(kwargs)
        return picture(in_im)


def turned_from(degrees: FloatArray, center: float) -> FloatArray:
    """`[n, 2, 3]`: where a pixel (x, y) of an image that was turned by `degrees` `[n]` about `center` comes from.

    The steps and roundings are as in OpenCV's `getRotationMatrix2D` and of the inverse in `warpAffine`.
    """
    angles = (degrees * (math.pi / 180)).tolist()
    # Of the C library, as in OpenCV; NumPy's own may differ in the last bit.
    cos, sin = (np.array([function(angle) for angle in angles]) for function in (math.cos, math.sin))
    x, y = (1 - cos) * center - sin * center, sin * center + (1 - cos) * center
    scale = 1 / (cos * cos - sin * -sin)
    a = cos * scale
    b = sin * -scale
    c = -sin * -scale
    d = cos * scale
    matrix = np.stack([a, b, -a * x - b * y, c, d, -c * x - d * y], axis=1)
    return (matrix + 0.0).reshape(-1, 2, 3)  # no negative zeros


def _weights(between: Float32Array) -> Int32Array:
    """`[n, 2]` of the pixels before and after, in 2048ths."""
    return np.rint(np.stack([1 - between, between], axis=1) * WEIGHT).astype(np.int32)


def read_image(path: str | Path) -> Planes:
    """An aerial image `[rows, columns, 3]` uint8, RGB: a picture, or such an array as `.npy`, which stays in its file.

    A mapped array allocates no memory, and processes share it.
    """
    if Path(path).suffix == ".npy":
        return map_array(Path(path))
    image = opencv().imread(str(path))
    if image is None:
        raise FormatError("expected an image, got something that OpenCV cannot read", path=path)
    return np.ascontiguousarray(image[..., ::-1])
