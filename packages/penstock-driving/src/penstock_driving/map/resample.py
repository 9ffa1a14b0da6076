"""Polylines walked at even steps. Distances are in all three dimensions, from the first point on."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray
from penstock.core.ragged import Ragged
from penstock.errors import DataError

Points = FloatArray


def resampled(lines: Ragged, steps: int) -> Points:
    """`[n, steps, 3]`: each of `n` lines at `steps` even distances, both ends included.

    Lines of equal length are done at once. Cost: a few passes over `n * steps` points.
    """
    if steps < 2:
        raise DataError(f"expected at least 2 points a line, got {steps}")
    out = np.empty((len(lines), steps, 3))
    lengths = lines.lengths
    for points in np.unique(lengths):
        rows = np.flatnonzero(lengths == points)
        xyz = lines.values[lines.offsets[rows, None] + np.arange(points)]
        out[rows] = _at_even_steps(xyz, steps)
    return out


def _at_even_steps(xyz: AnyArray, steps: int) -> Points:
    """`[n, steps, 3]` of lines `[n, points, 3]`."""
    walked = np.zeros(xyz.shape[:2])
    np.cumsum(np.linalg.norm(np.diff(xyz, axis=1), axis=-1), axis=1, out=walked[:, 1:])
    total = walked[:, -1:]
    wanted = np.arange(steps) * (total / (steps - 1))
    wanted[:, -1:] = total
    return interpolated(xyz, walked, wanted)


def interpolated(xyz: AnyArray, walked: Points, wanted: Points) -> Points:
    """`[n, k, 3]`: lines `[n, points, 3]`, at `walked` `[n, points]` metres, read off at `wanted` `[n, k]` metres."""
    rows, last = np.arange(len(xyz))[:, None], xyz.shape[1] - 1
    piece = (walked[:, None, :] <= wanted[:, :, None]).sum(axis=-1) - 1  # the last point not beyond
    after = np.minimum(piece + 1, last)
    span = walked[rows, after] - walked[rows, piece]
    begin, end = xyz[rows, piece], xyz[rows, after]
    inner = (piece < last)[..., None]
    slope = np.divide(end - begin, span[..., None], out=np.zeros_like(begin), where=inner & (span > 0)[..., None])
    return slope * (wanted - walked[rows, piece])[..., None] + begin


def every_metres(xyz: Points, step: float) -> Points:
    """`[k, 3]`: one line `[points, 3]` every `step` metres, from its first point to before its end."""
    if not step > 0:
        raise DataError(f"expected a step above 0 metres, got {step}")
    walked = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(xyz, axis=0), axis=-1))])
    return interpolated(xyz[None], walked[None], np.arange(0, walked[-1], step)[None])[0]
