"""Pictures made gray and smaller, by arithmetic that equals OpenCV's bit for bit."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from penstock.core.arrays import Float32Array, ImageArray, IntArray

_LUMA = np.array([9798, 19235, 3735], np.float32)  # 2**15 times the weights of red, green and blue


def gray(picture: ImageArray) -> ImageArray:
    """`[height, width, 3]` uint8 -> `[height, width]` uint8, the weighted mean of red, green and blue.

    All sums are integers below 2**24, hence exact in float32 in any order. Equals OpenCV 5's `COLOR_RGB2GRAY`.
    """
    luma = picture.reshape(-1, 3).astype(np.float32) @ _LUMA
    luma *= np.float32(2**-15)
    luma += np.float32(0.5)
    return luma.astype(np.uint8).reshape(picture.shape[:2])


def shrink(picture: ImageArray, height: int, width: int) -> ImageArray:
    """`[h, w]` uint8 -> `[height, width]` uint8: each pixel the mean of the area that it covers, half to even.

    `h` and `w` are larger than `height` and `width`. Equals OpenCV's `INTER_AREA`: float32, along rows first, each sum
    from left to right.
    """
    rows, row_weights = _taps(picture.shape[0], height)
    columns, column_weights = _taps(picture.shape[1], width)
    across = _weighted(np.ascontiguousarray(picture.T, np.float32), columns, column_weights)
    down = _weighted(np.ascontiguousarray(across.T), rows, row_weights)
    return np.rint(down, out=down).astype(np.uint8)


def box_mean(picture: ImageArray, side: int) -> ImageArray:
    """`[h, w, c]` uint8 -> `[h / side, w / side, c]` uint8, the mean of squares of `side` by `side`, half to even.

    `side` is a power of two, at most 16, that divides both edges.
    """
    sums = picture[::side].astype(np.uint16)
    for i in range(1, side):
        sums += picture[i::side]
    sums = np.add.reduce([sums[:, i::side] for i in range(side)], dtype=np.uint16)
    shift = 2 * (side.bit_length() - 1)
    half = (1 << shift >> 1) - 1
    return ((sums + half + ((sums >> shift) & 1)) >> shift).astype(np.uint8)


@lru_cache
def _taps(n: int, m: int) -> tuple[IntArray, Float32Array]:
    """`[taps, m]`: which of `n` cells overlap each of `m`, and their shares of it; unused taps weigh nothing."""
    scale = n / m
    begin = np.arange(m) * scale
    end = np.minimum(begin + scale, n)
    size = np.minimum(scale, n - begin)
    cells = np.floor(begin).astype(np.int64) + np.arange(int(np.ceil(scale)) + 1)[:, None]
    shares = np.minimum(cells + 1, end) - np.maximum(cells, begin)
    weights = np.where(shares > 1e-3, shares / size, 0.0)  # OpenCV drops slivers
    used = weights.any(axis=1)
    return np.minimum(cells, n - 1)[used], weights[used].astype(np.float32)


def _weighted(values: Float32Array, cells: IntArray, weights: Float32Array) -> Float32Array:
    """`[n, k]` -> `[m, k]`: whole rows are gathered, for that is what memory is fast at."""
    total = values[cells[0]] * weights[0][:, None]
    for tap in range(1, len(cells)):
        total += values[cells[tap]] * weights[tap][:, None]
    return total
