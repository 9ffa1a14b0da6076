"""How near pictures are to the pictures that they were before: signal-to-noise ratio, and structural similarity."""

from __future__ import annotations

import math

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray

WINDOW = 8  # pixels of a side of the squares that the structural similarity compares


def psnr(one: ByteArray, other: ByteArray) -> float:
    """Return the peak signal-to-noise ratio of pictures in dB; infinite for equal ones."""
    error = float(np.mean(np.square(one.astype(np.float64) - other.astype(np.float64)))) if one.size else 0.0
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def ssim(one: ByteArray, other: ByteArray) -> float:
    """Return the mean structural similarity of pictures (Wang et al., 2004), over squares of 8 x 8 pixels."""
    n, height, width = one.shape[:3]
    rows, cols = height // WINDOW, width // WINDOW

    def squares(frames: ByteArray) -> AnyArray:
        whole = frames.reshape(n, height, width, -1)[:, : rows * WINDOW, : cols * WINDOW].astype(np.float64)
        return np.moveaxis(whole.reshape(n, rows, WINDOW, cols, WINDOW, -1), (2, 4), (-2, -1))

    if not rows or not cols or not n:
        return 1.0 if np.array_equal(one, other) else 0.0
    a, b = squares(one), squares(other)
    mean_a, mean_b = a.mean((-2, -1)), b.mean((-2, -1))
    var_a, var_b = a.var((-2, -1)), b.var((-2, -1))
    both = (a * b).mean((-2, -1)) - mean_a * mean_b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    ratio: AnyArray = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    similarity: AnyArray = ratio / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return float(similarity.mean())
