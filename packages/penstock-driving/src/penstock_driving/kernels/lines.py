"""Lines of maps: which of them are near a place, and their points as seen from there.

`nearest_lines` keeps a short sorted list for each sample, so no array of all distances is made; a line farther away
than its bounding box allows is not looked at. The caller owns all arrays. Reference:
`tests/driving/reference/logs.py`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import BoolArray, Float32Array, FloatArray, IntArray
from penstock.kernels.jit import kernel


def nearest_lines(lines: FloatArray, bounds: FloatArray, centre: FloatArray, reach: float, out: IntArray) -> None:
    """Find the lines nearest to each centre. The nearest point of a line counts; of equals, the first comes first."""
    if bounds.shape != (len(lines), 2, 2) or len(out) != len(centre):
        raise ValueError(f"expected bounds of {len(lines)} lines and room for {len(centre)} samples, got {len(out)}")
    out.fill(-1)
    _nearest_lines(lines, bounds, centre, reach, out, np.empty(int(out.shape[1])))


def move_lines(
    lines: FloatArray,
    lengths: IntArray,
    which: IntArray,
    matrix: FloatArray,
    third: Float32Array,
    reach: float,
    out: Float32Array,
    there: BoolArray,
) -> None:
    """Move lines to the frames of samples."""
    n, most = which.shape
    points = lines.shape[1]
    if len(lengths) < len(lines) or len(matrix) != n or third.shape != which.shape:
        raise ValueError(f"expected lengths of {len(lines)} lines and matrices of {n} samples")
    if out.shape != (n, most, points, 3) or there.shape != out.shape[:3]:
        raise ValueError(f"expected room for [{n}, {most}, {points}] points, got {list(out.shape)}")
    out.fill(0)
    there.fill(False)
    bad = _move_lines(lines, lengths, which, matrix, third, np.float32(reach), out, there)
    if bad >= 0:
        raise ValueError(f"expected lines within {len(lines)} of at most {points} points, got others in sample {bad}")


@kernel("f8[3C] f8[3C] f8[2C] f8 i8[2C] f8[1C]")
def _nearest_lines(
    lines: FloatArray, bounds: FloatArray, centre: FloatArray, reach: float, out: IntArray, fars: FloatArray
) -> None:
    most = out.shape[1]
    for i in range(len(centre) if most else 0):
        x, y = centre[i, 0], centre[i, 1]
        count = 0
        for m in range(len(bounds)):
            if not (x > bounds[m, 0, 0] - reach and y > bounds[m, 0, 1] - reach):
                continue
            if not (x < bounds[m, 1, 0] + reach and y < bounds[m, 1, 1] + reach):
                continue
            least = np.inf
            for p in range(lines.shape[1]):
                dx, dy = lines[m, p, 0] - x, lines[m, p, 1] - y
                far = dx * dx + dy * dy
                least = far if far < least else least
            far = np.sqrt(least)
            if count == most and not far < fars[most - 1]:
                continue
            end = count if count < most else most - 1
            count = count + 1 if count < most else most
            while end > 0 and far < fars[end - 1]:
                out[i, end], fars[end] = out[i, end - 1], fars[end - 1]
                end -= 1
            out[i, end], fars[end] = m, far


@kernel("f8[3C] i8[1C] i8[2C] f8[3C] f4[2C] f4 f4[4C] b1[3C]")
def _move_lines(
    lines: FloatArray,
    lengths: IntArray,
    which: IntArray,
    matrix: FloatArray,
    third: Float32Array,
    reach: np.float32,
    out: Float32Array,
    there: BoolArray,
) -> int:
    for i in range(out.shape[0]):
        a = matrix[i, 0, 0]
        b = matrix[i, 0, 1]
        c = matrix[i, 0, 2]
        d = matrix[i, 1, 0]
        e = matrix[i, 1, 1]
        f = matrix[i, 1, 2]
        for k in range(out.shape[1]):
            line = which[i, k]
            if line < 0:
                continue
            if line >= len(lines) or lengths[line] > lines.shape[1]:
                return i
            for p in range(lengths[line]):
                x, y = lines[line, p, 0], lines[line, p, 1]
                u, v = np.float32(x * a + y * b + c), np.float32(x * d + y * e + f)
                out[i, k, p, 0] = u
                out[i, k, p, 1] = v
                out[i, k, p, 2] = third[i, k]
                there[i, k, p] = np.sqrt(np.float32(u * u + v * v)) < reach
    return -1
