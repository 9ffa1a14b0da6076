# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels that draw polygons and lines (numba, GIL released, cached). Definitions: `polygons_reference`.

Results are equal to OpenCV's `fillPoly` and `polylines` to the last bit. The channels of a pixel are 16 bits apart in
one word, so one operation blends all of them. Edges wait in the list of the first row of pixels that they cross. The
caller owns the image and all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.core.ragged import offsets_of
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock.kernels.polygons_reference import (
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

_TILT = np.array(TILT, np.int64)
_WEIGHTS = np.array(
    [sum(ACROSS[at] << 16 * k for k, at in enumerate((32 + i, i, 63 - i))) for i in range(32)], np.uint64
)
"""Of the pixel before a line's, of its own and of the one behind it, 16 bits each, by where it lies between two."""
_FULL, _BITS, _ALPHA = np.uint64(256), np.uint64(8), np.uint64(255)
_ROUND, _MASK = np.uint64(ROUND), np.uint64(MASK)


def _blender(bits: int) -> Any:
    """An intrinsic that blends three pixels of `bits` bits with a colour, all their channels in one vector."""
    channels = max(bits // 16, 1)
    word, pixel, short = ir.IntType(32), ir.IntType(bits), ir.IntType(16)
    wide = ir.IntType(16 * channels)  # a pixel in lanes of 16 bits
    four, lanes = ir.VectorType(short, 4), ir.VectorType(short, 4 * channels)

    def spread(builder: Any, packed: Any, order: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(word, len(order)), order)
        return builder.shuffle_vector(builder.bitcast(packed, four), ir.Constant(four, ir.Undefined), mask)

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        at, across, weights, color = args
        addresses = (builder.sub(at, across), at, builder.add(at, across))
        places = [builder.inttoptr(address, pixel.as_pointer()) for address in addresses]
        pixels = ir.Constant(ir.VectorType(wide, 4), [0] * 4)
        for k, place in enumerate(places):
            value = builder.load(place, align=bits // 8)
            pixels = builder.insert_element(pixels, value if bits > 16 else builder.zext(value, wide), word(k))
        full, half, digits = (ir.Constant(lanes, [number] * 4 * channels) for number in (256, 127, 8))
        value = builder.bitcast(pixels, lanes)
        weight = spread(builder, weights, [k for k in range(4) for _ in range(channels)])
        part = builder.add(builder.mul(spread(builder, color, [*range(channels)] * 4), weight), half)
        for _ in range(2):
            kept = builder.mul(value, builder.sub(full, weight))
            value = builder.lshr(builder.add(kept, part), digits)
        pixels = builder.bitcast(value, pixels.type)
        for k, place in enumerate(places):
            value = builder.extract_element(pixels, word(k))
            builder.store(value if bits > 16 else builder.trunc(value, pixel), place, align=bits // 8)

    @intrinsic
    def blend(_context: Any, at: Any, across: Any, weights: Any, color: Any) -> Any:  # noqa: ARG001 - for the caller
        """The pixels at the address `at` and `across` bytes before and behind it; their `weights` 16 bits apart."""
        return types.void(types.int64, types.int64, types.uint64, types.uint64), codegen

    return blend


_blend_bytes, _blend_words = _blender(8), _blender(64)


@uncounted_helper
def _blend(image: Any, at: int, color: Any, alpha: Any) -> None:
    """Twice `alpha` / 256 of the way to `color`, all channels of a pixel at once: they are 16 bits apart."""
    rest, part = _FULL - alpha, color * alpha + _ROUND
    value = ((np.uint64(image[at]) * rest + part) >> _BITS) & _MASK
    image[at] = ((value * rest + part) >> _BITS) & _MASK


@uncounted_helper
def _part(distance: int, run: int, rise: int) -> Any:
    """`distance * run / rise`, in doubles, cut towards zero."""
    return np.int64(np.float64(distance) * np.float64(run) / np.float64(rise))


@uncounted_helper
def _beyond(a: int, b: int, last: int) -> Any:
    """Return whether both are before 0, or both behind `last`."""
    return (a < 0 and b < 0) or (a > last and b > last)


@uncounted_helper
def _clip(x0: int, y0: int, x1: int, y1: int, right: int, bottom: int) -> Any:
    """A segment cut at 0, `right` and `bottom`: its ends, and whether there is anything left of it."""
    if _beyond(x0, x1, right) or _beyond(y0, y1, bottom):
        return False, x0, y0, x1, y1
    if not 0 <= y0 <= bottom:
        edge = 0 if y0 < 0 else bottom
        x0, y0 = x0 + _part(edge - y0, x1 - x0, y1 - y0), edge
    if not 0 <= y1 <= bottom:
        edge = 0 if y1 < 0 else bottom
        x1, y1 = x1 + _part(edge - y1, x1 - x0, y1 - y0), edge
    if _beyond(x0, x1, right):
        return False, x0, y0, x1, y1
    if not 0 <= x0 <= right:
        edge = 0 if x0 < 0 else right
        x0, y0 = edge, y0 + _part(edge - x0, y1 - y0, x1 - x0)
    if not 0 <= x1 <= right:
        edge = 0 if x1 < 0 else right
        x1, y1 = edge, y1 + _part(edge - x1, y1 - y0, x1 - x0)
    return True, x0, y0, x1, y1


@uncounted_helper
def _weights(steps: int, into: int, out: int, tilt: int) -> Any:
    """The weights of the first two steps of a line and of its last two, which it covers in part."""
    first, last = (0x78 - into) | 4, out | 4
    second, before = first + 128, last + 128
    if steps == 1:
        first = second = ((out - into) & 0x78) | 4
    elif steps == 2:
        second = (out - into + 0x80) | 4
    return first * tilt >> 8, second * tilt >> 8, before * tilt >> 8, last * tilt >> 8


@uncounted_helper
def _line(image: Any, width: int, height: int, x0: int, y0: int, x1: int, y1: int, color: Any) -> None:
    """One smoothed line: three pixels for every step along its longer axis."""
    seen, x0, y0, x1, y1 = _clip(x0, y0, x1, y1, width * ONE - 1, height * ONE - 1)
    if not seen:
        return
    if abs(x1 - x0) > abs(y1 - y0):
        u0, v0, u1, v1, along, across, length, breadth = x0, y0, x1, y1, 1, width, width, height
    else:
        u0, v0, u1, v1, along, across, length, breadth = y0, x0, y1, x1, width, 1, height, width
    if u1 < u0:
        u0, v0, u1, v1 = u1, v1, u0, v0
    slope = np.int64(np.float64((v1 - v0) << SHIFT) / np.float64((u1 - u0) | 1))
    tilt = _TILT[(slope if slope >= 0 else ~slope) >> FINE]
    first, last = u0 >> SHIFT, (u1 >> SHIFT) + 1
    steps = last - first
    begin0, begin1, end1, end0 = _weights(steps, (u0 >> 9) & 0x78, (u1 >> 9) & 0x78, tilt)
    v = v0 - ((slope * (u0 & (ONE - 1)) + ONE - 1) >> SHIFT) + HALF
    end = v + slope * steps
    lowest, highest = (v, end) if v < end else (end, v)
    inside = lowest >= ONE and highest < (breadth - 1) * ONE
    at, base = first * along, np.int64(image.ctypes.data)
    for step in range(min(steps + 1, length - first)):
        row, between = v >> SHIFT, (v >> FINE) & 31
        weight = end1 if step == steps - 1 else tilt
        weight = end0 if step == steps else weight
        weight = begin1 if step == 1 else weight
        weight = begin0 if step == 0 else weight
        weights = ((_WEIGHTS[between] * np.uint64(weight)) >> _BITS) & _MASK
        place = at + row * across
        if not inside:
            for k in range(3):
                if 0 <= row + k - 1 < breadth:
                    _blend(image, place + (k - 1) * across, color, (weights >> np.uint64(16 * k)) & _ALPHA)
        elif image.itemsize == 8:
            _blend_words(base + place * 8, across * 8, weights, color)
        else:
            _blend_bytes(base + place, across, weights, color)
        v += slope
        at += along


@uncounted_helper
def _collect(points: Any, begin: int, end: int, height: int, edges: Any, heads: Any, known: Any) -> Any:
    """The edges of a contour that cross rows of pixels, each in the list of the first row it crosses.

    `known`, given and handed back, is how many edges there are and the first row of all.
    """
    count, highest = known
    before = end - 1
    for now in range(begin, end):
        a, b, before = before, now, now
        if points[a, 1] > points[b, 1]:
            a, b = b, a
        top, bottom = (np.int64(points[a, 1]) + HALF_POINT) >> POINT, (np.int64(points[b, 1]) + HALF_POINT) >> POINT
        if top == bottom or bottom <= 0 or top >= height:
            continue
        x = np.int64(points[a, 0]) << FINER
        run = (np.int64(points[b, 0]) << FINER) - x
        step = np.int64(np.float64(run) / np.float64(bottom - top))
        if top < 0:
            x, top = x - top * step, 0
        edges[count, 0], edges[count, 1], edges[count, 2], edges[count, 3] = x, step, bottom, heads[top]
        heads[top] = count
        count, highest = count + 1, min(highest, top)
    return count, highest


@uncounted_helper
def _sweep(image: Any, width: int, height: int, edges: Any, known: Any, heads: Any, active: Any, color: Any) -> None:
    """Row by row, colour the pixels between the first edge and the second, the third and the fourth, ..."""
    waiting, top = known
    count = 0
    for y in range(top, height):
        if waiting + count == 0:
            break
        kept = 0
        for k in range(count):
            edge = active[k]
            if edges[edge, 2] > y:
                edges[edge, 0] += edges[edge, 1]
                active[kept] = edge
                kept += 1
        edge = heads[y]
        heads[y] = -1
        while edge >= 0:
            active[kept] = edge
            kept += 1
            waiting -= 1
            edge = edges[edge, 3]
        count = kept
        for k in range(1, count):
            edge, place = active[k], k
            x = edges[edge, 0]
            while place > 0 and edges[active[place - 1], 0] > x:
                active[place] = active[place - 1]
                place -= 1
            active[place] = edge
        for k in range(0, count - 1, 2):
            left = max((edges[active[k], 0] + ONE - 1) >> SHIFT, 0)
            right = min(edges[active[k + 1], 0] >> SHIFT, width - 1)
            for at in range(y * width + left, y * width + right + 1):
                image[at] = color


@uncounted_helper
def _outline(image: Any, width: int, height: int, points: Any, begin: int, end: int, what: int, color: Any) -> None:
    """The lines from point to point; around what is filled they begin and end in the middle of a row."""
    before = begin if what == OPEN else end - 1
    for now in range(begin + (what == OPEN), end):
        x0, y0 = np.int64(points[before, 0]) << FINER, np.int64(points[before, 1])
        x1, y1 = np.int64(points[now, 0]) << FINER, np.int64(points[now, 1])
        if what == FILLED:
            y0, y1 = ((y0 + HALF_POINT) >> POINT) << SHIFT, ((y1 + HALF_POINT) >> POINT) << SHIFT
        else:
            y0, y1 = y0 << FINER, y1 << FINER
        _line(image, width, height, x0, y0, x1, y1, color)
        before = now


def draw_shapes(image: Any, width: int, background: int, points: Any, spans: Any, calls: Any) -> None:
    """See `polygons_reference.draw_shapes`."""
    ends = offsets_of(spans[:, 1] - spans[:, 0])
    most = int((ends[calls[:, 1]] - ends[calls[:, 0]]).max(initial=0))  # edges of one call
    edges, active = np.empty((most, 4), np.int64), np.empty(most, np.int64)
    heads = np.full(image.shape[1] // width, -1, np.int64)
    _draw(image, width, background, points, spans, calls, edges, active, heads)


@uncounted_kernel
def _draw(
    image: Any, width: int, background: int, points: Any, spans: Any, calls: Any, edges: Any, active: Any, heads: Any
) -> None:
    """See `draw_shapes`: edges that begin in a row are a list, edges that cross the row are sorted."""
    height = len(heads)
    for plane in range(len(image)):
        layer = image[plane]
        for at in range(len(layer)):
            layer[at] = np.uint64(background)
    for call in range(len(calls)):
        first, last, what = calls[call, 0], calls[call, 1], calls[call, 3]
        layer, paint, known = image[calls[call, 2]], np.uint64(calls[call, 4]), (0, height)
        if what == FILLED:  # first, for what is drawn over a colour in that colour changes nothing
            for span in range(first, last):
                known = _collect(points, spans[span, 0], spans[span, 1], height, edges, heads, known)
            _sweep(layer, width, height, edges, known, heads, active, paint)
        for span in range(first, last):
            _outline(layer, width, height, points, spans[span, 0], spans[span, 1], what, paint)


@uncounted_kernel
def place_shapes(
    shapes: Any,
    center: Any,
    radius: Any,
    which: Any,
    view: Any,
    matrices: Any,
    frame: Any,
    out: Any,
    kept: Any,
) -> int:
    """See `polygons_reference.place_shapes`."""
    width, height, pixel, margin = frame
    scale = np.float64(1 << POINT)
    count = 0
    for i in range(len(which)):
        shape, matrix = which[i], matrices[view[i]]
        x, y, reach = center[shape, 0], center[shape, 1], radius[shape] / pixel + margin
        column = x * matrix[0, 0] + y * matrix[0, 1] + matrix[0, 2]
        row = x * matrix[1, 0] + y * matrix[1, 1] + matrix[1, 2]
        if not (-reach < column < reach + width and -reach < row < reach + height):
            continue
        for k in range(shapes.shape[1]):
            x, y = shapes[shape, k, 0], shapes[shape, k, 1]
            for axis in range(2):
                at = (x * matrix[axis, 0] + y * matrix[axis, 1] + matrix[axis, 2]) * scale
                out[count, k, axis] = np.int32(-REACH if at < -REACH else REACH if at > REACH else at)
        kept[count] = i
        count += 1
    return count


@uncounted_kernel
def meeting_boxes(order: Any, sides: Any, strips: Any, centers: Any, reach: float, keys: Any) -> Any:
    """See `polygons_reference.meeting_boxes`."""
    left, bottom, right, top = sides
    count = 0
    for i in range(len(centers)):
        x, y = centers[i]
        for k in range(strips[i, 0], strips[i, 1]):
            if left[k] - reach < x < right[k] + reach and bottom[k] - reach < y < top[k] + reach:
                keys[count] = i * len(order) + order[k]
                count += 1
    return count


@uncounted_kernel
def split_channels(pixels: Any, planes: Any) -> None:
    """See `polygons_reference.split_channels`."""
    for channel in range(len(planes)):
        plane, digits = planes[channel], np.uint64(16 * channel)
        for i in range(len(pixels)):
            plane[i] = pixels[i] >> digits


@uncounted_kernel
def to_unit(values: Any, out: Any) -> None:
    """See `polygons_reference.to_unit`."""
    for i in range(len(values)):
        out[i] = np.float32(values[i]) / np.float32(255)
