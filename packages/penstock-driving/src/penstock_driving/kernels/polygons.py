"""Draw polygons and lines, by the rules of OpenCV's `fillPoly` and `polylines` with smoothed lines, to the last bit.

The channels of a pixel are 16 bits apart in one word, so one operation blends all of them. An edge waits in the list of
the first row of pixels that it crosses; the edges that cross a row are kept sorted, and rows are filled between pairs.
Lines are walked along their longer axis with 16 binary digits behind the point, three pixels a step; a line that stays
inside the image is drawn without a check for each pixel. Whatever the coordinates are, all stores are inside the image:
lines are cut at its edges first, and rows and columns of polygons are clamped. The caller owns the image and all
arrays. Reference: `tests/driving/reference/polygons.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from penstock.core.arrays import AnyArray, Int32Array, IntArray, IntScalar
from penstock.core.ragged import offsets_of
from penstock.kernels.intrinsics import Address, Builder, Value
from penstock.kernels.jit import helper, intrinsic, kernel

# What a call does with its contours.
FILLED = 0
OPEN = 1
CLOSED = 2

POINT, SHIFT = 9, 16
"""Digits behind the point: of coordinates handed in, and of those that lines are walked with."""
FINER, HALF_POINT = SHIFT - POINT, 1 << POINT >> 1
ONE, HALF = 1 << SHIFT, 1 << SHIFT >> 1
FINE = SHIFT - 5
"""Slopes, and places between two pixels, are looked up by their first 5 digits."""
REACH = 2.0**30
"""Coordinates handed in are cut here, so that they fit 32 bits."""
TILT = [*(int(256 * np.sqrt((1 + ((i + 0.5) / 32) ** 2) / 2)) for i in range(32)), 256]
"""How much steeper lines are widened: their steps are longer than a pixel."""
ACROSS = [
    168, 177, 185, 194, 202, 210, 218, 224, 231, 236, 241, 246, 249, 252, 254, 254,
    254, 254, 252, 249, 246, 241, 236, 231, 224, 218, 210, 202, 194, 185, 177, 168,
    158, 149, 140, 131, 122, 114, 105, 97, 89, 82, 75, 68, 62, 56, 50, 45,
    40, 36, 32, 28, 25, 22, 19, 16, 14, 12, 11, 9, 8, 7, 5, 5,
]  # fmt: skip
"""The weight of a pixel from a line's middle on, 32 values a pixel: the first 32 for the pixel that the line is in."""
ROUND, MASK = 0x007F007F007F007F, 0x00FF00FF00FF00FF
"""Of a pixel's four channels, 16 bits apart: what is added before a division by 256, and what is left after it."""

_TILT = np.array(TILT, np.int64)
_WEIGHTS = np.array(
    [sum(ACROSS[square] << 16 * k for k, square in enumerate((32 + i, i, 63 - i))) for i in range(32)], np.uint64
)
"""Of the pixel before a line's, of its own and of the one behind it, 16 bits each, by where it lies between two."""
_FULL = np.uint64(256)
_BITS = np.uint64(8)
_ALPHA = np.uint64(255)
_ROUND, _MASK = np.uint64(ROUND), np.uint64(MASK)


def draw_shapes(
    image: AnyArray, width: int, background: int, points: Int32Array, spans: IntArray, calls: IntArray
) -> None:
    """Fill planes with a background, then carry out calls in order."""
    if width < 1 or image.shape[1] % width:
        raise ValueError(f"expected whole rows of {width} pixels, got {image.shape[1]} pixels")
    ends = offsets_of(spans[:, 1] - spans[:, 0])
    most = int((ends[calls[:, 1]] - ends[calls[:, 0]]).max(initial=0))  # edges of one call
    edges, active = np.empty((most, 4), np.int64), np.empty(most, np.int64)
    heads = np.full(image.shape[1] // width, -1, np.int64)
    bad = _draw(image, width, background, points, spans, calls, edges, active, heads)
    if bad >= 0:
        raise ValueError(
            f"expected contours of {len(points)} points and {len(image)} planes, got {calls[bad].tolist()}"
        )


def _emit_blend(bits: int) -> Callable[..., None]:
    """Blend three pixels of `bits` bits with a colour, all their channels in one vector."""

    def emit(builder: Builder, pointer: Value, across: Value, weights: Value, color: Value) -> None:
        from llvmlite import ir

        channels = max(bits // 16, 1)
        word = ir.IntType(32)
        pixel = ir.IntType(bits)
        short = ir.IntType(16)
        wide = ir.IntType(16 * channels)  # a pixel in lanes of 16 bits
        four, lanes = ir.VectorType(short, 4), ir.VectorType(short, 4 * channels)

        def spread(packed: Value, order: list[int]) -> Value:
            mask = ir.Constant(ir.VectorType(word, len(order)), order)
            return builder.shuffle_vector(
                builder.bitcast(packed, four), ir.Constant(four, cast("Any", ir).Undefined), mask
            )

        addresses = (builder.sub(pointer, across), pointer, builder.add(pointer, across))
        places = [builder.inttoptr(address, pixel.as_pointer()) for address in addresses]
        pixels = ir.Constant(ir.VectorType(wide, 4), [0] * 4)
        for k, place in enumerate(places):
            value = builder.load(place, align=bits // 8)
            pixels = builder.insert_element(pixels, value if bits > 16 else builder.zext(value, wide), word(k))
        full, half, digits = (ir.Constant(lanes, [number] * 4 * channels) for number in (256, 127, 8))
        value = builder.bitcast(pixels, lanes)
        weight = spread(weights, [k for k in range(4) for _ in range(channels)])
        part = builder.add(builder.mul(spread(color, [*range(channels)] * 4), weight), half)
        for _ in range(2):
            value = builder.lshr(builder.add(builder.mul(value, builder.sub(full, weight)), part), digits)
        pixels = builder.bitcast(value, pixels.type)
        for k, place in enumerate(places):
            value = builder.extract_element(pixels, word(k))
            builder.store(value if bits > 16 else builder.trunc(value, pixel), place, align=bits // 8)

    return emit


@intrinsic(_emit_blend(8), "i8 i8 u8 u8")
def _blend_bytes(address: Address, across: int, weights: np.uint64, color: np.uint64) -> None:
    """Blend the bytes at an address and `across` bytes before and behind it; their `weights` are 16 bits apart."""


@intrinsic(_emit_blend(64), "i8 i8 u8 u8")
def _blend_words(address: Address, across: int, weights: np.uint64, color: np.uint64) -> None:
    """Blend the pixels of uint64 at an address and `across` bytes before and behind it, as `_blend_bytes`."""


@helper
def _blend(image: AnyArray, pixel: IntScalar, color: np.uint64, alpha: np.uint64) -> None:
    """Twice `alpha` / 256 of the way to `color`, all channels of a pixel at once: they are 16 bits apart."""
    rest, part = _FULL - alpha, color * alpha + _ROUND
    value = ((np.uint64(image[pixel]) * rest + part) >> _BITS) & _MASK
    image[pixel] = ((value * rest + part) >> _BITS) & _MASK


@helper
def _part(distance: IntScalar, run: IntScalar, rise: IntScalar) -> IntScalar:
    """`distance * run / rise`, in doubles, cut towards zero."""
    return np.int64(np.float64(distance) * np.float64(run) / np.float64(rise))


@helper
def _beyond(a: IntScalar, b: IntScalar, last: int) -> bool | np.bool_:
    """Return whether both are before 0, or both behind `last`."""
    return (a < 0 and b < 0) or (a > last and b > last)


@helper
def _clip(
    x0: IntScalar, y0: IntScalar, x1: IntScalar, y1: IntScalar, right: int, bottom: int
) -> tuple[bool, IntScalar, IntScalar, IntScalar, IntScalar]:
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


@helper
def _weights(
    steps: IntScalar, into: IntScalar, out: IntScalar, tilt: IntScalar
) -> tuple[IntScalar, IntScalar, IntScalar, IntScalar]:
    """The weights of the first two steps of a line and of its last two, which it covers in part."""
    first, last = (0x78 - into) | 4, out | 4
    second, before = first + 128, last + 128
    if steps == 1:
        first = second = ((out - into) & 0x78) | 4
    elif steps == 2:
        second = (out - into + 0x80) | 4
    return first * tilt >> 8, second * tilt >> 8, before * tilt >> 8, last * tilt >> 8


@helper
def _line(
    image: AnyArray,
    width: int,
    height: int,
    x0: IntScalar,
    y0: IntScalar,
    x1: IntScalar,
    y1: IntScalar,
    color: np.uint64,
) -> None:
    """One smoothed line: three pixels for every step along its longer axis."""
    seen, x0, y0, x1, y1 = _clip(x0, y0, x1, y1, width * ONE - 1, height * ONE - 1)
    if not seen:
        return
    if abs(x1 - x0) > abs(y1 - y0):
        u0 = x0
        v0 = y0
        u1 = x1
        v1 = y1
        along = 1
        across = width
        length = width
        breadth = height
    else:
        u0 = y0
        v0 = x0
        u1 = y1
        v1 = x1
        along = width
        across = 1
        length = height
        breadth = width
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
    position, base = first * along, np.int64(image.ctypes.data)
    for step in range(min(steps + 1, length - first)):
        row, between = v >> SHIFT, (v >> FINE) & 31
        weight = end1 if step == steps - 1 else tilt
        weight = end0 if step == steps else weight
        weight = begin1 if step == 1 else weight
        weight = begin0 if step == 0 else weight
        weights = ((_WEIGHTS[between] * np.uint64(weight)) >> _BITS) & _MASK
        place = position + row * across
        if not inside:
            for k in range(3):
                if 0 <= row + k - 1 < breadth:
                    _blend(image, place + (k - 1) * across, color, (weights >> np.uint64(16 * k)) & _ALPHA)
        elif image.itemsize == 8:
            _blend_words(base + place * 8, across * 8, weights, color)
        else:
            _blend_bytes(base + place, across, weights, color)
        v += slope
        position += along


@helper
def _collect(
    points: Int32Array,
    begin: int,
    end: int,
    height: int,
    edges: IntArray,
    heads: IntArray,
    known: tuple[int, IntScalar],
) -> tuple[int, IntScalar]:
    """The edges of a contour that cross rows of pixels, each in the list of the first row it crosses.

    `known`, given and handed back, is how many edges there are and the first row of all.
    """
    count, highest = known
    before = end - 1
    for now in range(begin, end):
        a = before
        b = now
        before = now
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
        edges[count, 0] = x
        edges[count, 1] = step
        edges[count, 2] = bottom
        edges[count, 3] = heads[top]
        heads[top] = count
        count, highest = count + 1, top if top < highest else highest
    return count, highest


@helper
def _sweep(
    image: AnyArray,
    width: int,
    height: int,
    edges: IntArray,
    known: tuple[int, IntScalar],
    heads: IntArray,
    active: IntArray,
    color: np.uint64,
) -> None:
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
            left, right = (edges[active[k], 0] + ONE - 1) >> SHIFT, edges[active[k + 1], 0] >> SHIFT
            left, right = left if left > 0 else 0, right if right < width else width - 1
            for pixel in range(y * width + left, y * width + right + 1):
                image[pixel] = color


@helper
def _outline(
    image: AnyArray, width: int, height: int, points: Int32Array, begin: int, end: int, what: int, color: np.uint64
) -> None:
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


@kernel(
    "u1[2C] i8 i8 i4[2C] i8[2C] i8[2C] i8[2C] i8[1C] i8[1C]",
    "u8[2C] i8 i8 i4[2C] i8[2C] i8[2C] i8[2C] i8[1C] i8[1C]",
)
def _draw(
    image: AnyArray,
    width: int,
    background: int,
    points: Int32Array,
    spans: IntArray,
    calls: IntArray,
    edges: IntArray,
    active: IntArray,
    heads: IntArray,
) -> int:
    """Return the first call that is outside, or -1. `edges`, `active` and `heads` have room for the edges of a call."""
    height = len(heads)
    for plane in range(len(image)):
        layer = image[plane]
        for pixel in range(len(layer)):
            layer[pixel] = np.uint64(background)
    for call in range(len(calls)):
        first = calls[call, 0]
        last = calls[call, 1]
        what = calls[call, 3]
        if not 0 <= calls[call, 2] < len(image) or first < 0 or last > len(spans):
            return call
        for span in range(first, last):
            if not 0 <= spans[span, 0] <= spans[span, 1] <= len(points):
                return call
        layer = image[calls[call, 2]]
        paint = np.uint64(calls[call, 4])
        known = (0, height)
        if what == FILLED:  # first, for what is drawn over a colour in that colour changes nothing
            for span in range(first, last):
                known = _collect(points, spans[span, 0], spans[span, 1], height, edges, heads, known)
            _sweep(layer, width, height, edges, known, heads, active, paint)
        for span in range(first, last):
            _outline(layer, width, height, points, spans[span, 0], spans[span, 1], what, paint)
    return -1
