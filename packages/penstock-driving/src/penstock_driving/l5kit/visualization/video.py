"""Images as a film."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.l5kit.visualization.gif import CUBIC, resized
from penstock_driving.rasterize.drawing import opencv


def write_video(
    output_filepath: str | os.PathLike[str],
    images: Iterable[AnyArray],
    resolution: tuple[int, int],
    fps: float = 24.0,
    codec: str = "FMP4",
    interpolation: int = CUBIC,
) -> None:
    """Write images `[H, W, 3]` or `[3, H, W]` uint8 RGB as a film of `resolution` (width, height), by OpenCV: the extra
    `raster`. `codec` are four letters; which there are, and for which endings, is OpenCV's.
    """
    cv2 = opencv()
    path = os.fspath(output_filepath)
    film = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*codec), fps, tuple(resolution))
    try:
        if not film.isOpened():
            raise DataError(
                f"expected a path and a codec that OpenCV writes, such as film.avi, got {path} and {codec!r}"
            )
        for image in resized(images, resolution, interpolation):
            film.write(np.ascontiguousarray(image[..., ::-1]))
    finally:
        film.release()
