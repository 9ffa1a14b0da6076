"""The aerial image, cut out and turned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.geometry import transform_points
from penstock.domains.driving.rasterize.base import Draw, Planes, Rasterizer
from penstock.domains.driving.rasterize.context import RenderContext
from penstock.domains.driving.rasterize.drawing import opencv
from penstock.domains.driving.rasterize.options import RasterOptions
from penstock.domains.driving.rasterize.scenes import Scenes, Views
from penstock.domains.driving.rasterize.semantic import picture
from penstock.errors import DataError, FormatError

SAMPLED = 2.0  # image pixels a raster pixel: above, only those are turned that the resizing looks at


class OutsideImageError(DataError, IndexError):
    """A view that reaches beyond the aerial image."""


class SatelliteRasterizer(Rasterizer):
    """Three channels: the aerial image `map_im` `[rows, columns, 3]` uint8 RGB around each view, which looks right.

    `world_to_aerial` `[4, 4]` maps metres to (row, column, ...) of the image. The image is turned by the yaw, then
    resized, bilinearly both times. Where it has more than two pixels for one of the raster, only the pixels that the
    resizing looks at are turned: the same picture up to rounding, without the work.
    """

    def __init__(
        self,
        context: RenderContext,
        map_im: Planes,
        world_to_aerial: npt.NDArray[Any],
        options: RasterOptions | None = None,
    ) -> None:
        if map_im.ndim != 3 or map_im.shape[2] != 3 or map_im.dtype != np.uint8:
            raise DataError(f"expected an image [rows, columns, 3] uint8, got {list(map_im.shape)} {map_im.dtype}")
        if context.pixel_size_m[0] != context.pixel_size_m[1]:
            raise DataError(f"expected square pixels for aerial images, got {context.pixel_size_m}")
        self.context = context
        self.map_im = map_im
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
        self._take_samples()

    def _take_samples(self) -> None:
        """The pixels of the turned image that each of the raster is mixed from, two a side, and where between them."""
        scale = self.cut / self.side
        center = (np.arange(self.side) + 0.5) * scale - 0.5
        low = np.clip(np.floor(center), 0, self.cut - 1)
        high = np.minimum(low + 1, self.cut - 1)
        self.taken = np.stack([low, high], axis=1).ravel() + (self.reach - self.cut) // 2
        between = 2 * np.arange(self.side) + np.clip(center - low, 0, 1)
        x, y = np.meshgrid(between.astype(np.float32), between.astype(np.float32))
        cv2 = opencv()
        self.mix = cv2.convertMaps(x, y, cv2.CV_16SC2)
        self.sampled = scale > SAMPLED

    def num_channels(self) -> int:
        """Red, green, blue."""
        return 3

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Where in the image each view lies."""
        middle = np.array([self.context.raster_size_px]) * 0.5
        inverse = np.linalg.inv(self.matrices(views))
        centers = transform_points(np.broadcast_to(middle, (len(views), 1, 2)), inverse)[:, 0]
        points = np.concatenate([centers, views.position[:, 2:]], axis=1)
        corners = (transform_points(points, self.world_to_aerial)[:, :2] - self.reach // 2).astype(np.int64)
        single = np.degrees(-views.yaw.astype(np.float32))  # the yaws of agents are float32
        degrees = np.where(views.track >= 0, single, np.degrees(-views.yaw))
        height, width = self.context.shape
        top, left = int(self.side / 2 - height / 2), int(self.side / 2 - width / 2)
        cv2 = opencv()

        def draw(view: int, planes: Planes) -> None:
            image = self._cut_out(*corners[view].tolist())
            square = self._sample(image, degrees[view]) if self.sampled else self._turn(image, degrees[view])
            shown = square[top : top + height, left : left + width]
            if not self.context.set_origin_to_bottom:
                shown = shown[::-1]
            cv2.split(np.ascontiguousarray(shown), list(planes))  # in place

        return draw

    def _cut_out(self, row: int, column: int) -> Planes:
        """`[reach, reach, 3]` from `row`, `column` on; black beyond the image, or an error, as the options say."""
        rows, columns = self.map_im.shape[:2]
        ends = row + self.reach, column + self.reach
        if row >= 0 and column >= 0 and ends[0] < rows and ends[1] < columns:
            return self.map_im[row : ends[0], column : ends[1]]
        if self.options.outside == "error":
            raise OutsideImageError(
                f"expected a view within the aerial image of {rows} x {columns} pixels, got {row}:{ends[0]}, "
                f"{column}:{ends[1]}; the option outside='pad' draws black there"
            )
        cut = np.zeros((self.reach, self.reach, 3), np.uint8)
        part = self.map_im[max(row, 0) : max(ends[0], 0), max(column, 0) : max(ends[1], 0)]
        top, left = max(-row, 0), max(-column, 0)
        if part.size:
            cut[top : top + part.shape[0], left : left + part.shape[1]] = part
        return cut

    def _turn(self, image: Planes, degrees: float) -> Planes:
        """Turned about its centre, its middle cut out, resized to the raster's larger side."""
        cv2 = opencv()
        matrix = cv2.getRotationMatrix2D((self.reach / 2, self.reach / 2), degrees, 1.0)
        turned = cv2.warpAffine(image, matrix, (self.reach, self.reach))
        start = int(self.reach / 2 - self.cut / 2)
        middle = turned[start : start + self.cut, start : start + self.cut]
        return cv2.resize(middle, (self.side, self.side), interpolation=cv2.INTER_LINEAR)

    def _sample(self, image: Planes, degrees: float) -> Planes:
        """The same, but only those pixels are turned that the resizing looks at: two by two for each of the raster."""
        cv2 = opencv()
        matrix = cv2.getRotationMatrix2D((self.reach / 2, self.reach / 2), degrees, 1.0)
        inverse = cv2.invertAffineTransform(matrix).astype(np.float32)
        taken = self.taken.astype(np.float32)
        x = inverse[0, 0] * taken[None, :] + (inverse[0, 1] * taken[:, None] + inverse[0, 2])
        y = inverse[1, 0] * taken[None, :] + (inverse[1, 1] * taken[:, None] + inverse[1, 2])
        turned = cv2.remap(image, x, y, cv2.INTER_LINEAR)
        return cv2.remap(turned, self.mix[0], self.mix[1], cv2.INTER_LINEAR)

    def to_rgb(self, in_im: npt.NDArray[Any], **kwargs: Any) -> Planes:
        """The raster itself, as uint8."""
        return picture(in_im)


def read_image(path: str | Path) -> Planes:
    """An aerial image `[rows, columns, 3]` uint8, RGB. Raises `FormatError` for what OpenCV cannot read."""
    cv2 = opencv()
    image = cv2.imread(str(path))
    if image is None:
        raise FormatError("expected an image, got something that OpenCV cannot read", path=path)
    return np.ascontiguousarray(image[..., ::-1])
