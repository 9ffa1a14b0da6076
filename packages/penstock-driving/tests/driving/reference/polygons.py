"""Draw polygons and lines in NumPy and Python: the kernels in `polygons`, `culling` and `pixels` must equal these.

The rules are OpenCV's for `fillPoly` and `polylines` with smoothed lines of one pixel, to the last bit. Points
have 9 binary digits behind the point, the middle of a pixel is at whole coordinates; lines are walked with 16 digits.
An image is uint8, one channel a pixel, or uint64, whose channels are 16 bits apart: the arithmetic is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock_driving.kernels.polygons import (
    ACROSS,
    FILLED,
    FINE,
    FINER,
    HALF,
    HALF_POINT,
    MASK,
    ONE,
    OPEN,
    POINT,
    REACH,
    ROUND,
    SHIFT,
    TILT,
)

Int = npt.NDArray[np.int64]
Fixed = npt.NDArray[np.int32]
Image = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


def draw_shapes(image: Image, width: int, background: int, points: Fixed, spans: Int, calls: Int) -> None:
    """Fill the planes `image` `[C, height * width]` with `background`, then carry out `calls` in order.

    A call `[n, 5]` is (first contour, last, plane, what, colour). Contours `spans` `[K, 2]` are ranges of `points`
    `[P, 2]`, 9 digits behind the point. `FILLED` colours what an odd number of the call's contours encloses and draws
    their outlines, `OPEN` draws lines from point to point, `CLOSED` also from the last to the first.
    """
    image[:] = background
    for first, last, plane, what, color in calls.tolist():
        layer = image[plane].reshape(-1, width)
        contours = [points[low:high].tolist() for low, high in spans[first:last].tolist()]
        for contour in contours:
            # the outline of what is filled begins and ends in the middle of a row
            line = [(x, _row(y) << POINT) for x, y in contour] if what == FILLED else contour
            for begin, end in list(zip(line[-1:] + line[:-1], line, strict=True))[what == OPEN :]:
                _line(layer, begin, end, color)
        if what == FILLED:
            _fill(layer, contours, color)


def _row(y: int) -> int:
    return (y + HALF_POINT) >> POINT


def _quotient(a: int, b: int) -> int:
    """Cut towards zero, `b` above 0."""
    return a // b if a >= 0 else -(-a // b)


def _fill(layer: Image, contours: list[Any], color: int) -> None:
    """Edges run from row to row, the lower one left out; between the first and the second a row is coloured, ..."""
    edges: list[tuple[int, int, int, int]] = []
    for contour in contours:
        for begin, end in zip(contour[-1:] + contour[:-1], contour, strict=True):
            (x0, y0), (x1, y1) = sorted([begin, end], key=lambda point: point[1])
            top, bottom = _row(y0), _row(y1)
            if top < bottom:
                edges.append((top, bottom, x0 << FINER, _quotient((x1 - x0) << FINER, bottom - top)))
    for y in range(len(layer)):
        crossed = sorted(x + (y - top) * step for top, bottom, x, step in edges if top <= y < bottom)
        for left, right in zip(crossed[::2], crossed[1::2], strict=True):
            layer[y, max(-(-left >> SHIFT), 0) : max((right >> SHIFT) + 1, 0)] = color


def _clip(ends: list[list[int]], last: tuple[int, int]) -> bool:
    """Cut a segment, in place, at 0 and `last`: first y of either end, then x; False where nothing is left."""
    for axis in (1, 0):
        if any(max(a, b) < 0 or min(a, b) > limit for a, b, limit in zip(*ends, last, strict=True)):
            return False
        for end in ends:
            edge = min(max(end[axis], 0), last[axis])
            if edge != end[axis]:
                run, rise = (ends[1][along] - ends[0][along] for along in (1 - axis, axis))
                end[1 - axis] += int(float(edge - end[axis]) * run / rise)
                end[axis] = edge
    return True


def _line(layer: Image, begin: Any, end: Any, color: int) -> None:
    """Three pixels across for each step along the longer axis `u`; the first two steps and the last two in part."""
    height, width = layer.shape
    ends = [[value << FINER for value in point] for point in (begin, end)]
    if not _clip(ends, (width * ONE - 1, height * ONE - 1)):
        return
    (x0, y0), (x1, y1) = ends
    if abs(x1 - x0) <= abs(y1 - y0):
        layer, ends = layer.T, [[y0, x0], [y1, x1]]
    (u0, v0), (u1, v1) = sorted(ends, key=lambda point: point[0])
    slope = _quotient((v1 - v0) << SHIFT, (u1 - u0) | 1)
    steps = (u1 >> SHIFT) + 1 - (u0 >> SHIFT)
    step = np.arange(steps + 1)
    v = v0 + ((-slope * (u0 & (ONE - 1))) >> SHIFT) + HALF + slope * step
    weight = (_covered(step, steps, (u0 >> 9) & 0x78, (u1 >> 9) & 0x78) * TILT[max(slope, ~slope) >> FINE]) >> 8
    between, table = (v >> FINE) & 31, np.array(ACROSS)
    for place, part in ((-1, between + 32), (0, between), (1, 63 - between)):
        u, row = (u0 >> SHIFT) + step, (v >> SHIFT) + place
        seen = (u < layer.shape[1]) & (row >= 0) & (row < len(layer))
        alpha = ((weight * table[part]) >> 8)[seen].astype(np.uint64)
        value = layer[row[seen], u[seen]].astype(np.uint64)
        for _ in range(2):
            value = (value * (np.uint64(256) - alpha) + np.uint64(color) * alpha + np.uint64(ROUND)) >> np.uint64(8)
            value &= np.uint64(MASK)
        layer[row[seen], u[seen]] = value


def _covered(step: Int, steps: int, into: int, out: int) -> Int:
    """How much of 256 each step covers of a line that begins `into` / 128 within a pixel and ends `out` / 128."""
    first, last = (0x78 - into) | 4, out | 4
    covered = np.full(len(step), 256)
    covered[-2:] = last + 128, last
    covered[:2] = first, first + 128
    if steps == 1:
        covered[:] = ((out - into) & 0x78) | 4
    elif steps == 2:
        covered[:] = first, (out - into + 0x80) | 4, last
    return covered


def place_shapes(
    shapes: npt.NDArray[np.float64],
    center: npt.NDArray[np.float64],
    radius: npt.NDArray[np.float64],
    which: Int,
    view: Int,
    matrices: npt.NDArray[np.float64],
    frame: npt.NDArray[np.float64],
) -> tuple[Fixed, Int]:
    """Move shapes to pixels, without the shapes that cannot be seen.

    Entry `i` is shape `which[i]` of `shapes` `[K, k, 2]` metres, in a circle (`center` `[K, 2]`, `radius` `[K]`), moved
    by `matrices[view[i]]` `[n, 3, 3]`. `frame` is the image's width and height, the smaller side of a pixel in metres,
    and how many pixels beyond the image a circle may end. Returns points `[m, k, 2]`, cut towards zero, and their
    entries `[m]`.
    """
    width, height, pixel, margin = frame.tolist()
    moved = matrices[view]
    reach = radius[which] / pixel + margin
    seen = np.ones(len(which), np.bool_)
    for axis, size in enumerate((width, height)):
        place = center[which, 0] * moved[:, axis, 0] + center[which, 1] * moved[:, axis, 1] + moved[:, axis, 2]
        seen &= (place > -reach) & (place < reach + size)
    rows = np.flatnonzero(seen)
    x, y = shapes[which[rows], :, 0], shapes[which[rows], :, 1]
    out = np.empty((len(rows), shapes.shape[1], 2), np.int32)
    for axis in (0, 1):
        a, b, c = (moved[rows, axis, column, None] * float(1 << POINT) for column in range(3))
        out[:, :, axis] = np.clip(x * a + y * b + c, -REACH, REACH)
    return out, rows


def meeting_boxes(
    order: Int,
    sides: npt.NDArray[np.float64],
    strips: Int,
    centers: npt.NDArray[np.float64],
    reach: float,
) -> Int:
    """Which boxes meet the square of half side `reach` around each of `centers` `[n, 2]`.

    `sides` `[4, B]` are left, bottom, right and top of boxes, of which `strips` `[n, 2]` are looked at. What only
    touches does not meet. It is i * B + `order[k]` where box `k` meets the square of centre `i`.
    """
    found: list[Int] = []
    for i, ((low, high), (x, y)) in enumerate(zip(strips.tolist(), centers.tolist(), strict=True)):
        left, bottom, right, top = sides[:, low:high]
        meets = (left - reach < x) & (x < right + reach) & (bottom - reach < y) & (y < top + reach)
        found.append(i * len(order) + order[low:high][meets])
    return np.concatenate([np.empty(0, np.int64), *found])


def split_channels(pixels: npt.NDArray[np.uint64], planes: Bytes) -> None:
    """Channels `[C, pixels]` of `pixels` that have them 16 bits apart."""
    for channel, plane in enumerate(planes):
        plane[:] = (pixels >> np.uint64(16 * channel)) & np.uint64(255)


def to_unit(values: Bytes, out: npt.NDArray[np.float32]) -> None:
    """`values / 255`, in float32."""
    np.divide(values, np.float32(255), out=out)
