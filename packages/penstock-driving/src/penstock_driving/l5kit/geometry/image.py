"""Parts of images."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray
from penstock_driving.rasterize.drawing import opencv


def crop_rectangle_from_image(image: AnyArray, corners: AnyArray) -> AnyArray:
    """Crop the rectangle with corners `[4, 2]` (row, column) from an image `[rows, columns, ...]`, turned upright.

    The rectangle is the smallest around the corners; pixels between pixels are interpolated. Needs
    `penstock-driving[raster]`.
    """
    cv2 = opencv()
    center, size, degrees = cv2.minAreaRect(np.asarray(corners, np.float32)[:, ::-1])
    while not 0 < degrees <= 90:  # releases of OpenCV differ in which side they turn to the x axis
        degrees, size = degrees + (90 if degrees <= 0 else -90), size[::-1]
    turn = cv2.getRotationMatrix2D(center, degrees, 1)
    rows, columns = image.shape[:2]
    turned = cv2.warpAffine(image, turn, (2 * rows, 2 * columns))
    return cv2.getRectSubPix(turned, (int(size[0]), int(size[1])), center)
