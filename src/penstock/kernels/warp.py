# ruff: noqa: ARG001 - an intrinsic names its arguments for the caller alone
# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernel that turns and resizes aerial images (numba, GIL released, cached on disk).

`warp_reference` defines it; both equal OpenCV 4 to the last bit, in fixed-point arithmetic. Colours stay together: a
pixel is three bytes and a spare one, and each step handles all of them in one vector. Floats are exact where they
occur, because sums stay below 2^18. The caller owns the image and the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.kernels.intrinsics import move4, prefetch
from penstock.kernels.jit import helper, kernel
from penstock.kernels.warp_reference import PLACES, ROUND

_BYTE, _SHORT, _WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)


def _spread(builder: Any, value: Any, kind: Any, lanes: int) -> Any:
    """`value`, cut to `kind`, in every lane."""
    vector = ir.VectorType(kind, lanes)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(value, kind), _WORD(0))
    return builder.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(_WORD, lanes), None)
    )


def _lanes(builder: Any, value: Any, first: int) -> Any:
    """Four lanes of a vector of eight, from `first` on."""
    mask = ir.Constant(ir.VectorType(_WORD, 4), [first, first + 1, first + 2, first + 3])
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


@intrinsic
def _mix_two(_context: Any, dst: Any, src: Any, first: Any, second: Any) -> Any:
    """Two pixels of four bytes, mixed by 2048ths, as four 16-bit numbers (128 a step) at `dst`."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pair, wide = ir.VectorType(_BYTE, 8), ir.VectorType(_WORD, 4)
        both = builder.load(builder.inttoptr(args[1], pair.as_pointer()), align=1)
        parts = [
            builder.mul(builder.zext(_lanes(builder, both, 4 * k), wide), _spread(builder, args[2 + k], _WORD, 4))
            for k in (0, 1)
        ]
        total = builder.lshr(builder.add(*parts), ir.Constant(wide, [4] * 4))
        short = ir.VectorType(_SHORT, 4)
        builder.store(builder.trunc(total, short), builder.inttoptr(args[0], short.as_pointer()), align=1)

    return types.void(*(types.int64,) * 4), codegen


@helper
def _turn_at_edges(image: Any, box: Any, area: Any, start: Any, ahead: Any, first: int, last: int, line: Any) -> None:
    """`line[first:last]`: pixels of the turned cut-out of which some or all neighbours are outside, hence black."""
    for k in range(first, last):
        x, y = (start[0] + ahead[0, k]) >> 5, (start[1] + ahead[1, k]) >> 5
        right, lower, x, y = x & 31, y & 31, x >> 5, y >> 5
        line[k] = 0
        if x + 1 < area[0] or x >= area[1] or y + 1 < area[2] or y >= area[3]:
            continue
        for c in range(3):
            total = 0
            for i in range(2):
                for j in range(2):
                    if area[0] <= x + j < area[1] and area[2] <= y + i < area[3]:
                        weight = (lower if i else 32 - lower) * (right if j else 32 - right)
                        total += weight * np.int64(image[y + i + box[0], x + j + box[1], c])
            line[k] |= np.uint32(((total + 512) >> 10) << (8 * c))


@helper
def _inside(area: Any, start: Any, ahead: Any, k: int) -> Any:
    """Return whether all four neighbours exist."""
    x, y = (start[0] + ahead[0, k]) >> 10, (start[1] + ahead[1, k]) >> 10
    return area[0] <= x < area[1] - 1 and area[2] <= y < area[3] - 1


@helper
def _turn(image: Any, box: Any, area: Any, start: Any, ahead: Any, nearby: int, room: Any, line: Any) -> None:
    """`line` `[K]`, pixels of four bytes: a row of the turned cut-out from `start` on, then by `ahead` `[2, K]`.

    Three passes, each of one kind of work: compute addresses, load pixels, mix them. A row enters the image once and
    leaves it once; its image part is `area` of the cut-out, columns `area[0]:area[1]`, rows `area[2]:area[3]`.
    """
    first, last = 0, len(line)
    while first < last and not _inside(area, start, ahead, first):
        first += 1
    while first < last and not _inside(area, start, ahead, last - 1):
        last -= 1
    _turn_at_edges(image, box, area, start, ahead, 0, first, line)
    _turn_at_edges(image, box, area, start, ahead, last, len(line), line)
    stride = np.int64(image.strides[0])
    base = np.int64(image.ctypes.data) + box[0] * stride + box[1] * 3
    place, near, across, lower = room
    words, row = np.int64(near.ctypes.data), 4 * near.shape[1]
    along, down, within = ahead[0, first:last], ahead[1, first:last], slice(0, last - first)
    _places(np.int32(start[0]), np.int32(start[1]), along, down, base, stride, place[within], across, lower)
    for k in range(last - first):
        at = place[k]
        prefetch(at + nearby)
        prefetch(at + nearby + stride)
        move4(words + 4 * k, at)  # six bytes are two pixels: none is read beyond them
        move4(words + row + 4 * k, at + 2)
        move4(words + 2 * row + 4 * k, at + stride)
        move4(words + 3 * row + 4 * k, at + stride + 2)
    _mix_four(near[0], near[1], near[2], near[3], across, lower, line[first:last])


@helper
def _places(
    x0: Any, y0: Any, along: Any, down: Any, base: int, stride: int, place: Any, right: Any, lower: Any
) -> None:
    """The address `[K]` of each pixel's upper left neighbour, and its offset to the right and below, in 32nds."""
    for k in range(len(place)):
        x, y = (x0 + along[k]) >> 5, (y0 + down[k]) >> 5
        right[k], lower[k] = x & 31, y & 31
        place[k] = base + np.int64(y >> 5) * stride + np.int64(x >> 5) * 3


@helper
def _mix_four(top: Any, top2: Any, bottom: Any, bottom2: Any, right: Any, lower: Any, line: Any) -> None:
    """Two pixels above and two below each, mixed into pixels of four bytes `[K]`; `top2` begins two bytes after `top`.

    Floats are exact here: weights are below 2^11, sums below 2^18.
    """
    for k in range(len(line)):
        u, v = np.float32(right[k]), np.float32(lower[k])
        s, t = np.float32(32) - u, np.float32(32) - v
        w0, w1, w2, w3 = s * t, u * t, s * v, u * v
        p, p2, q, q2 = top[k], top2[k], bottom[k], bottom2[k]
        red = _weighed(p, 0, w0) + _weighed(p, 24, w1) + _weighed(q, 0, w2) + _weighed(q, 24, w3)
        green = _weighed(p, 8, w0) + _weighed(p2, 16, w1) + _weighed(q, 8, w2) + _weighed(q2, 16, w3)
        blue = _weighed(p, 16, w0) + _weighed(p2, 24, w1) + _weighed(q, 16, w2) + _weighed(q2, 24, w3)
        line[k] = _rounded(red) | _rounded(green) << 8 | _rounded(blue) << 16


@helper
def _weighed(word: Any, shift: int, weight: Any) -> Any:
    return np.float32(np.int32((word >> shift) & 255)) * weight


@helper
def _rounded(total: Any) -> Any:
    return np.int32((total + np.float32(512)) * np.float32(1 / 1024))


@kernel
def warp(
    image: Any, box: Any, matrix: Any, columns: Any, left: Any, across: Any, rows: Any, down: Any, out: Any
) -> None:
    """See `warp_reference.warp`: row by row; the two rows that were mixed last are kept, the next but one asked for."""
    width, count = out.shape[2], len(columns)
    ahead = np.empty((2, count), np.int32)
    for axis in range(2):
        for k in range(count):
            ahead[axis, k] = np.int32(np.rint(matrix[axis, 0] * columns[k] * PLACES))
    columns_there = max(0, -box[1]), min(box[2], image.shape[1] - box[1])
    area = (*columns_there, max(0, -box[0]), min(box[2], image.shape[0] - box[0]))
    step = 2 * np.float64(rows[1, 0] - rows[0, 0]) if len(rows) > 1 else 0.0
    nearby = np.int64(matrix[1, 1] * step) * image.strides[0] + np.int64(matrix[0, 1] * step) * 3
    place, near = np.empty(count, np.int64), np.empty((4, count), np.uint32)
    room = place, near, np.empty(count, np.uint32), np.empty(count, np.uint32)
    line, shown = np.zeros(count, np.uint32), np.empty(width, np.uint32)
    mixed, held = np.empty((2, 4 * width), np.int16), np.full(2, -1, np.int64)
    to, source = np.int64(mixed.ctypes.data), np.int64(line.ctypes.data)
    for y in range(out.shape[1]):
        upper = lower = 0
        for k in range(2):
            row = rows[y, k]
            upper, lower = lower, _slot(held, row, rows[y, 1 - k])
            if held[lower] == row:
                continue
            held[lower] = row
            x0 = np.int64(np.rint((matrix[0, 1] * row + matrix[0, 2]) * PLACES)) + ROUND
            y0 = np.int64(np.rint((matrix[1, 1] * row + matrix[1, 2]) * PLACES)) + ROUND
            _turn(image, box, area, (x0, y0), ahead, nearby, room, line)
            for x in range(width):
                pixel = to + (lower * width + x) * 8
                _mix_two(pixel, source + 4 * left[x], np.int64(across[x, 0]), np.int64(across[x, 1]))
        _mix_rows(mixed[upper], mixed[lower], down[y, 0], down[y, 1], shown.view(np.uint8))
        _split(shown, out[0, y], out[1, y], out[2, y])


@helper
def _slot(held: Any, row: int, other: int) -> Any:
    """Which of the two kept rows is `row`, or makes room for it: the one that `other` does not need."""
    if held[0] == row or held[1] == row:
        return 0 if held[0] == row else 1
    return 1 if held[0] == other else 0


@helper
def _mix_rows(upper: Any, lower: Any, first: Any, second: Any, mixed: Any) -> None:
    """Two rows, byte by byte, mixed by 2048ths."""
    for i in range(len(mixed)):
        above, below = np.int32(np.int32(upper[i]) * first), np.int32(np.int32(lower[i]) * second)
        mixed[i] = ((above >> 16) + (below >> 16) + 2) >> 2


@helper
def _split(pixels: Any, red: Any, green: Any, blue: Any) -> None:
    """Pixels of four bytes as rows of the three colours."""
    for x in range(len(pixels)):
        red[x], green[x], blue[x] = pixels[x] & 255, (pixels[x] >> 8) & 255, (pixels[x] >> 16) & 255
