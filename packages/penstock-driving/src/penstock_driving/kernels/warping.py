"""Turn and resize aerial images, by the rules of OpenCV 4 for `warpAffine` and `resize`, to the last bit.

Fixed point throughout: places in the image are cut to 1/32 of a pixel, weights of resizing to 1/2048. Colours stay
together: a pixel is three bytes and a spare one, and each step handles all of them in one vector. Floats are exact
where they occur, because weights are below 2^11 and sums below 2^18. The output is made row by row; the two turned rows
that were mixed last are kept, as the next row of the output mostly needs them again. Pixels are read inside the image
alone: `_turn` limits its fast loop to places whose four neighbours exist, and looks at each neighbour of the others.
The caller owns the image and the output. Reference: `tests/driving/reference/warping.py`.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import (
    ByteArray,
    FloatArray,
    ImageArray,
    Int32Array,
    IntArray,
    IntScalar,
    UInt32Array,
    read_only,
)
from penstock.kernels.intrinsics import Address, Builder, Value, move4, prefetch
from penstock.kernels.jit import helper, intrinsic, kernel

PLACES = 1024.0
"""Steps a pixel in which places are added up; they are rounded to 32 of them afterwards."""
ROUND = 16


Area: TypeAlias = tuple[int, int, int, int]
Pair: TypeAlias = tuple[np.int64, np.int64]


def warp(
    image: ImageArray,
    box: IntArray,
    matrix: FloatArray,
    columns: IntArray,
    left: IntArray,
    across: Int32Array,
    rows: IntArray,
    down: Int32Array,
    out: ImageArray,
) -> None:
    """Cut out a part of an image, turn it and resize it."""
    _, height, width = out.shape
    count = len(columns)
    if image.shape[2:] != (3,) or len(out) != 3 or len(box) != 3 or matrix.shape != (2, 3):
        raise ValueError(f"expected an image [R, C, 3] and room [3, H, W], got {list(image.shape)}, {list(out.shape)}")
    if len(left) != width or across.shape != (width, 2) or rows.shape != down.shape or rows.shape != (height, 2):
        raise ValueError(f"expected columns and weights of {width} x {height} pixels, got {len(left)} and {len(rows)}")
    place = np.empty(count, np.int64)
    near = np.empty((4, count), np.uint32)
    parts = np.empty((2, count), np.uint32)
    ahead = np.empty((2, count), np.int32)
    line = np.zeros(count, np.uint32)
    shown = np.empty(width, np.uint32)
    mixed, cached = np.empty((2, 4 * width), np.int16), np.full(2, -1, np.int64)
    room = place, near, parts, ahead, line, shown, shown.view(np.uint8), mixed, cached
    if not _warp(read_only(image), box, matrix, columns, left, across, rows, down, out, *room):
        raise ValueError(f"expected left within 0:{count - 1}, got {left.min()} to {left.max()}")


def _emit_mix_two(builder: Builder, dst: Value, src: Value, first: Value, second: Value) -> None:
    from llvmlite import ir

    byte = ir.IntType(8)
    short = ir.IntType(16)
    word = ir.IntType(32)
    pair = ir.VectorType(byte, 8)
    wide = ir.VectorType(word, 4)
    narrow = ir.VectorType(short, 4)
    both = builder.load(builder.inttoptr(src, pair.as_pointer()), align=1)

    def lanes(first_lane: int) -> Value:
        mask = ir.Constant(ir.VectorType(word, 4), [first_lane + k for k in range(4)])
        return builder.zext(builder.shuffle_vector(both, ir.Constant(pair, cast("Any", ir).Undefined), mask), wide)

    def spread(weight: Value) -> Value:
        one = builder.insert_element(ir.Constant(wide, cast("Any", ir).Undefined), builder.trunc(weight, word), word(0))
        return builder.shuffle_vector(one, ir.Constant(wide, cast("Any", ir).Undefined), ir.Constant(wide, None))

    mixed = builder.add(builder.mul(lanes(0), spread(first)), builder.mul(lanes(4), spread(second)))
    total = builder.trunc(builder.lshr(mixed, ir.Constant(wide, [4] * 4)), narrow)
    builder.store(total, builder.inttoptr(dst, narrow.as_pointer()), align=1)


@intrinsic(_emit_mix_two, "i8 i8 i8 i8")
def _mix_two(dst: Address, src: Address, first: Address, second: Address) -> None:
    """Mix two pixels of four bytes by 2048ths; write four 16-bit numbers, 128 a step, to `dst`."""


@kernel(
    "u1[3Cr] i8[1C] f8[2C] i8[1C] i8[1C] i4[2C] i8[2C] i4[2C] u1[3C] "
    "i8[1C] u4[2C] u4[2C] i4[2C] u4[1C] u4[1C] u1[1C] i2[2C] i8[1C]"
)
def _warp(
    image: ImageArray,
    box: IntArray,
    matrix: FloatArray,
    columns: IntArray,
    left: IntArray,
    across: Int32Array,
    rows: IntArray,
    down: Int32Array,
    out: ImageArray,
    place: IntArray,
    near: UInt32Array,
    parts: UInt32Array,
    ahead: Int32Array,
    line: UInt32Array,
    shown: UInt32Array,
    shown_bytes: ByteArray,
    mixed: npt.NDArray[np.int16],
    cached: IntArray,
) -> bool:
    """Return whether all columns exist. `line` is a turned row, `shown` a row of pixels; `mixed` are the two rows that
    were mixed last, and `cached` their numbers. Pixels of the next row but one are fetched ahead."""
    width, count = out.shape[2], len(columns)
    for x in range(width):
        if not 0 <= left[x] < count - 1:
            return False
    for axis in range(2):
        for k in range(count):
            ahead[axis, k] = np.int32(np.rint(matrix[axis, 0] * columns[k] * PLACES))
    right, bottom = image.shape[1] - box[1], image.shape[0] - box[0]
    area = (
        -box[1] if box[1] < 0 else 0,
        box[2] if box[2] < right else right,
        -box[0] if box[0] < 0 else 0,
        box[2] if box[2] < bottom else bottom,
    )
    step = 2 * np.float64(rows[1, 0] - rows[0, 0]) if len(rows) > 1 else 0.0
    nearby = np.int64(matrix[1, 1] * step) * image.strides[0] + np.int64(matrix[0, 1] * step) * 3
    to, source = np.int64(mixed.ctypes.data), np.int64(line.ctypes.data)
    for y in range(out.shape[1]):
        upper = lower = 0
        for k in range(2):
            row = rows[y, k]
            upper, lower = lower, _slot(cached, row, rows[y, 1 - k])
            if cached[lower] == row:
                continue
            cached[lower] = row
            x0 = np.int64(np.rint((matrix[0, 1] * row + matrix[0, 2]) * PLACES)) + ROUND
            y0 = np.int64(np.rint((matrix[1, 1] * row + matrix[1, 2]) * PLACES)) + ROUND
            _turn(image, box, area, (x0, y0), ahead, nearby, place, near, parts, line)
            for x in range(width):
                pixel = to + (lower * width + x) * 8
                _mix_two(pixel, source + 4 * left[x], np.int64(across[x, 0]), np.int64(across[x, 1]))
        _mix_rows(mixed[upper], mixed[lower], down[y, 0], down[y, 1], shown_bytes)
        _split(shown, out[0, y], out[1, y], out[2, y])
    return True


@helper
def _turn_at_edges(
    image: ImageArray,
    box: IntArray,
    area: Area,
    start: Pair,
    ahead: Int32Array,
    first: int,
    last: int,
    line: UInt32Array,
) -> None:
    """`line[first:last]`: pixels of the turned cut-out of which some or all neighbours are outside, hence black."""
    for k in range(first, last):
        x, y = (start[0] + ahead[0, k]) >> 5, (start[1] + ahead[1, k]) >> 5
        right = x & 31
        lower = y & 31
        x >>= 5
        y >>= 5
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
def _inside(area: Area, start: Pair, ahead: Int32Array, k: int) -> bool:
    """Return whether all four neighbours exist."""
    x, y = (start[0] + ahead[0, k]) >> 10, (start[1] + ahead[1, k]) >> 10
    return area[0] <= x < area[1] - 1 and area[2] <= y < area[3] - 1


@helper
def _turn(
    image: ImageArray,
    box: IntArray,
    area: Area,
    start: Pair,
    ahead: Int32Array,
    nearby: IntScalar,
    place: IntArray,
    near: UInt32Array,
    parts: UInt32Array,
    line: UInt32Array,
) -> None:
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
    right, lower = parts[0], parts[1]
    words, row = np.int64(near.ctypes.data), 4 * near.shape[1]
    along = ahead[0, first:last]
    down = ahead[1, first:last]
    within = slice(0, last - first)
    _places(np.int32(start[0]), np.int32(start[1]), along, down, base, stride, place[within], right, lower)
    for k in range(last - first):
        position = place[k]
        prefetch(position + nearby)
        prefetch(position + nearby + stride)
        move4(words + 4 * k, position)  # six bytes are two pixels: none is read beyond them
        move4(words + row + 4 * k, position + 2)
        move4(words + 2 * row + 4 * k, position + stride)
        move4(words + 3 * row + 4 * k, position + stride + 2)
    _mix_four(near[0], near[1], near[2], near[3], right, lower, line[first:last])


@helper
def _places(
    x0: np.int32,
    y0: np.int32,
    along: Int32Array,
    down: Int32Array,
    base: Address,
    stride: Address,
    place: IntArray,
    right: UInt32Array,
    lower: UInt32Array,
) -> None:
    """The address `[K]` of each pixel's upper left neighbour, and its offset to the right and below, in 32nds."""
    for k in range(len(place)):
        x, y = (x0 + along[k]) >> 5, (y0 + down[k]) >> 5
        right[k], lower[k] = x & 31, y & 31
        place[k] = base + np.int64(y >> 5) * stride + np.int64(x >> 5) * 3


@helper
def _mix_four(
    top: UInt32Array,
    top2: UInt32Array,
    bottom: UInt32Array,
    bottom2: UInt32Array,
    right: UInt32Array,
    lower: UInt32Array,
    line: UInt32Array,
) -> None:
    """Two pixels above and two below each, mixed into pixels of four bytes `[K]`; `top2` begins two bytes after `top`.

    Floats are exact here: weights are below 2^11, sums below 2^18.
    """
    for k in range(len(line)):
        u, v = np.float32(right[k]), np.float32(lower[k])
        s, t = np.float32(32) - u, np.float32(32) - v
        w0 = s * t
        w1 = u * t
        w2 = s * v
        w3 = u * v
        p = top[k]
        p2 = top2[k]
        q = bottom[k]
        q2 = bottom2[k]
        red = _weighed(p, 0, w0) + _weighed(p, 24, w1) + _weighed(q, 0, w2) + _weighed(q, 24, w3)
        green = _weighed(p, 8, w0) + _weighed(p2, 16, w1) + _weighed(q, 8, w2) + _weighed(q2, 16, w3)
        blue = _weighed(p, 16, w0) + _weighed(p2, 24, w1) + _weighed(q, 16, w2) + _weighed(q2, 24, w3)
        line[k] = _rounded(red) | _rounded(green) << 8 | _rounded(blue) << 16


@helper
def _weighed(word: np.uint32, shift: int, weight: np.float32) -> np.float32:
    return np.float32(np.int32((word >> shift) & 255)) * weight


@helper
def _rounded(total: np.float32) -> np.int32:
    return np.int32((total + np.float32(512)) * np.float32(1 / 1024))


@helper
def _slot(cached: IntArray, row: int, other: int) -> int:
    """Which of the two kept rows is `row`, or makes room for it: the one that `other` does not need."""
    if cached[0] == row or cached[1] == row:
        return 0 if cached[0] == row else 1
    return 1 if cached[0] == other else 0


@helper
def _mix_rows(
    upper: npt.NDArray[np.int16], lower: npt.NDArray[np.int16], first: np.int32, second: np.int32, mixed: ByteArray
) -> None:
    """Two rows, byte by byte, mixed by 2048ths."""
    for i in range(len(mixed)):
        above, below = np.int32(np.int32(upper[i]) * first), np.int32(np.int32(lower[i]) * second)
        mixed[i] = ((above >> 16) + (below >> 16) + 2) >> 2


@helper
def _split(pixels: UInt32Array, red: ByteArray, green: ByteArray, blue: ByteArray) -> None:
    """Pixels of four bytes as rows of the three colours."""
    for x in range(len(pixels)):
        red[x] = pixels[x] & 255
        green[x] = (pixels[x] >> 8) & 255
        blue[x] = (pixels[x] >> 16) & 255
