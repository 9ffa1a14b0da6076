"""Images as an animation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from penstock.core.arrays import AnyArray, ImageArray
from penstock.errors import DataError, require
from penstock_driving.rasterize.drawing import opencv

CUBIC = 2  # cv2.INTER_CUBIC


def write_gif(
    output_filepath: str | os.PathLike[str],
    images: Iterable[AnyArray],
    resolution: tuple[int, int],
    fps: float = 24.0,
    loop: int = 0,
    interpolation: int = CUBIC,
) -> None:
    """Write images `[H, W, 3]` or `[3, H, W]` uint8 as a GIF of `resolution` (width, height), shown `loop` times, 0 for
    ever. Needs the extras `images` and `raster`.

    A GIF counts in hundredths of a second, so `fps` is rounded to one of these.
    """
    pictures = require("PIL.Image", "images")
    frames = [pictures.fromarray(image) for image in resized(images, resolution, interpolation)]
    if not frames:
        raise DataError("expected one image or more, got none")
    seconds = round(1000 / fps)
    frames[0].save(output_filepath, "GIF", save_all=True, append_images=frames[1:], duration=seconds, loop=loop)


def resized(images: Iterable[AnyArray], resolution: tuple[int, int], interpolation: int) -> Iterator[ImageArray]:
    """Return images as `[height, width, 3]`, scaled with OpenCV's `interpolation` if their size differs."""
    width, height = resolution
    for each in images:
        image = each.transpose(1, 2, 0) if each.ndim == 3 and each.shape[0] == 3 else each
        image = np.ascontiguousarray(image)
        if image.shape[:2] != (height, width):
            image = opencv().resize(image, (width, height), interpolation=interpolation)
        yield image
