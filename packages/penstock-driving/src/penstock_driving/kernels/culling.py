"""Find the shapes of a map that a raster may show, and move them to pixels.

Both loops drop most of their input, so they write what is left to the front of arrays that have room for all. Points of
shapes are cut at 2^30 pixels' parts, so that they fit int32. The caller owns all arrays. Reference:
`tests/driving/reference/polygons.py`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import FloatArray, Int32Array, IntArray
from penstock.kernels.jit import kernel
from penstock_driving.kernels.polygons import POINT, REACH


def place_shapes(
    shapes: FloatArray,
    center: FloatArray,
    radius: FloatArray,
    which: IntArray,
    view: IntArray,
    matrices: FloatArray,
    frame: FloatArray,
) -> tuple[Int32Array, IntArray]:
    """Move shapes to pixels, without the shapes that cannot be seen."""
    count = len(shapes)
    if len(center) != count or len(radius) != count or len(view) != len(which) or len(frame) != 4:
        raise ValueError(f"expected circles of {count} shapes and views of {len(which)} entries, got {len(view)}")
    out, kept = np.empty((len(which), *shapes.shape[1:]), np.int32), np.empty(len(which), np.int64)
    seen = _place_shapes(shapes, center, radius, which, view, matrices, frame, out, kept)
    if seen < 0:
        raise ValueError(f"expected shapes within {count} and views within {len(matrices)}, got others in {which}")
    return out[:seen], kept[:seen]


def meeting_boxes(order: IntArray, sides: FloatArray, strips: IntArray, centers: FloatArray, reach: float) -> IntArray:
    """Find the boxes that meet the square around each centre. Boxes that only touch it do not meet it."""
    if sides.shape != (4, len(order)) or len(strips) != len(centers):
        raise ValueError(
            f"expected sides of {len(order)} boxes and strips of {len(centers)} centres, got {len(strips)}"
        )
    keys = np.empty(int((strips[:, 1] - strips[:, 0]).sum()), np.int64)
    count = _meeting_boxes(order, sides, strips, centers, reach, keys)
    if count < 0:
        raise ValueError(f"expected strips within {len(order)} boxes, got {strips.min()} to {strips.max()}")
    return keys[:count]


@kernel("f8[3C] f8[2C] f8[1C] i8[1C] i8[1C] f8[3C] f8[1C] i4[3C] i8[1C]")
def _place_shapes(
    shapes: FloatArray,
    center: FloatArray,
    radius: FloatArray,
    which: IntArray,
    view: IntArray,
    matrices: FloatArray,
    frame: FloatArray,
    out: Int32Array,
    kept: IntArray,
) -> int:
    width = frame[0]
    height = frame[1]
    pixel = frame[2]
    margin = frame[3]
    scale = np.float64(1 << POINT)
    count = 0
    for i in range(len(which)):
        shape, matrix = which[i], view[i]
        if not 0 <= shape < len(shapes) or not 0 <= matrix < len(matrices):
            return -1
        a = matrices[matrix, 0, 0]
        b = matrices[matrix, 0, 1]
        c = matrices[matrix, 0, 2]
        d = matrices[matrix, 1, 0]
        e = matrices[matrix, 1, 1]
        f = matrices[matrix, 1, 2]
        x = center[shape, 0]
        y = center[shape, 1]
        reach = radius[shape] / pixel + margin
        column, row = x * a + y * b + c, x * d + y * e + f
        if not (-reach < column < reach + width and -reach < row < reach + height):
            continue
        for k in range(shapes.shape[1]):
            x, y = shapes[shape, k, 0], shapes[shape, k, 1]
            for axis in range(2):
                value = (x * a + y * b + c if axis == 0 else x * d + y * e + f) * scale
                value = -REACH if value < -REACH else value
                out[count, k, axis] = np.int32(REACH if value > REACH else value)
        kept[count] = i
        count += 1
    return count


@kernel("i8[1C] f8[2C] i8[2C] f8[2C] f8 i8[1C]")
def _meeting_boxes(
    order: IntArray, sides: FloatArray, strips: IntArray, centers: FloatArray, reach: float, keys: IntArray
) -> int:
    count = 0
    for i in range(len(centers)):
        x, y = centers[i, 0], centers[i, 1]
        if not 0 <= strips[i, 0] <= strips[i, 1] <= len(order):
            return -1
        for k in range(strips[i, 0], strips[i, 1]):
            if not (sides[0, k] - reach < x < sides[2, k] + reach):
                continue
            if sides[1, k] - reach < y < sides[3, k] + reach:
                keys[count] = i * len(order) + order[k]
                count += 1
    return count
