"""Turn and resize aerial images in NumPy: the kernel in `warping` must equal this.

Fixed point throughout: places in the image are cut to 1/32 of a pixel, weights of resizing to 1/2048. These are the
rules by which OpenCV 4 turns (`warpAffine`) and resizes (`resize`) 8-bit images bilinearly, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock_driving.kernels.warping import PLACES, ROUND

Int = npt.NDArray[np.int64]


def warp(
    image: npt.NDArray[np.uint8],
    box: Int,
    matrix: npt.NDArray[np.float64],
    columns: Int,
    left: Int,
    across: npt.NDArray[np.int32],
    rows: Int,
    down: npt.NDArray[np.int32],
    out: npt.NDArray[np.uint8],
) -> None:
    """A cut-out of `image` `[R, C, 3]`, turned and resized, into `out` `[3, H, W]`.

    `box` is the first row and column and the side of the cut-out; beyond it, and beyond the image, is black. `matrix`
    `[2, 3]` maps a pixel (x, y) of the turned cut-out to its place (x, y) in the cut-out. Pixel (y, x) of `out` mixes
    rows `rows[y]` `[H, 2]` by `down[y]` with columns `columns[left[x]]` and `columns[left[x] + 1]` by
    `across[x]`, in 2048ths.
    """
    seen, place = np.unique(rows, return_inverse=True)
    turned = _turned(image, box, matrix, columns, seen)
    mixed = turned[:, left] * across[:, 0, None] + turned[:, left + 1] * across[:, 1, None]
    upper, lower = (mixed[rank] >> 4 for rank in place.reshape(rows.shape).T)
    weight = down.astype(np.int64)[:, :, None, None]
    both = ((upper * weight[:, 0]) >> 16) + ((lower * weight[:, 1]) >> 16)
    out[:] = ((both + 2) >> 2).transpose(2, 0, 1)


def _turned(image: Any, box: Int, matrix: Any, columns: Int, rows: Int) -> Int:
    """`[rows, columns, 3]`: those pixels of the turned cut-out."""
    places: list[Int] = []
    for along, down, first in matrix:
        start = np.rint((down * rows + first) * PLACES).astype(np.int64) + ROUND
        places.append((start[:, None] + np.rint(along * columns * PLACES).astype(np.int64)) >> 5)
    (x, right), (y, lower) = ((place >> 5, (place & 31)[..., None]) for place in places)
    top = _mixed(_pixels(image, box, y, x), _pixels(image, box, y, x + 1), right)
    bottom = _mixed(_pixels(image, box, y + 1, x), _pixels(image, box, y + 1, x + 1), right)
    return (_mixed(top, bottom, lower) + 512) >> 10


def _mixed(first: Int, second: Int, weight: Int) -> Int:
    return (32 - weight) * first + weight * second


def _pixels(image: Any, box: Int, row: Int, column: Int) -> Int:
    """`[..., 3]` of the cut-out, black where there is nothing."""
    there = (row >= 0) & (row < box[2]) & (column >= 0) & (column < box[2])
    row, column = row + box[0], column + box[1]
    there &= (row >= 0) & (row < image.shape[0]) & (column >= 0) & (column < image.shape[1])
    found = np.zeros((*row.shape, 3), np.int64)
    found[there] = image[row[there], column[there]]
    return found
